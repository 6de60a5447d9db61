package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// target names what an audit event is about.
type target struct {
	Type string `json:"type"`
	ID   string `json:"id"`

	subscription int64 // row id, where it is one
}

// audit writes a line of the log and publishes it as an event, in the transaction of the change that it tells of.
// organization 0 is the actor's own. Details must not hold a secret.
func (s *Store) audit(t *tx, by access.Actor, organization int64, eventType string, about target, details map[string]any) error {
	if !access.IsAuditType(eventType) {
		return fmt.Errorf("audit event type %q is not in the list of package access, so it is not reserved", eventType)
	}
	if organization == 0 {
		organization = by.Organization
	}
	if details == nil {
		details = map[string]any{}
	}
	text, err := json.Marshal(details)
	if err != nil {
		return fmt.Errorf("encode audit details: %w", err)
	}
	if _, err := t.exec(`
		INSERT INTO audit_events (organization_id, type, actor_type, actor_id, actor_name, target_type, target_id, ip, request_id, at, details)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		organization, eventType, by.Type, by.ID, by.Name, about.Type, about.ID, by.IP, by.RequestID, t.now, string(text)); err != nil {
		return fmt.Errorf("write audit event: %w", err)
	}
	data, err := json.Marshal(struct {
		Actor   auditActor      `json:"actor"`
		Target  target          `json:"target"`
		Details json.RawMessage `json:"details"`
	}{newAuditActor(by), about, text})
	if err != nil {
		return fmt.Errorf("encode audit event: %w", err)
	}
	id, err := t.organization(organization)
	if err != nil {
		return err
	}
	_, err = s.publish(t, organization, id, webhook.NewEvent{Type: eventType, Data: data}, about.subscription)
	return err
}

// auditActor is the actor as subscribers see it; the address it came from stays in the log.
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

// AuditEvents lists the audit log of an organization, newest first.
func (s *Store) AuditEvents(ctx context.Context, organization int64, f access.AuditFilter) ([]access.AuditEvent, error) {
	events := []access.AuditEvent{}
	err := s.logs.list(ctx, &events, `
		SELECT a.id, a.type, a.actor_type, a.actor_id, a.actor_name, a.target_type, a.target_id, a.ip, a.request_id, a.at,
		       a.details, o.public_id AS organization_public_id
		FROM audit_events a JOIN organizations o ON o.id = a.organization_id
		WHERE a.organization_id = ?1 AND a.id < ?2
		  AND (?3 = '' OR a.type = ?3)
		  AND (?4 = '' OR a.actor_id = ?4 OR a.actor_type = ?4)
		  AND a.at >= ?5 AND a.at < ?6
		ORDER BY a.id DESC LIMIT ?7`,
		organization, from(f.Before), f.Type, f.Actor, f.Since, from(f.Until), f.Limit)
	for i := range events {
		events[i].ID = s.ids.id(auditID, events[i].RowID, events[i].At)
	}
	return events, err
}
