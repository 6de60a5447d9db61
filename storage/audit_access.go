package storage

import (
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Audit events are delivered like other events, so webhooks:write alone must not suffice to read the audit log. The
// property audit_events of a subscription decides whether it receives them, and setting it needs audit:read. The checks
// use the actor's permissions at the time of the transaction.
//
// A subscription that receives no audit events has no pending delivery of one. So its URL may change at any time.

// receivesAudit reports whether a subscription receives any audit event.
func receivesAudit(sub webhook.Subscription) bool {
	return sub.AuditEvents && wantsAudit(sub.EventTypes)
}

// wantsAudit reports whether types include a type of audit events.
func wantsAudit(types webhook.Types) bool {
	return slices.ContainsFunc(access.AuditTypes(), types.Want)
}

// excludedTypes returns, as a JSON array, the event types that a subscription never receives, even if it wants them.
func excludedTypes(sub webhook.Subscription) string {
	return history.HiddenTypes(!receivesAudit(sub))
}

// authorizeCreate refuses a new subscription that asks for audit events, by type or by audit_events, if the actor lacks
// audit:read. If the change does not set audit_events, authorizeCreate sets it to what the actor may have.
func authorizeCreate(t *tx, by access.Actor, c *webhook.SubscriptionChange) error {
	permissions, err := directory.PermissionsOf(t.Tx, by.Authority)
	if err != nil {
		return err
	}
	canReadAudit := permissions.Has(access.AuditRead)
	switch {
	case canReadAudit:
	case slices.ContainsFunc(*c.EventTypes, access.IsAuditType):
		return errAuditTypes
	case c.AuditEvents != nil && *c.AuditEvents:
		return errAuditEventsOn
	}
	if c.AuditEvents == nil {
		c.AuditEvents = &canReadAudit
	}
	return nil
}

var (
	errAuditTypes = fault.New(fault.Forbidden, "permission_denied", "Some of these event_types are types of audit events. "+
		"To subscribe to them, you need the permission %s; without it, leave them out.", access.AuditRead)
	errAuditEventsOn = fault.New(fault.Forbidden, "permission_denied", "To set audit_events to true, you need the permission %s; "+
		"without it, leave audit_events out, or set it to false.", access.AuditRead)
	errAuditReceiver = fault.New(fault.Forbidden, "permission_denied", "This subscription receives audit events, or would receive "+
		"them. To change its url or event_types, you need the permission %s; without it, set audit_events to false in the same "+
		"request, which also drops its pending audit events.", access.AuditRead)
)

// authorizeUpdate refuses three changes by an actor without audit:read. The change names types of audit events. It turns
// audit_events on. Or it changes the URL or the types of a subscription that receives audit events.
func authorizeUpdate(t *tx, by access.Actor, sub webhook.Subscription, c webhook.SubscriptionChange) error {
	after := sub
	newURL := c.URL != nil && *c.URL != sub.URL
	newTypes := c.EventTypes != nil && !slices.Equal(c.EventTypes.Unique(), sub.EventTypes.Unique())
	if newTypes {
		after.EventTypes = *c.EventTypes
	}
	if c.AuditEvents != nil {
		after.AuditEvents = *c.AuditEvents
	}
	turnsOff := c.AuditEvents != nil && !*c.AuditEvents
	var refusal error
	switch {
	case after.AuditEvents && !sub.AuditEvents:
		refusal = errAuditEventsOn
	case newTypes && slices.ContainsFunc(*c.EventTypes, access.IsAuditType):
		refusal = errAuditTypes
	case (newURL || newTypes) && !turnsOff && (receivesAudit(sub) || receivesAudit(after)):
		refusal = errAuditReceiver
	default:
		return nil
	}
	return requireAuditRead(t, by, refusal)
}

// authorizeRedelivery refuses to send an audit event again if the actor lacks audit:read, or if the subscription
// receives no audit events.
func authorizeRedelivery(t *tx, by access.Actor, to webhook.Subscription) error {
	if err := requireAuditRead(t, by, errAuditRedelivery); err != nil || receivesAudit(to) {
		return err
	}
	return fault.New(fault.Conflict, "audit_events_off", "This is an audit event, and the subscription does not receive "+
		"audit events. To send it again, set audit_events to true and include the type in event_types.")
}

var errAuditRedelivery = fault.New(fault.Forbidden, "permission_denied",
	"This is an audit event; to send it again, you need the permission %s.", access.AuditRead)

// requireAuditRead returns refusal if the actor lacks audit:read now.
func requireAuditRead(t *tx, by access.Actor, refusal error) error {
	permissions, err := directory.PermissionsOf(t.Tx, by.Authority)
	if err != nil || permissions.Has(access.AuditRead) {
		return err
	}
	return refusal
}

// setAuditEvents sets whether a subscription receives audit events; nil changes nothing. receivedBefore says whether it
// received them before the change.
func (s *Store) setAuditEvents(t *tx, sub *webhook.Subscription, receivedBefore bool, enabled *bool) error {
	if enabled != nil && *enabled != sub.AuditEvents {
		sub.AuditEvents = *enabled
		s.announceChange(t, sub.RowID)
	}
	if !receivedBefore || receivesAudit(*sub) {
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
