package storage

import (
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Audit events are events too, so whoever says where events are sent could read the audit log without audit:read. These
// checks keep that permission what it is. They ask what the actor holds in the transaction of the change.

// mayDirect refuses to let an actor without audit:read have events of these types sent to an address, where some of them
// are of the audit log. An empty list means every type, so it needs audit:read too.
func mayDirect(t *tx, by access.Actor, types webhook.Types) error {
	if !slices.ContainsFunc(access.AuditTypes(), types.Want) {
		return nil
	}
	return mayReadAudit(t, by, "An empty list of event_types means every type, also those of the audit log. To receive these, "+
		"or to change the url or event_types of a subscription that does, you need the permission "+access.AuditRead+
		"; without it, list the event types that you want.")
}

// mayRedirect is mayDirect for a change of a subscription. It looks at the types before the change too: events of the
// audit log may wait for the subscription, and would go to the new address.
func mayRedirect(t *tx, by access.Actor, sub webhook.Subscription, c webhook.SubscriptionChange) error {
	newURL := c.URL != nil && *c.URL != sub.URL
	newTypes := c.EventTypes != nil && !slices.Equal(c.EventTypes.Unique(), sub.EventTypes.Unique())
	if !newURL && !newTypes {
		return nil
	}
	if err := mayDirect(t, by, sub.EventTypes); err != nil || !newTypes {
		return err
	}
	return mayDirect(t, by, *c.EventTypes)
}

// mayReadAudit refuses with the message unless the actor holds audit:read at this moment.
func mayReadAudit(t *tx, by access.Actor, message string) error {
	held, err := heldByActor(t, by.Authority)
	if err != nil || held.Has(access.AuditRead) {
		return err
	}
	return fault.New(fault.Forbidden, "permission_denied", "%s", message)
}
