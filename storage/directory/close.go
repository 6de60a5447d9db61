package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// CloseOrganization ends an organization: its credentials are refused from the next request on, nothing is sent for it any more,
// and its name and external id are removed. Its data is removed soon after; see access.Closure. The operation is idempotent. Faults:
// NotFound; Conflict for the actor's own organization, and if no active operator would be left.
func (d *Directory) CloseOrganization(ctx context.Context, by access.Actor, id string) (access.Closure, error) {
	return returning(ctx, d, urgentFor(by.Organization), func(t *sqlite.Tx) (access.Closure, error) {
		o, c, err := d.prepareClosure(t, by, id)
		if err != nil || o.ClosedAt != nil {
			return c, err
		}
		if _, err := t.Exec("UPDATE organizations SET name = ?1, external_id = NULL, closed_at = ?2, updated_at = ?2 WHERE id = ?3",
			access.ClosedOrganizationName, t.Now(), o.RowID); err != nil {
			return c, err
		}
		c.ClosedAt = new(t.Now())
		d.OutdatePrincipals(t)
		d.hooks.OrganizationClosed(t)
		return c, d.hooks.Audit(t, by, o.RowID, access.OrganizationClosed, Target{Type: "organization", ID: o.ID}, map[string]any{
			"api_keys": c.APIKeys, "access_tokens": c.AccessTokens, "members": c.Members, "subscriptions": c.Subscriptions,
			"pending_deliveries": c.PendingDeliveries,
		})
	})
}

// CountClosure says what CloseOrganization would end. Faults: as CloseOrganization.
func (d *Directory) CountClosure(ctx context.Context, by access.Actor, id string) (access.Closure, error) {
	return returning(ctx, d, workFor(by.Organization), func(t *sqlite.Tx) (access.Closure, error) {
		_, c, err := d.prepareClosure(t, by, id)
		return c, err
	})
}

// prepareClosure finds an organization and what its closure ends. It refuses organizations that cannot be closed.
func (d *Directory) prepareClosure(t *sqlite.Tx, by access.Actor, id string) (o access.Organization, c access.Closure, err error) {
	if o, err = organizationNamed(t, id); err != nil {
		return o, c, err
	}
	c = access.Closure{ID: o.ID, ClosedAt: o.ClosedAt, Complete: o.CleanedAt != nil}
	if o.ClosedAt != nil {
		return o, c, nil
	}
	if o.RowID == by.Organization || o.RowID == by.LogOrganization() {
		return o, c, fault.New(fault.Conflict, "in_use", "You act in this organization, or your credential belongs to it; act in another one, or use a credential of another one.")
	}
	if err := requireAnotherOperator(t, 0, o.RowID); err != nil {
		return o, c, err
	}
	if err := t.Get(&c, `
		SELECT (`+countKeys+`) AS api_keys,
		       (SELECT count(*) FROM access_tokens a
		        WHERE a.organization_id = ?1 AND a.revoked_at IS NULL AND (a.expires_at IS NULL OR a.expires_at > ?2)) AS access_tokens,
		       (SELECT count(*) FROM memberships WHERE organization_id = ?1) AS members`, o.RowID, t.Now()); err != nil {
		return o, c, err
	}
	c.Subscriptions, c.PendingDeliveries, err = d.hooks.CountSubscriptions(t, o.RowID)
	return o, c, err
}

// OrganizationsToClean lists the next closed organizations after a row that may have data.
func (d *Directory) OrganizationsToClean(ctx context.Context, after int64, limit int) ([]access.Organization, error) {
	organizations := []access.Organization{}
	err := d.list(ctx, &organizations, selectOrganizations+" WHERE o.closed_at IS NOT NULL AND o.cleaned_at IS NULL AND o.id > ? ORDER BY o.id LIMIT ?", after, limit)
	return organizations, err
}

// EndOrganization ends the API keys, the access tokens, the sign-in links and the memberships of a closed organization, and its
// service account. Its sessions are refused, and expire.
func (d *Directory) EndOrganization(ctx context.Context, organization int64) error {
	return d.inBatches(ctx, organization, []batch{
		{"api_keys", "organization_id", "id", "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?), name = '', metadata = '{}', external_id = NULL", true},
		{"access_tokens", "organization_id", "id", "UPDATE access_tokens SET revoked_at = coalesce(revoked_at, ?), name = ''", true},
		{"sign_in_links", "organization_id", "id", "DELETE FROM sign_in_links", false},
		{"sessions", "organization_id", "id", "UPDATE sessions SET return_url = NULL", false},
		{"memberships", "organization_id", "user_id", "DELETE FROM memberships", false},
		{"users", "service_of", "id", "UPDATE users SET is_active = 0, updated_at = ?", true},
	})
}

// OrganizationCleaned notes that the closure of an organization is complete.
func (d *Directory) OrganizationCleaned(ctx context.Context, organization int64) error {
	return d.change(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		_, err := t.Exec("UPDATE organizations SET cleaned_at = ? WHERE id = ?", t.Now(), organization)
		return err
	})
}
