package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
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
	by, err := t.present(by)
	if err != nil {
		return err
	}
	if q, err := t.quota(organization); err != nil {
		return err
	} else if q.Closed {
		by, details = auditOfClosed(by, eventType, details)
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
	if err := s.trackApplied(t, by, organization, eventType, about, details); err != nil {
		return err
	}
	t.countStored(organization, storedPerAuditLine+len(text))
	data, err := json.Marshal(publishedData{newAuditActor(by), about, text})
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

// publishedData is the data of the event that publishes an audit event.
type publishedData struct {
	Actor   auditActor      `json:"actor"`
	Target  auditTarget     `json:"target"`
	Details json.RawMessage `json:"details"`
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

// AuditPage lists the audit log of an organization, or of access.AllOrganizations, newest first. Faults: Unavailable if too many
// reads of the organization's logs are running.
func (s *Store) AuditPage(ctx context.Context, organization int64, f access.AuditFilter) (page access.AuditPage, err error) {
	list := scan.List[access.AuditEvent]{
		Logs: s.logs, Table: "audit_events a", Index: "audit_events_by_organization",
		Columns: `
			a.id, a.type, a.actor_type, a.actor_id, a.actor_name, a.target_type, a.target_id, a.ip, a.request_id, a.at, a.details,
			o.public_id AS organization_public_id, o.name AS organization_name`,
		Joins: "CROSS JOIN organizations o ON o.id = a.organization_id",
		Where: "(?5 = '' OR a.type = ?5) AND (?6 = '' OR a.actor_id = ?6 OR a.actor_type = ?6) AND a.at >= ?7 AND a.at < ?8 AND (?9 = '[]' OR a.target_id IN (SELECT value FROM json_each(?9)))",
	}
	page.Events, page.Next, err = list.Page(ctx, scan.Query{
		Organization: organization, Before: f.Before, Limit: f.Limit,
		Filtered: f.Type+f.Actor != "" || len(f.Targets) > 0 || f.Since != 0 || f.Until != 0,
		Args:     []any{f.Type, f.Actor, f.Since, scan.UpperBound(f.Until), textArray(f.Targets)},
	})
	for i, e := range page.Events {
		page.Events[i].ID = s.ids.ID(access.AuditEventID, e.RowID, e.At)
	}
	return page, err
}

// AuditTargets returns what a text may name in the audit log of an organization: a public id or the name of a plan, a role or a
// permission, or the public id of what has this external id. Everywhere says that the caller may read all organizations and users.
// Several organizations may use the same external id for their subscriptions, so access.AllOrganizations finds no subscription.
func (s *Store) AuditTargets(ctx context.Context, organization int64, text string, everywhere bool) ([]string, error) {
	targets := []string{text}
	if access.LooksLikeID(text) {
		return targets, nil
	}
	var found []string
	err := s.list(ctx, &found, `
		SELECT public_id FROM organizations WHERE external_id = ?1 AND (?3 OR id = ?2)
		UNION ALL SELECT public_id FROM users WHERE external_id = ?1 AND ?3
		UNION ALL SELECT public_id FROM subscriptions INDEXED BY subscriptions_by_external_id
		WHERE external_id = ?1 AND external_id IS NOT NULL AND organization_id = ?2`, text, organization, everywhere)
	return append(targets, found...), err
}

// AuditEvent returns one line of the audit log of an organization. Faults: NotFound; Unavailable if too many reads of the
// organization's logs are running.
func (s *Store) AuditEvent(ctx context.Context, organization int64, id string) (access.AuditEvent, error) {
	row, _, ok := s.ids.Row(access.AuditEventID, id)
	if !ok {
		return access.AuditEvent{}, fault.Missing("audit event")
	}
	page, err := s.AuditPage(ctx, organization, access.AuditFilter{Before: row + 1, Limit: 1})
	if err != nil {
		return access.AuditEvent{}, err
	}
	if len(page.Events) == 0 || page.Events[0].ID != id {
		return access.AuditEvent{}, fault.Missing("audit event")
	}
	return page.Events[0], nil
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
