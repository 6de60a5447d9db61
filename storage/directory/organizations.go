package directory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	organizationColumns = `organizations.id, public_id, name, (SELECT p.name FROM plans p WHERE p.id = plan_id) AS plan, external_id,
		closed_at, last_event_at, cleaned_at, created_at, updated_at`
	selectOrganizations = "SELECT " + organizationColumns + " FROM organizations"
)

// OrganizationPage lists the organizations whose name or external id begins with a text, newest first. The case of A to Z does not
// matter, and an empty text lists all.
func (d *Directory) OrganizationPage(ctx context.Context, beginning string, before int64, limit int) (access.Page[access.Organization], error) {
	list := scan.List[access.Organization]{Logs: d.logs, Table: "organizations", Columns: organizationColumns, Where: "TRUE"}
	return beginningWith(ctx, list, beginningIs, beginning, before, limit)
}

// beginningIs is the condition for organizations whose name or external id begins with a text.
const beginningIs = `(name LIKE ?5 ESCAPE '\' OR external_id LIKE ?5 ESCAPE '\')`

func startingWith(text string) string {
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(text) + "%"
}

// OrganizationsInOrder lists the first of some organizations, by row id and in their order, whose name or external id begins with a text.
func (d *Directory) OrganizationsInOrder(ctx context.Context, rows []int64, beginning string, limit int) ([]access.Organization, error) {
	return sqlite.All[access.Organization](d.logs.InTurn(ctx, access.AllOrganizations), `
		SELECT `+organizationColumns+` FROM json_each(?1) j CROSS JOIN organizations ON organizations.id = j.value
		WHERE `+beginningIs+` ORDER BY j.key LIMIT ?4`, sqlite.RowList(slices.Values(rows)), nil, nil, limit, startingWith(beginning))
}

// beginningWith returns a page of a list of which some texts begin with the given one. like is the condition that they are LIKE the
// parameter ?5. An empty text selects the whole list, which needs no search.
func beginningWith[T any](ctx context.Context, list scan.List[T], like, text string, before int64, limit int) (access.Page[T], error) {
	q := scan.Query{Organization: access.AllOrganizations, Before: before, Limit: limit}
	if text != "" {
		list.Where += " AND " + like
		q.Filtered, q.Args = true, []any{startingWith(text)}
	}
	return list.Page(ctx, q)
}

// Organization returns the organization with an id or an external id. Faults: NotFound.
func (d *Directory) Organization(ctx context.Context, id string) (access.Organization, error) {
	return organizationNamed(d.reads.In(ctx), id)
}

// CreateOrganization creates an organization on the plan that o names. Faults: Invalid if the plan is unknown; Conflict if
// the external id is taken.
func (d *Directory) CreateOrganization(ctx context.Context, by access.Actor, o access.Organization) (access.Organization, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (access.Organization, error) {
		return d.createOrganization(t, by, o)
	})
}

func (d *Directory) createOrganization(t *sqlite.Tx, by access.Actor, o access.Organization) (made access.Organization, err error) {
	if err := cmp.Or(requirePlan(t, &o.Plan), requireUniqueOrganization(t, 0, o.ExternalID)); err != nil {
		return made, err
	}
	if made, err = insertOrganization(t, o); err != nil {
		return made, err
	}
	return made, d.hooks.Audit(t, by, made.RowID, access.OrganizationCreated, Target{Type: "organization", ID: made.ID}, map[string]any{
		"name": made.Name, "plan": made.Plan, "external_id": made.ExternalID,
	})
}

// PutOrganization changes the name and the plan of the organization with an external id, and creates the organization if there is
// none. It changes an organization by its id too. If nothing changes, it writes nothing. Faults: NotFound for the id of no
// organization; Invalid if the plan is unknown, or if a creation lacks the name or the plan.
func (d *Directory) PutOrganization(ctx context.Context, by access.Actor, id string, c access.OrganizationChange) (access.Put[access.Organization], error) {
	return sqlite.Returning(ctx, d.file, urgentFor(by.Organization), func(t *sqlite.Tx) (put access.Put[access.Organization], err error) {
		before, err := openOrganization(t, id)
		if fault.KindOf(err) == fault.NotFound && !access.LooksLikeID(id) {
			if err := cmp.Or(t.Withdraws(false), needed(map[string]*string{"name": c.Name, "plan": c.Plan})); err != nil {
				return put, err
			}
			put.Created = true
			put.Is, err = d.createOrganization(t, by, access.Organization{Name: *c.Name, Plan: *c.Plan, ExternalID: &id})
			return put, err
		}
		put.Is = before
		c = access.OrganizationChange{Name: differing(c.Name, before.Name), Plan: differing(c.Plan, before.Plan)}
		if err != nil || c == (access.OrganizationChange{}) {
			return put, err
		}
		put.Is, err = d.updateOrganization(t, by, before, c)
		return put, err
	})
}

// UpdateOrganization changes an organization. A new plan applies from the next request and the next attempt on. Faults:
// NotFound; Invalid if the plan is unknown; Conflict if the external id is taken, and for a closed organization.
func (d *Directory) UpdateOrganization(ctx context.Context, by access.Actor, id string, c access.OrganizationChange) (access.Organization, error) {
	return sqlite.Returning(ctx, d.file, urgentFor(by.Organization), func(t *sqlite.Tx) (access.Organization, error) {
		before, err := openOrganization(t, id)
		if err != nil {
			return before, err
		}
		return d.updateOrganization(t, by, before, c)
	})
}

func (d *Directory) updateOrganization(t *sqlite.Tx, by access.Actor, before access.Organization, c access.OrganizationChange) (changed access.Organization, err error) {
	if err := cmp.Or(t.Withdraws(c.Plan != nil), requirePlan(t, c.Plan), requireUniqueOrganization(t, before.RowID, c.ExternalID)); err != nil {
		return changed, err
	}
	if err := t.ExecGet(&changed, `
		UPDATE organizations SET name = coalesce(?1, name), plan_id = coalesce((SELECT id FROM plans WHERE name = ?2), plan_id),
			external_id = CASE WHEN ?3 IS NULL THEN external_id ELSE nullif(?3, '') END, updated_at = ?4
		WHERE id = ?5 RETURNING `+organizationColumns, c.Name, c.Plan, c.ExternalID, t.Now(), before.RowID); err != nil {
		return changed, err
	}
	d.OutdatePrincipals(t)
	if changed.Plan != before.Plan {
		if err := d.planChanged(t, before.Plan, changed.Plan); err != nil {
			return changed, err
		}
	}
	details := map[string]any{}
	webhook.AddDetail(details, "name", c.Name)
	webhook.AddDetail(details, "external_id", c.ExternalID)
	if c.Plan != nil {
		details["plan"], details["previous_plan"] = *c.Plan, before.Plan
	}
	return changed, d.hooks.Audit(t, by, changed.RowID, access.OrganizationUpdated, Target{Type: "organization", ID: changed.ID}, details)
}

// planChanged makes the writer read again what depends on the plan of an organization. The subscriptions of all organizations are among
// it if one of the two plans has webhooks, and the other one has not.
func (d *Directory) planChanged(t *sqlite.Tx, before, after string) error {
	d.quotas.Forget()
	old, err1 := planNamed(t, before)
	now, err2 := planNamed(t, after)
	if old.Webhooks != now.Webhooks {
		d.hooks.WebhooksChanged(t)
	}
	return cmp.Or(err1, err2)
}

// PrepareDeletion finds an organization that is to be deleted. others selects the names of what the organization with the row id ?1 has
// in other tables. Faults: NotFound; Conflict until its closure is complete, for the actor's own organization, and if it has anything
// but its service account.
func PrepareDeletion(t *sqlite.Tx, by access.Actor, id, others string) (access.Organization, error) {
	found, err := organizationNamed(t, id)
	if err != nil {
		return found, err
	}
	if found.ClosedAt != nil && found.CleanedAt == nil {
		return found, errInUse("organization", "its data is still being removed; try again when its closure is complete")
	}
	if err := refuseOwn(by, found); err != nil {
		return found, err // before a search that may read many events
	}
	instead := map[bool]string{false: "close it instead", true: "it is closed already, and keeps only ids, types and times"}[found.ClosedAt != nil]
	return found, refuseIfHas(t, "organization", instead, `
		SELECT 'members' WHERE EXISTS (
			SELECT 1 FROM memberships m JOIN users u ON u.id = m.user_id WHERE m.organization_id = ?1 AND u.service_of IS NULL)
		UNION ALL SELECT 'access tokens' WHERE EXISTS (SELECT 1 FROM access_tokens WHERE organization_id = ?1)
		UNION ALL SELECT 'API keys' WHERE EXISTS (SELECT 1 FROM api_keys WHERE organization_id = ?1)
		UNION ALL `+others, found.RowID)
}

// RemoveOrganization deletes an organization with its service account, which has no keys.
func (d *Directory) RemoveOrganization(t *sqlite.Tx, row int64) error {
	for _, ofService := range []string{
		"DELETE FROM memberships WHERE user_id = (SELECT id FROM users WHERE service_of = ?)", "DELETE FROM users WHERE service_of = ?",
	} {
		if err := t.Exec(ofService, row); err != nil {
			return err
		}
	}
	d.OutdatePrincipals(t) // portal sessions of its service account
	return t.Exec("DELETE FROM organizations WHERE id = ?", row)
}

// requireUniqueOrganization refuses an external id that another organization has. except is the row id of an organization
// that may have it; 0 means none. A nil or empty external id matches nothing.
func requireUniqueOrganization(t *sqlite.Tx, except int64, externalID *string) error {
	return RefuseTaken(t, "organization", "external_id",
		"SELECT public_id FROM organizations WHERE external_id = ? AND id <> ?", externalID, except)
}

// requirePlan refuses the name of an unknown plan. Nil names none.
func requirePlan(t *sqlite.Tx, name *string) error {
	if name == nil {
		return nil
	}
	_, err := planNamed(t, *name)
	return unknownField(err, "plan", "plan")
}

// organizationNamed returns the organization with an id or an external id. Faults: NotFound.
func organizationNamed(from sqlite.Reader, id string) (access.Organization, error) {
	return sqlite.One[access.Organization](from, "organization", selectOrganizations+publicid.WhereNamed(access.OrganizationID, id), id)
}

// openOrganization is organizationNamed for a change. Faults: also Conflict for a closed organization.
func openOrganization(t *sqlite.Tx, id string) (access.Organization, error) {
	o, err := organizationNamed(t, id)
	if err == nil && o.ClosedAt != nil {
		err = quota.ErrClosed
	}
	return o, err
}

func insertOrganization(t *sqlite.Tx, o access.Organization) (made access.Organization, err error) {
	err = t.ExecGet(&made, `
		INSERT INTO organizations (public_id, name, plan_id, external_id, created_at, updated_at)
		VALUES (?1, ?2, (SELECT id FROM plans WHERE name = ?3), nullif(?4, ''), ?5, ?5) RETURNING `+organizationColumns,
		publicid.New(access.OrganizationID), o.Name, o.Plan, o.ExternalID, t.Now())
	return made, err
}
