package audit

import (
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Audit events are delivered like other events, so webhooks:write alone must not suffice to read the audit log. The
// property audit_events of a subscription decides whether it receives them, and setting it needs audit:read.
//
// A subscription that receives no audit events has no pending delivery of one. So its URL may change at any time.

// Receives reports whether a subscription receives any audit event.
func Receives(sub webhook.Subscription) bool {
	return sub.AuditEvents && slices.ContainsFunc(access.AuditTypes(), sub.EventTypes.Want)
}

// CheckCreate refuses a new subscription that asks for audit events, by type or by audit_events, if the actor lacks audit:read. If
// the change does not set audit_events, CheckCreate sets it to what the actor may have. Faults: Forbidden.
func CheckCreate(canRead bool, c *webhook.SubscriptionChange) error {
	switch {
	case canRead:
	case slices.ContainsFunc(*c.EventTypes, access.IsAuditType):
		return errTypes
	case c.AuditEvents != nil && *c.AuditEvents:
		return errEventsOn
	}
	if c.AuditEvents == nil {
		c.AuditEvents = &canRead
	}
	return nil
}

var (
	errTypes = fault.New(fault.Forbidden, access.CodeDenied, "Some of these event_types are types of audit events. "+
		"To subscribe to them, you need the permission %s; without it, leave them out.", access.AuditRead)
	errEventsOn = fault.New(fault.Forbidden, access.CodeDenied, "To set audit_events to true, you need the permission %s; "+
		"without it, leave audit_events out, or set it to false.", access.AuditRead)
	errReceiver = fault.New(fault.Forbidden, access.CodeDenied, "This subscription receives audit events, or would receive "+
		"them. To change its url, event_types or filter, you need the permission %s; without it, set audit_events to false in the same "+
		"request, which also drops its pending audit events.", access.AuditRead)
	errRedelivery = fault.New(fault.Forbidden, access.CodeDenied,
		"This is an audit event; to send it again, you need the permission %s.", access.AuditRead)
	errEventsOff = fault.New(fault.Conflict, "audit_events_off", "This is an audit event, and the subscription does not receive "+
		"audit events. To send it again, set audit_events to true and include the type in event_types.")
)

// UpdateRefusal returns the fault if an actor without audit:read asks for a change, or nil if the change does not need it. Three
// changes do. The change names types of audit events. It turns audit_events on. Or it changes the URL, the types or the filter of a
// subscription that receives audit events: what passes a filter tells what an event contains.
func UpdateRefusal(sub webhook.Subscription, c webhook.SubscriptionChange) error {
	after := sub
	newURL := c.URL != nil && *c.URL != sub.URL
	newTypes := c.EventTypes != nil && !slices.Equal(c.EventTypes.Unique(), sub.EventTypes.Unique())
	newFilter := c.Filter != nil && c.Filter.Text() != sub.Filter.Text()
	access.Set(&after.EventTypes, c.EventTypes)
	access.Set(&after.AuditEvents, c.AuditEvents)
	turnsOff := c.AuditEvents != nil && !*c.AuditEvents
	switch {
	case after.AuditEvents && !sub.AuditEvents:
		return errEventsOn
	case newTypes && slices.ContainsFunc(*c.EventTypes, access.IsAuditType):
		return errTypes
	case (newURL || newTypes || newFilter) && !turnsOff && (Receives(sub) || Receives(after)):
		return errReceiver
	}
	return nil
}

// CheckRedelivery refuses to send an audit event again if the actor lacks audit:read, or if the subscription receives no audit
// events. Faults: Forbidden, Conflict.
func CheckRedelivery(canRead bool, to webhook.Subscription) error {
	switch {
	case !canRead:
		return errRedelivery
	case !Receives(to):
		return errEventsOff
	}
	return nil
}
