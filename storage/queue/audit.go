package queue

import (
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// maxApplied is how many events and deliveries a document may make, about. They take half a second, and everybody waits for them.
const maxApplied = 20_000

// Audit writes an audit event to the log and publishes it, in the transaction of the change. organization 0 stands for the whole
// instance, see Actor.LogOrganization. details must not contain a secret.
func (q *Queue) Audit(now *sqlite.Tx, by access.Actor, organization int64, eventType string, about audit.Target, details map[string]any) error {
	return q.o.Memory.with(now).audit(by, organization, eventType, about, details)
}

func (t *tx) audit(by access.Actor, organization int64, eventType string, about audit.Target, details map[string]any) error {
	if organization == 0 {
		organization = by.LogOrganization()
	}
	if by.Applying && t.Delays() > maxApplied {
		return fault.New(fault.Invalid, access.CodeTooManyChanges, "The audit events of the changes before this one make more than %d "+
			"deliveries: each goes to all subscriptions that want it. Nothing was changed. Apply the document in parts.", maxApplied)
	}
	has, err := t.Quotas.Of(t.Tx, organization)
	if err != nil {
		return err
	}
	event, err := audit.Log{Organization: organization, ID: has.ID, Closed: has.Closed}.Write(t.Tx, by, eventType, about, details)
	if err != nil {
		return err
	}
	t.Quotas.Count(t.Tx, organization, quota.PerAuditEvent+len(event.Details))
	if t.OnReserve() {
		return nil // the deliveries to a hundred subscriptions would use up the reserve after five revocations
	}
	data, err := json.Marshal(event)
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
