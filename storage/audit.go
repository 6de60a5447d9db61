package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// auditTarget is the object of an audit event.
type auditTarget struct {
	Type string `json:"type"`
	ID   string `json:"id"`

	subscription int64 // row id if the target is a subscription, otherwise 0
}

// audit writes an audit event to the log and publishes it, in the transaction of the change. organization 0 stands for
// the whole instance, see Actor.LogOrganization. details must not contain a secret.
func (s *Store) audit(t *tx, by access.Actor, organization int64, eventType string, about auditTarget, details map[string]any) error {
	if !access.IsAuditType(eventType) {
		return fmt.Errorf("audit event type %q is not in the list of package access, so it is not reserved", eventType)
	}
	if organization == 0 {
		organization = by.LogOrganization()
	}
	if details == nil {
		details = map[string]any{}
	}
	text, err := json.Marshal(details)
	if err != nil {
		return fmt.Errorf("encode audit details: %w", err)
	}
	if _, err := t.Exec(`
		INSERT INTO audit_events (organization_id, type, actor_type, actor_id, actor_name, target_type, target_id, ip, request_id, at, details)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		organization, eventType, by.Type, by.ID, by.Name, about.Type, about.ID, by.IP, by.RequestID, t.Now(), string(text)); err != nil {
		return fmt.Errorf("write audit event: %w", err)
	}
	t.countStored(organization, storedPerAuditLine+len(text))
	data, err := json.Marshal(struct {
		Actor   auditActor      `json:"actor"`
		Target  auditTarget     `json:"target"`
		Details json.RawMessage `json:"details"`
	}{newAuditActor(by), about, text})
	if err != nil {
		return fmt.Errorf("encode audit event: %w", err)
	}
	id, err := t.organizationID(organization)
	if err != nil {
		return err
	}
	_, err = s.publish(t, organization, id, webhook.NewEvent{Type: eventType, Data: data}, about.subscription)
	return err
}

// auditActor is the actor as subscribers see it. The IP address is only in the log.
type auditActor struct {
	Type string  `json:"type"`
	ID   *string `json:"id"` // null for the system
	Name string  `json:"name"`
}

func newAuditActor(by access.Actor) auditActor {
	a := auditActor{Type: by.Type, Name: by.Name}
	if by.ID != "" {
		a.ID = &by.ID
	}
	return a
}

// AuditPage lists the audit log of an organization, newest first. Faults: Unavailable if too many reads of its logs are
// running.
func (s *Store) AuditPage(ctx context.Context, organization int64, f access.AuditFilter) (access.AuditPage, error) {
	page := access.AuditPage{Events: []access.AuditEvent{}}
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return page, err
	}
	defer end()
	q := auditQuery{s.logs, organization, f, &page.Events}
	high := scan.Position{Row: scan.UpperBound(f.Before)}
	var next scan.Position
	if f.Type+f.Actor != "" || f.Since != 0 || f.Until != 0 {
		next, err = s.logs.Walk(ctx, high, q)
	} else {
		err = s.logs.ReadAll(ctx, high, q)
	}
	for i, e := range page.Events {
		page.Events[i].ID = s.ids.ID(access.AuditEventID, e.RowID, e.At)
	}
	page.Next = next.Row
	return page, err
}

// auditQuery is a search of the audit log of an organization.
type auditQuery struct {
	logs         *scan.Reader
	organization int64
	filter       access.AuditFilter
	events       *[]access.AuditEvent
}

// Bound implements scan.Search.
func (q auditQuery) Bound(ctx context.Context, high scan.Position, rows int) (low scan.Position, err error) {
	err = q.logs.Pool.Get(ctx, &low, `
		SELECT a.id FROM audit_events a INDEXED BY audit_events_by_organization
		WHERE a.organization_id = ? AND a.id < ? ORDER BY a.id DESC LIMIT 1 OFFSET ?`, q.organization, high.Row, rows-1)
	return low, err
}

// Read implements scan.Search.
func (q auditQuery) Read(ctx context.Context, low, high scan.Position) (full bool, err error) {
	var batch []access.AuditEvent
	err = q.logs.Pool.List(ctx, &batch, `
		SELECT a.id, a.type, a.actor_type, a.actor_id, a.actor_name, a.target_type, a.target_id, a.ip, a.request_id, a.at,
		       a.details, o.public_id AS organization_public_id
		FROM audit_events a JOIN organizations o ON o.id = a.organization_id
		WHERE a.organization_id = ?1 AND a.id >= ?2 AND a.id < ?3
		  AND (?4 = '' OR a.type = ?4)
		  AND (?5 = '' OR a.actor_id = ?5 OR a.actor_type = ?5)
		  AND a.at >= ?6 AND a.at < ?7
		ORDER BY a.id DESC LIMIT ?8`,
		q.organization, low.Row, high.Row, q.filter.Type, q.filter.Actor, q.filter.Since, scan.UpperBound(q.filter.Until), q.filter.Limit-len(*q.events))
	*q.events = append(*q.events, batch...)
	return len(*q.events) >= q.filter.Limit, err
}

// anAuditEvent is true for an event e that publishes an audit event.
const anAuditEvent = `
	EXISTS (SELECT 1 FROM audit_events a WHERE a.organization_id = e.organization_id AND a.type = e.type AND a.at = e.created_at)`

// dependents names what an organization has besides rows of the directory. Published audit events do not count: the creation of
// the organization published one.
func dependents(t *sqlite.Tx, organization int64) (found []string, err error) {
	err = t.List(&found, `
		SELECT 'webhook subscriptions' WHERE EXISTS (SELECT 1 FROM subscriptions WHERE organization_id = ?1)
		UNION ALL SELECT 'events' WHERE EXISTS (SELECT 1 FROM events e WHERE e.organization_id = ?1 AND NOT `+anAuditEvent+`)`,
		organization)
	return found, err
}

// moveHistory moves the audit log of an organization to another one, and deletes its published audit events, which nobody
// received.
func moveHistory(t *sqlite.Tx, organization, to int64) error {
	if _, err := t.Exec("DELETE FROM events AS e WHERE e.organization_id = ? AND "+anAuditEvent, organization); err != nil {
		return err
	}
	_, err := t.Exec("UPDATE audit_events SET organization_id = ? WHERE organization_id = ?", to, organization)
	return err
}
