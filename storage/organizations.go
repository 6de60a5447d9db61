package storage

import (
	"context"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const selectOrganizations = `
	SELECT o.id, o.public_id, o.name, p.name AS plan, o.external_id, o.created_at, o.updated_at
	FROM organizations o JOIN plans p ON p.id = o.plan_id`

// Organizations lists the organizations, newest first.
func (s *Store) Organizations(ctx context.Context, before int64, limit int) ([]access.Organization, error) {
	organizations := []access.Organization{}
	err := s.list(ctx, &organizations, selectOrganizations+" WHERE o.id < ? ORDER BY o.id DESC LIMIT ?", scan.UpperBound(before), limit)
	return organizations, err
}

// Organization returns one organization. Faults: NotFound.
func (s *Store) Organization(ctx context.Context, id string) (access.Organization, error) {
	var o access.Organization
	err := s.get(ctx, &o, selectOrganizations+" WHERE o.public_id = ?", id)
	return o, missing(err, "organization")
}

// OrganizationByID returns the organization that a request names to act in. Faults: NotFound.
func (s *Store) OrganizationByID(ctx context.Context, id string) (access.Organization, error) {
	return s.Organization(ctx, id)
}

// CreateOrganization makes an organization on the plan that o names. Faults: Invalid where the plan is unknown, Conflict
// where the external id is taken.
func (s *Store) CreateOrganization(ctx context.Context, by access.Actor, o access.Organization) (access.Organization, error) {
	return returning(ctx, s.workFor(by.Organization), func(t *tx) (made access.Organization, err error) {
		plan, err := planRow(t, o.Plan)
		if err != nil {
			return made, unknown(err, "plan", "plan")
		}
		if err := freeOrganization(t, 0, o.ExternalID); err != nil {
			return made, err
		}
		row, err := insertOrganization(t, o, plan)
		if sqlite.IsTaken(err) {
			return made, alreadyExists("organization", "external_id")
		}
		if err != nil {
			return made, err
		}
		if made, err = organization(t, row); err != nil {
			return made, err
		}
		return made, s.audit(t, by, row, access.OrganizationCreated, auditTarget{Type: "organization", ID: made.ID}, map[string]any{
			"name": made.Name, "plan": made.Plan, "external_id": made.ExternalID,
		})
	})
}

// UpdateOrganization changes an organization; another plan holds from the next request and the next attempt on. Faults:
// NotFound, Invalid where the plan is unknown, Conflict where the external id is taken.
func (s *Store) UpdateOrganization(ctx context.Context, by access.Actor, id string, c access.OrganizationChange) (access.Organization, error) {
	return returning(ctx, s.workFor(by.Organization).first(), func(t *tx) (changed access.Organization, err error) {
		row, err := organizationRow(t, id)
		if err != nil {
			return changed, err
		}
		var plan *int64
		if c.Plan != nil {
			found, err := planRow(t, *c.Plan)
			if err != nil {
				return changed, unknown(err, "plan", "plan")
			}
			plan = &found
		}
		if err := freeOrganization(t, row, c.ExternalID); err != nil {
			return changed, err
		}
		if _, err := t.Exec(`
			UPDATE organizations SET name = coalesce(?1, name), plan_id = coalesce(?2, plan_id),
				external_id = CASE WHEN ?3 IS NULL THEN external_id ELSE nullif(?3, '') END, updated_at = ?4
			WHERE id = ?5`, c.Name, plan, c.ExternalID, t.Now(), row); sqlite.IsTaken(err) {
			return changed, alreadyExists("organization", "external_id")
		} else if err != nil {
			return changed, err
		}
		s.outdatePrincipals(t)
		if c.Plan != nil {
			t.quotas.forget()
			s.announceChange(t)
		}
		if changed, err = organization(t, row); err != nil {
			return changed, err
		}
		return changed, s.audit(t, by, row, access.OrganizationUpdated, auditTarget{Type: "organization", ID: id}, changesOfOrganization(c))
	})
}

func changesOfOrganization(c access.OrganizationChange) map[string]any {
	details := map[string]any{}
	if c.Name != nil {
		details["name"] = *c.Name
	}
	if c.Plan != nil {
		details["plan"] = *c.Plan
	}
	if c.ExternalID != nil {
		details["external_id"] = *c.ExternalID
	}
	return details
}

// DeleteOrganization removes an organization. Its audit log is not lost: it goes to the actor's LogOrganization.
// Faults: NotFound; Conflict while there is anything else of it, be it revoked or removed, and for the actor's own.
func (s *Store) DeleteOrganization(ctx context.Context, by access.Actor, id string) error {
	return s.workFor(by.Organization).change(ctx, func(t *tx) error {
		row, err := organizationRow(t, id)
		if err != nil {
			return err
		}
		if row == by.Organization || row == by.LogOrganization() {
			return fault.New(fault.Conflict, "in_use", "You act in this organization, or your credential belongs to it; act in another with a credential of another.")
		}
		if err := refuseDependents(t, row); err != nil {
			return err
		}
		if err := moveHistory(t, row, by.LogOrganization()); err != nil {
			return err
		}
		if _, err := t.Exec("DELETE FROM organizations WHERE id = ?", row); sqlite.IsReferenced(err) {
			return dependedOn("organization", "something still depends on it")
		} else if err != nil {
			return err
		}
		t.quotas.remove(row)
		return s.audit(t, by, 0, access.OrganizationDeleted, auditTarget{Type: "organization", ID: id}, nil)
	})
}

// anAuditEvent says of an event e that it is the published form of a line of the audit log.
const anAuditEvent = `
	EXISTS (SELECT 1 FROM audit_events a WHERE a.organization_id = e.organization_id AND a.type = e.type AND a.at = e.created_at)`

// refuseDependents names all that keeps an organization from being removed. Published audit events are not among it:
// the organization's own creation is one.
func refuseDependents(t *tx, organization int64) error {
	found := []string{}
	if err := t.List(&found, `
		SELECT 'members' WHERE EXISTS (SELECT 1 FROM memberships WHERE organization_id = ?1)
		UNION ALL SELECT 'access tokens' WHERE EXISTS (SELECT 1 FROM access_tokens WHERE organization_id = ?1)
		UNION ALL SELECT 'API keys' WHERE EXISTS (SELECT 1 FROM api_keys WHERE organization_id = ?1)
		UNION ALL SELECT 'webhook subscriptions' WHERE EXISTS (SELECT 1 FROM subscriptions WHERE organization_id = ?1)
		UNION ALL SELECT 'events' WHERE EXISTS (SELECT 1 FROM events e WHERE e.organization_id = ?1 AND NOT `+anAuditEvent+`)`,
		organization); err != nil {
		return err
	}
	if len(found) > 0 {
		return dependedOn("organization", "it has "+strings.Join(found, ", "))
	}
	return nil
}

// moveHistory gives the audit log of an organization to another and drops its published form, which nobody received.
func moveHistory(t *tx, organization, to int64) error {
	if _, err := t.Exec("DELETE FROM events AS e WHERE e.organization_id = ? AND "+anAuditEvent, organization); err != nil {
		return err
	}
	_, err := t.Exec("UPDATE audit_events SET organization_id = ? WHERE organization_id = ?", to, organization)
	return err
}

// freeOrganization refuses an external id that another organization than the given has; 0 is none. Nil, and empty for no
// external id, match nothing.
func freeOrganization(t *tx, except int64, externalID *string) error {
	return refuseIf(t, alreadyExists("organization", "external_id"),
		"SELECT 1 FROM organizations WHERE external_id = ? AND id <> ?", externalID, except)
}

// organization reads an organization inside a transaction.
func organization(t *tx, row int64) (access.Organization, error) {
	var o access.Organization
	err := t.Get(&o, selectOrganizations+" WHERE o.id = ?", row)
	return o, missing(err, "organization")
}

// organizationRow returns the row id of an organization. Faults: NotFound.
func organizationRow(t *tx, id string) (row int64, err error) {
	err = t.Get(&row, "SELECT id FROM organizations WHERE public_id = ?", id)
	return row, missing(err, "organization")
}

func insertOrganization(t *tx, o access.Organization, plan int64) (int64, error) {
	row, err := t.Insert(`
		INSERT INTO organizations (public_id, name, plan_id, external_id, created_at, updated_at)
		VALUES (?1, ?2, ?3, nullif(?4, ''), ?5, ?5)`, publicid.New(access.OrganizationID), o.Name, plan, o.ExternalID, t.Now())
	// SQLite gives a row id again once its row is gone, by a deletion or a rollback.
	delete(t.organizations, row)
	return row, err
}
