package storage

import (
	"database/sql"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The rules about who may receive audit events are in package audit. They use the actor's permissions at the time of the transaction.

// authorizeUpdate refuses a change that needs audit:read if the actor lacks it.
func authorizeUpdate(t *tx, by access.Actor, sub webhook.Subscription, c webhook.SubscriptionChange) error {
	refusal := audit.UpdateRefusal(sub, c)
	if refusal == nil {
		return nil
	}
	if canRead, err := principal.MayReadAudit(t.Tx, by.Authority); err != nil || canRead {
		return err
	}
	return refusal
}

// excludedTypes returns, as a JSON array, the event types that a subscription never receives, even if it wants them.
func excludedTypes(sub webhook.Subscription) string {
	return history.HiddenTypes(!audit.Receives(sub))
}

// losesAuditEvents reports whether a change makes a subscription stop receiving audit events, so that the pending ones are dropped.
func losesAuditEvents(sub webhook.Subscription, c webhook.SubscriptionChange) bool {
	after := sub
	if c.EventTypes != nil {
		after.EventTypes = *c.EventTypes
	}
	if c.AuditEvents != nil {
		after.AuditEvents = *c.AuditEvents
	}
	return audit.Receives(sub) && !audit.Receives(after)
}

// dropPendingAudit drops the pending deliveries of audit events to a subscription.
func (t *tx) dropPendingAudit(sub *webhook.Subscription) error {
	n, err := t.dropDeliveries(sub.RowID, `
		SELECT d.id FROM deliveries d INDEXED BY deliveries_pending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = :subscription AND d.state = `+delivery.Pending+` AND e.type IN (SELECT value FROM json_each(:types))
		UNION ALL
		SELECT d.id FROM deliveries d INDEXED BY deliveries_sending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = :subscription AND `+delivery.SendingOn+` AND e.type IN (SELECT value FROM json_each(:types))`,
		sql.Named("subscription", sub.RowID), sql.Named("types", sqlite.TextList(access.AuditTypes())))
	if err != nil {
		return fmt.Errorf("drop pending audit events: %w", err)
	}
	sub.PendingDeliveries -= n
	t.announceChange(sub.RowID)
	return nil
}
