package explain

import (
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

func (r *Receiver) absent() Delivery {
	e, isAudit := r.Event, access.IsAuditType(r.Event.Type)
	switch {
	case r.DeletedAt != nil && *r.DeletedAt < e.At:
		return tell(NotWanted, "The subscription was deleted at "+at(*r.DeletedAt)+", before the event.")
	case e.About == r.RowID:
		return tell(AboutItself, "The event is about this subscription. No subscription receives events about itself, so that a failing receiver cannot cause more failures.")
	case e.IsTest:
		return tell(NotWanted, "The event is a test of another subscription, and goes to that one only.")
	case e.RowID <= r.Birth:
		return tell(CreatedLater, "The subscription was created at "+at(r.CreatedAt)+", after the event of "+at(e.At)+".").
			add(more, "New subscriptions get no earlier events.").add(remedy, "To send the event anyway, publish it again.")
	case !r.EventTypes.Want(e.Type):
		return r.unwanted()
	case isAudit && !r.AuditEvents:
		d := tell(NotWanted, "The event is an audit event, and the subscription does not receive audit events.").add(remedy, r.ifLive("After the change, a replay sends this event too."))
		d.Mend = r.mend(webhook.ActionReceiveAuditEvents, "")
		return d
	case r.Missed != nil:
		return r.filtered()
	case e.PlanLacked:
		d := tell(PlanLackedWebhooks, "When the event was published, at "+at(e.At)+", the plan had no webhooks, so no delivery was created.")
		if r.Webhooks {
			d = d.add(more, "The plan "+e.Plan+" has webhooks now.")
		}
		return r.sendMissed(d)
	case r.URL == "":
		return r.inFeed()
	case access.HealthNews(e.Type):
		return r.healthNews()
	case r.filterIsYounger():
		return r.sendMissed(tell(Filtered, "The filter has changed at "+at(*r.FilterChangedAt)+", after the event. The event passes the present filter."))
	}
	return r.sendMissed(tell(NotWanted, "The subscription wants "+e.Type+" now, but it did not when the event was published, at "+at(e.At)+"."))
}

// ifLive returns a text, unless the subscription was deleted. Then it says so, because nothing can be sent to it.
func (r *Receiver) ifLive(text string) string {
	switch {
	case r.DeletedAt != nil:
		return "It was deleted at " + at(*r.DeletedAt) + "."
	case r.URL == "":
		return "" // nothing is sent to it, so there is no replay
	}
	return text
}

// inFeed explains an event of a subscription without a URL. Keyhook does not know its readers.
func (r *Receiver) inFeed() Delivery {
	d := tell(InFeed, "The subscription has no URL, so nothing is sent. The event is in its feed.").add(more, "Keyhook does not know whether a program has read it.")
	switch {
	case r.DeletedAt != nil:
		d = d.add(more, r.ifLive(""))
	case r.ByPerson():
		d = d.add(more, "The subscription is paused"+r.since()+", and its feed is refused until it is resumed.")
		d.Mend = r.mend(webhook.ActionReactivate, "")
	case !r.Webhooks:
		d = d.add(more, "The plan "+r.Event.Plan+" has no webhooks, and the feed is refused until an operator changes it.")
		d.Mend = r.changePlan()
	}
	return d
}

const maxTypesInAdvice = 10

func (r *Receiver) unwanted() Delivery {
	types := r.EventTypes.Unique()
	shown := strings.Join(types[:min(len(types), maxTypesInAdvice)], ", ")
	if more := len(types) - maxTypesInAdvice; more > 0 {
		shown += fmt.Sprintf(" and %d more types", more)
	}
	d := tell(NotWanted, "The subscription wants "+shown+", but not "+r.Event.Type+".")
	if len(types) <= maxTypesInAdvice {
		d = d.add(remedy, r.ifLive("After the change, a replay sends this event too."))
		d.Mend = r.mend(webhook.ActionAddEventType, strings.Join(append(types, r.Event.Type), ","))
	} else {
		d = d.add(remedy, r.ifLive("Add the type to its event_types. Then a replay sends this event too."))
	}
	return d
}

func (r *Receiver) filterIsYounger() bool {
	return r.FilterChangedAt != nil && *r.FilterChangedAt > r.Event.At
}

func (r *Receiver) filtered() Delivery {
	c, seen := r.Missed.Condition, "has no such value"
	if r.Missed.Seen != "" {
		seen = "has " + r.Missed.Seen
	}
	d := tell(Filtered, fmt.Sprintf("The event does not pass the filter of the subscription: %s %s %s. The event %s.", c.Path, c.Op, c.Value, seen))
	if r.filterIsYounger() {
		d = d.add(more, "The filter has changed at "+at(*r.FilterChangedAt)+", after the event. Keyhook does not know whether the event passed the earlier one.")
	}
	return d.add(remedy, r.ifLive("If the event should pass, change the filter. Then a replay sends this event too."))
}

// sendMissed adds how to send an event that has no delivery.
func (r *Receiver) sendMissed(d Delivery) Delivery {
	if r.DeletedAt != nil || r.URL == "" {
		return d
	}
	if r.isOld() {
		return d.add(more, "The event is too old for a replay.").add(remedy, "To send it anyway, publish it again.")
	}
	if r.Webhooks {
		d = d.add(remedy, "A replay sends what the subscription missed.")
	}
	return r.sendAgain(d, webhook.ActionReplayMissed, at(r.Event.At))
}

// healthNews explains why news about the health of one subscription did not go to another.
func (r *Receiver) healthNews() Delivery {
	d := tell(AboutItself, "The event is about the health of another subscription. Such events go only to subscriptions that are healthy and have another host, and only to a limited number in a minute.")
	if about := webhook.Hostname(r.Event.AboutURL); about != "" && about == webhook.Hostname(r.URL) {
		d = d.add(more, "This subscription has the same host, "+about+".")
	}
	return d
}
