package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
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
	end, err := s.logs.take(ctx, organization)
	if err != nil {
		return page, err
	}
	defer end()
	q := auditQuery{s.logs, organization, f, &page.Events}
	high := position{Row: from(f.Before)}
	var next position
	if f.Type+f.Actor != "" || f.Since != 0 || f.Until != 0 {
		next, err = s.logs.walk(ctx, high, q)
	} else {
		_, _, err = s.logs.slice(ctx, high, whole{q}, &search{})
	}
	for i, e := range page.Events {
		page.Events[i].ID = s.ids.id(access.AuditEventID, e.RowID, e.At)
	}
	page.Next = next.Row
	return page, err
}

// auditQuery is a search of the audit log of an organization.
type auditQuery struct {
	logs         *logReader
	organization int64
	filter       access.AuditFilter
	events       *[]access.AuditEvent
}

// bound implements slicer.
func (q auditQuery) bound(ctx context.Context, high position, rows int) (low position, err error) {
	err = q.logs.pool.Get(ctx, &low, `
		SELECT a.id FROM audit_events a INDEXED BY audit_events_by_organization
		WHERE a.organization_id = ? AND a.id < ? ORDER BY a.id DESC LIMIT 1 OFFSET ?`, q.organization, high.Row, rows-1)
	return low, err
}

// read implements slicer.
func (q auditQuery) read(ctx context.Context, low, high position) (full bool, err error) {
	var batch []access.AuditEvent
	err = q.logs.pool.List(ctx, &batch, `
		SELECT a.id, a.type, a.actor_type, a.actor_id, a.actor_name, a.target_type, a.target_id, a.ip, a.request_id, a.at,
		       a.details, o.public_id AS organization_public_id
		FROM audit_events a JOIN organizations o ON o.id = a.organization_id
		WHERE a.organization_id = ?1 AND a.id >= ?2 AND a.id < ?3
		  AND (?4 = '' OR a.type = ?4)
		  AND (?5 = '' OR a.actor_id = ?5 OR a.actor_type = ?5)
		  AND a.at >= ?6 AND a.at < ?7
		ORDER BY a.id DESC LIMIT ?8`,
		q.organization, low.Row, high.Row, q.filter.Type, q.filter.Actor, q.filter.Since, from(q.filter.Until), q.filter.Limit-len(*q.events))
	*q.events = append(*q.events, batch...)
	return len(*q.events) >= q.filter.Limit, err
}
