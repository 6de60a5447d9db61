package queue

import (
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Audit writes an audit event to the log and publishes it, in the transaction of the change. organization 0 stands for the whole
// instance, see Actor.LogOrganization. details must not contain a secret.
func (q *Queue) Audit(now *sqlite.Tx, by access.Actor, organization int64, eventType string, about audit.Target, details map[string]any) error {
	return q.o.Memory.with(now).audit(by, organization, eventType, about, details)
}

func (t *tx) audit(by access.Actor, organization int64, eventType string, about audit.Target, details map[string]any) error {
	if !access.IsAuditType(eventType) {
		return fmt.Errorf("audit event type %q is not in the list of package access, so it is not reserved", eventType)
	}
	if organization == 0 {
		organization = by.LogOrganization()
	}
	by, err := directory.ActorForLog(t.Tx, by)
	if err != nil {
		return err
	}
	has, err := t.Quotas.Of(t.Tx, organization)
	if err != nil {
		return err
	}
	if has.Closed {
		by, details = audit.OfClosed(by, eventType, details)
	}
	if details == nil {
		details = map[string]any{}
	}
	text, err := json.Marshal(details)
	if err != nil {
		return fmt.Errorf("encode audit details: %w", err)
	}
	if err := t.Exec(`
		INSERT INTO audit_events (organization_id, type, actor_type, actor_id, actor_name, target_type, target_id, ip, request_id, at, details)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		organization, eventType, by.Type, by.ID, by.Name, about.Type, about.ID, by.IP, by.RequestID, t.Now(), string(text)); err != nil {
		return fmt.Errorf("write audit event: %w", err)
	}
	if err := directory.TrackApplied(t.Tx, by, has.ID, eventType, about, details); err != nil {
		return err
	}
	t.Quotas.Count(t.Tx, organization, quota.PerAuditEvent+len(text))
	if t.OnReserve() {
		return nil // the deliveries to a hundred subscriptions would use up the reserve after five revocations
	}
	data, err := json.Marshal(audit.Data{Actor: audit.NewActor(by), Target: about, Details: text})
	if err != nil {
		return fmt.Errorf("encode audit event: %w", err)
	}
	t.wakeReaders(organization)
	_, err = t.publish(organization, webhook.NewEvent{Type: eventType, Data: data}, about.Subscription)
	return err
}

// AuditCost returns about how many rows a write with an audit event of this type writes. A customer may have thousands of subscriptions
// that want it.
func (q *Queue) AuditCost(now *sqlite.Tx, organization int64, eventType string) (int, error) {
	receivers, err := q.o.Memory.Fanout.Receivers(now, organization, 0, eventType)
	return sqlite.UsualCost + len(receivers), err
}
