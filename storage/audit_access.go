package storage

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Audit events are delivered like other events, so webhooks:write alone must not be enough to read the audit log. Whether a
// subscription receives them is its property audit_events, and to give it that needs audit:read. The checks ask for what the
// actor holds in the transaction of the change.
//
// A subscription that receives no audit events has no pending delivery of one. So its address may change at any time.

// receivesAudit reports whether any audit event goes to a subscription.
func receivesAudit(sub webhook.Subscription) bool {
	return sub.AuditEvents && wantsAudit(sub.EventTypes)
}

// wantsAudit reports whether these types include a type of audit events.
func wantsAudit(types webhook.Types) bool {
	return slices.ContainsFunc(access.AuditTypes(), types.Want)
}

// withheldTypes lists, as a JSON array, the event types that a subscription does not receive even where it wants them.
func withheldTypes(sub webhook.Subscription) string {
	if receivesAudit(sub) {
		return "[]"
	}
	list, _ := json.Marshal(access.AuditTypes()) // strings can be encoded
	return string(list)
}

// mayCreate refuses a new subscription that names types of audit events, or asks for them, where the actor lacks
// audit:read. Where the change does not say whether the subscription receives audit events, mayCreate sets what the actor
// may have.
func mayCreate(t *tx, by access.Actor, c *webhook.SubscriptionChange) error {
	own, err := directory.PermissionsOf(t.Tx, by.Authority)
	if err != nil {
		return err
	}
	may := own.Has(access.AuditRead)
	switch {
	case may:
	case slices.ContainsFunc(*c.EventTypes, access.IsAuditType):
		return errNamesAudit
	case c.AuditEvents != nil && *c.AuditEvents:
		return errTakesAudit
	}
	if c.AuditEvents == nil {
		c.AuditEvents = &may
	}
	return nil
}

var (
	errNamesAudit = fault.New(fault.Forbidden, "permission_denied", "Some of these event_types are types of audit events. "+
		"To subscribe to them, you need the permission %s; without it, leave them out.", access.AuditRead)
	errTakesAudit = fault.New(fault.Forbidden, "permission_denied", "To set audit_events to true, you need the permission %s; "+
		"without it, leave audit_events out, or set it to false.", access.AuditRead)
	errMovesAudit = fault.New(fault.Forbidden, "permission_denied", "This subscription receives audit events, or would receive "+
		"them. To change its url or event_types, you need the permission %s; without it, set audit_events to false in the same "+
		"request, which ends the pending deliveries of audit events too.", access.AuditRead)
)

// mayRedirect refuses a change where the actor lacks audit:read and the change names types of audit events, turns
// audit_events on, or gives a subscription that receives audit events another address or other types.
func mayRedirect(t *tx, by access.Actor, sub webhook.Subscription, c webhook.SubscriptionChange) error {
	after := sub
	newURL := c.URL != nil && *c.URL != sub.URL
	newTypes := c.EventTypes != nil && !slices.Equal(c.EventTypes.Unique(), sub.EventTypes.Unique())
	if newTypes {
		after.EventTypes = *c.EventTypes
	}
	if c.AuditEvents != nil {
		after.AuditEvents = *c.AuditEvents
	}
	stops := c.AuditEvents != nil && !*c.AuditEvents
	var refusal error
	switch {
	case after.AuditEvents && !sub.AuditEvents:
		refusal = errTakesAudit
	case newTypes && slices.ContainsFunc(*c.EventTypes, access.IsAuditType):
		refusal = errNamesAudit
	case (newURL || newTypes) && !stops && (receivesAudit(sub) || receivesAudit(after)):
		refusal = errMovesAudit
	default:
		return nil
	}
	return mayReadAudit(t, by, refusal)
}

// mayRedeliverAudit refuses to send an audit event again where the actor lacks audit:read, or where the subscription
// receives no audit events.
func mayRedeliverAudit(t *tx, by access.Actor, to webhook.Subscription) error {
	if err := mayReadAudit(t, by, errRedeliversAudit); err != nil || receivesAudit(to) {
		return err
	}
	return fault.New(fault.Conflict, "audit_events_off", "This event is of the audit log, and the subscription does not receive "+
		"audit events. Set its audit_events to true, and include the type in its event_types, to send the event again.")
}

var errRedeliversAudit = fault.New(fault.Forbidden, "permission_denied",
	"This event is of the audit log; to send it again you need the permission %s.", access.AuditRead)

// mayReadAudit returns the refusal unless the actor holds audit:read at this moment.
func mayReadAudit(t *tx, by access.Actor, refusal error) error {
	own, err := directory.PermissionsOf(t.Tx, by.Authority)
	if err != nil || own.Has(access.AuditRead) {
		return err
	}
	return refusal
}

// setAuditEvents changes whether a subscription receives audit events; nil leaves it. received says whether it did before
// the change that is being applied.
func (s *Store) setAuditEvents(t *tx, sub *webhook.Subscription, received bool, to *bool) error {
	if to != nil && *to != sub.AuditEvents {
		sub.AuditEvents = *to
		s.announceChange(t, sub.RowID)
	}
	if !received || receivesAudit(*sub) {
		return nil
	}
	return s.dropPendingAudit(t, sub)
}

// maxSearched is how many pending deliveries a transaction searches for those of audit events.
const maxSearched = 10_000

// dropPendingAudit ends the pending deliveries of audit events to a subscription. Faults: Conflict where too much is pending
// to search it in one transaction.
func (s *Store) dropPendingAudit(t *tx, sub *webhook.Subscription) error {
	if sub.PendingDeliveries > maxSearched {
		return fault.New(fault.Conflict, "too_many_pending",
			"With this change the subscription would stop receiving audit events, so those that are pending must be dropped. "+
				"It has %d pending deliveries, and at most %d are searched. Wait until fewer are pending, or delete the "+
				"subscription and create another.", sub.PendingDeliveries, maxSearched)
	}
	types, err := json.Marshal(access.AuditTypes())
	if err != nil {
		return err
	}
	n, err := t.Affected(`
		UPDATE deliveries SET state = `+stateDropped+` WHERE id IN (
			SELECT d.id FROM deliveries d INDEXED BY deliveries_pending CROSS JOIN events e ON e.id = d.event_id
			WHERE d.subscription_id = ? AND d.state = `+statePending+` AND e.type IN (SELECT value FROM json_each(?)))`, sub.RowID, string(types))
	if err != nil {
		return fmt.Errorf("drop pending audit events: %w", err)
	}
	sub.PendingDeliveries -= n
	s.announceChange(t, sub.RowID)
	t.OnCommit(func() { s.pending.add(sub.RowID, -n) })
	return nil
}
