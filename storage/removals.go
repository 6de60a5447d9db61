package storage

import (
	"context"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// CloseOrganization ends an organization: its credentials are refused from the next request on, nothing is sent for it any more,
// and its name and external id are removed. Its data is removed soon after; see access.Closure. The operation is idempotent. Faults:
// NotFound; Conflict for the actor's own organization, and if no active operator would be left.
func (s *Store) CloseOrganization(ctx context.Context, by access.Actor, id string) (access.Closure, error) {
	return sqlite.Returning(ctx, s.File, sqlite.Work{Payer: by.Organization, Urgent: true, Reserve: true}, func(t *sqlite.Tx) (access.Closure, error) {
		row, c, err := s.prepareClosure(t, by, id)
		if err != nil || c.ClosedAt != nil {
			return c, err
		}
		if err := s.Directory.MarkClosed(t, row); err != nil {
			return c, err
		}
		c.ClosedAt = new(t.Now())
		s.memory.Quotas.Forget()
		s.Queue.AllSubscriptionsChanged(t)
		s.cleaner.CleanAfter(t)
		return c, s.Queue.Audit(t, by, row, access.OrganizationClosed, audit.Target{Type: "organization", ID: c.ID}, map[string]any{
			"api_keys": c.APIKeys, "access_tokens": c.AccessTokens, "members": c.Members, "subscriptions": c.Subscriptions,
			"pending_deliveries": c.PendingDeliveries,
		})
	})
}

// CountClosure says what CloseOrganization would end. Faults: as CloseOrganization.
func (s *Store) CountClosure(ctx context.Context, by access.Actor, id string) (access.Closure, error) {
	return sqlite.Returning(ctx, s.File, sqlite.Work{Payer: by.Organization}, func(t *sqlite.Tx) (access.Closure, error) {
		_, c, err := s.prepareClosure(t, by, id)
		return c, err
	})
}

func (s *Store) prepareClosure(t *sqlite.Tx, by access.Actor, id string) (row int64, c access.Closure, err error) {
	row, c, err = directory.PrepareClosure(t, by, id)
	if err == nil && c.ClosedAt == nil {
		c.Subscriptions, c.PendingDeliveries, err = s.Subscriptions.Count(t, row)
	}
	return row, c, err
}

// DeleteOrganization deletes an empty organization. Its audit log moves to the actor's LogOrganization. Faults: NotFound;
// Conflict while the organization has anything but its service account, even revoked or removed, or more than 10,000 audit events, for
// which others would wait; until its closure is complete; and for the actor's own organization.
func (s *Store) DeleteOrganization(ctx context.Context, by access.Actor, id string) error {
	return s.File.Write(ctx, sqlite.Work{Payer: by.Organization}, func(t *sqlite.Tx) error {
		o, err := directory.PrepareDeletion(t, by, id, `
			SELECT 'webhook subscriptions' WHERE EXISTS (SELECT 1 FROM subscriptions WHERE organization_id = ?1)
			UNION ALL SELECT 'events' WHERE EXISTS (SELECT 1 FROM events e WHERE e.organization_id = ?1 AND NOT `+anAuditEvent+`
				AND e.id < coalesce((SELECT id FROM events WHERE organization_id = ?1 ORDER BY id LIMIT 1 OFFSET 10000), 1 << 62))
			UNION ALL SELECT 'more than 10,000 audit events' WHERE EXISTS (SELECT 1 FROM events WHERE organization_id = ?1 LIMIT 1 OFFSET 10000)
				OR EXISTS (SELECT 1 FROM audit_events WHERE organization_id = ?1 LIMIT 1 OFFSET 10000)`)
		if err != nil {
			return err
		}
		// Nobody has received its published audit events.
		if err := t.Exec("DELETE FROM events AS e WHERE e.organization_id = ? AND "+anAuditEvent, o.RowID); err != nil {
			return err
		}
		if err := t.Exec("UPDATE audit_events SET organization_id = ? WHERE organization_id = ?", by.LogOrganization(), o.RowID); err != nil {
			return err
		}
		if err := s.Directory.RemoveOrganization(t, o.RowID); err != nil {
			return err
		}
		s.memory.Quotas.Remove(o.RowID)
		return s.Queue.Audit(t, by, 0, access.OrganizationDeleted, audit.Target{Type: "organization", ID: o.ID}, nil)
	})
}

// EraseUser removes the personal data of a user: name, e-mail address and external id. All credentials of the user are refused from the
// next request on, and nobody can use the user again. The copies of the data in the history are removed soon after; see access.Erasure.
// The operation is idempotent. Faults: NotFound; Conflict for the built-in user, for a service account and for the last active operator.
func (s *Store) EraseUser(ctx context.Context, by access.Actor, id string) (access.Erasure, error) {
	return sqlite.Returning(ctx, s.File, sqlite.Work{Payer: by.Organization, Urgent: true, Reserve: true}, func(t *sqlite.Tx) (access.Erasure, error) {
		u, e, err := directory.PrepareErasure(t, id)
		if err != nil || u.ErasedAt != nil {
			return e, err
		}
		if err := s.Directory.MarkErased(t, u.RowID); err != nil {
			return e, err
		}
		e.ErasedAt = new(t.Now())
		if err := s.cleaner.UserErased(t, u); err != nil {
			return e, err
		}
		return e, s.Queue.Audit(t, by, 0, access.UserErased, audit.Target{Type: "user", ID: u.ID}, map[string]any{
			"api_keys": e.APIKeys, "access_tokens": e.AccessTokens, "memberships": e.Memberships,
		})
	})
}

// anAuditEvent is true for an event e that publishes an audit event: nobody else may publish one of these types. It does not count as
// something that an organization has, because the creation of the organization published one.
var anAuditEvent = "e.type IN ('" + strings.Join(access.AuditTypes(), "', '") + "')"
