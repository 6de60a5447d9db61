package storage

import (
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The rules about who may receive audit events are in package audit. They use the actor's permissions at the time of the transaction.

// canReadAudit reports whether the actor has audit:read now.
func canReadAudit(t *tx, by access.Actor) (bool, error) {
	permissions, err := principal.PermissionsOf(t.Tx, by.Authority)
	return err == nil && permissions.Has(access.AuditRead), err
}

// authorizeUpdate refuses a change that needs audit:read if the actor lacks it.
func authorizeUpdate(t *tx, by access.Actor, sub webhook.Subscription, c webhook.SubscriptionChange) error {
	refusal := audit.UpdateRefusal(sub, c)
	if refusal == nil {
		return nil
	}
	if canRead, err := canReadAudit(t, by); err != nil || canRead {
		return err
	}
	return refusal
}

// excludedTypes returns, as a JSON array, the event types that a subscription never receives, even if it wants them.
func excludedTypes(sub webhook.Subscription) string {
	return history.HiddenTypes(!audit.Receives(sub))
}

// setAuditEvents sets whether a subscription receives audit events; nil changes nothing. receivedBefore says whether it
// received them before the change.
func (s *Store) setAuditEvents(t *tx, sub *webhook.Subscription, receivedBefore bool, enabled *bool) error {
	if enabled != nil && *enabled != sub.AuditEvents {
		sub.AuditEvents = *enabled
		s.announceChange(t, sub.RowID)
	}
	if !receivedBefore || audit.Receives(*sub) {
		return nil
	}
	return s.dropPendingAudit(t, sub)
}

// maxPendingSearched is how many pending deliveries one transaction searches for audit events.
const maxPendingSearched = 10_000

// dropPendingAudit drops the pending deliveries of audit events to a subscription. Faults: Conflict if too many
// deliveries are pending to search them in one transaction.
func (s *Store) dropPendingAudit(t *tx, sub *webhook.Subscription) error {
	if sub.PendingDeliveries > maxPendingSearched {
		return fault.New(fault.Conflict, "too_many_pending",
			"With this change the subscription would stop receiving audit events, so its pending audit events must be dropped. "+
				"It has %d pending deliveries, and at most %d can be searched. Wait until fewer are pending, "+
				"or discard them with keyhook subscriptions discard.", sub.PendingDeliveries, maxPendingSearched)
	}
	clear(t.sending)
	n, err := t.Affected(dropDeliveries+`
		SELECT d.id FROM deliveries d INDEXED BY deliveries_pending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = ?1 AND d.state = `+delivery.Pending+` AND e.type IN (SELECT value FROM json_each(?2))
		UNION ALL
		SELECT d.id FROM deliveries d INDEXED BY deliveries_sending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = ?1 AND d.state >= `+delivery.Sending+` AND d.state = `+delivery.Sending+` AND e.type IN (SELECT value FROM json_each(?2)))`,
		sub.RowID, sqlite.TextList(access.AuditTypes()))
	if err != nil {
		return fmt.Errorf("drop pending audit events: %w", err)
	}
	sub.PendingDeliveries -= n
	s.announceChange(t, sub.RowID)
	t.OnCommit(func() { s.pending.Add(sub.RowID, -n) })
	return nil
}
