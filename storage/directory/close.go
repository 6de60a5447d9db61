package directory

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// PrepareClosure finds an organization and what its closure ends: API keys, access tokens and members. ClosedAt is not nil if the
// organization is closed already. It refuses organizations that cannot be closed. Faults: NotFound; Conflict for the actor's own
// organization, and if no active operator would be left.
func PrepareClosure(t *sqlite.Tx, by access.Actor, id string) (row int64, c access.Closure, err error) {
	o, err := organizationNamed(t, id)
	if err != nil {
		return 0, c, err
	}
	c = access.Closure{ID: o.ID, ClosedAt: o.ClosedAt, Complete: o.CleanedAt != nil}
	if o.ClosedAt != nil {
		return o.RowID, c, nil
	}
	if err := cmp.Or(refuseOwn(by, o), requireAnotherOperator(t, 0, o.RowID)); err != nil {
		return o.RowID, c, err
	}
	err = t.Get(&c, `
		SELECT (`+countKeys+`) AS api_keys,
		       (SELECT count(*) FROM access_tokens a
		        WHERE a.organization_id = ?1 AND a.revoked_at IS NULL AND (a.expires_at IS NULL OR a.expires_at > ?2)) AS access_tokens,
		       (SELECT count(*) FROM memberships WHERE organization_id = ?1) AS members`, o.RowID, t.Now())
	return o.RowID, c, err
}

// refuseOwn refuses to end the organization in which the actor acts, or to which its credential belongs.
func refuseOwn(by access.Actor, o access.Organization) error {
	if o.RowID == by.Organization || o.RowID == by.LogOrganization() {
		return fault.New(fault.Conflict, "in_use", "You act in this organization, or your credential belongs to it; act in another one, or use a credential of another one.")
	}
	return nil
}

// MarkClosed refuses the credentials of an organization from the next request on, and removes its name and external id. The
// caller has called PrepareClosure, ends what the other tables have, and lets EndOrganization remove the rest.
func (d *Directory) MarkClosed(t *sqlite.Tx, row int64) error {
	d.OutdatePrincipals(t)
	return t.Exec("UPDATE organizations SET name = ?1, external_id = NULL, closed_at = ?2, updated_at = ?2 WHERE id = ?3",
		access.ClosedOrganizationName, t.Now(), row)
}

// OrganizationsToClean lists the next closed organizations after a row that may have data.
func (d *Directory) OrganizationsToClean(ctx context.Context, after int64, limit int) ([]access.Organization, error) {
	return sqlite.All[access.Organization](d.reads.In(ctx),
		selectOrganizations+" WHERE closed_at IS NOT NULL AND cleaned_at IS NULL AND id > ? ORDER BY id LIMIT ?", after, limit)
}

// EndOrganization ends the API keys, the access tokens, the sign-in links and the memberships of a closed organization, and its
// service account. Its sessions are refused, and expire.
func (d *Directory) EndOrganization(ctx context.Context, organization int64) error {
	return d.inBatches(ctx, organization, []batch{
		{"api_keys", "organization_id", "id", `
			UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?4), name = '', metadata = '{}', external_id = NULL, allowed_networks = ''`},
		{"access_tokens", "organization_id", "id", "UPDATE access_tokens SET revoked_at = coalesce(revoked_at, ?4), name = ''"},
		{"sign_in_links", "organization_id", "id", "DELETE FROM sign_in_links"},
		{"sessions", "organization_id", "id", "UPDATE sessions SET return_url = NULL"},
		{"memberships", "organization_id", "user_id", "DELETE FROM memberships"},
		{"users", "service_of", "id", "UPDATE users SET is_active = 0, updated_at = ?4"},
	})
}

// OrganizationCleaned notes that the closure of an organization is complete.
func (d *Directory) OrganizationCleaned(ctx context.Context, organization int64) error {
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		return t.Exec("UPDATE organizations SET cleaned_at = ? WHERE id = ?", t.Now(), organization)
	})
}
