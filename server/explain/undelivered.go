package explain

import (
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// waiting explains a pending delivery: what it waits for, and what ends the wait.
func (r *Receiver) waiting(d *webhook.DeliveryFacts) Delivery {
	if r.Event.Expired && r.Why() != webhook.NotBlocked {
		return tell(Expired, "The delivery has waited longer than storage.retention_events, so Keyhook is deleting it, and does not send it.").
			add(cause, r.lastAttempt())
	}
	w := Delivery{NextAttemptAt: r.NextAttempt(d.RowID, &d.DueAt, r.Now)}
	switch r.Why() {
	case webhook.BlockedByPause:
		w.Verdict, w.Mend = HeldPaused, r.mend(webhook.ActionReactivate, "")
		_, by, _ := strings.Cut(r.LastError, webhook.DeactivatedBy) // empty if failures had disabled it before
		w = w.add(what, strings.TrimSuffix("The subscription was paused"+r.since()+" by "+by, " by ")+".").
			add(more, "The delivery waits until the subscription is resumed.")
	case webhook.BlockedByFault:
		w.Verdict, w.Mend = HeldDisabled, r.mend(webhook.ActionRecover, "")
		w = w.add(what, fmt.Sprintf("The subscription was disabled%s after %d failures in a row.", r.since(), r.ConsecutiveFailures)).
			add(cause, "The last error: "+r.LastError+".").add(more, "The delivery waits.").
			add(remedy, "Repair the receiver, then recover the subscription.").add(more, r.nextProbe(w))
		if !r.Webhooks { // recover would be refused
			w.Mend = r.changePlan()
		}
	case webhook.BlockedByPlan:
		w.Verdict, w.Mend = BlockedByPlan, r.changePlan()
		w = w.add(what, "The plan "+r.Event.Plan+" has no webhooks.").add(more, "The delivery waits until an operator changes the plan.")
	case webhook.BlockedByHold:
		w.Verdict, w.Mend = HeldQueue, webhook.Mend{Action: webhook.ActionReleaseQueue}
		w = w.add(what, r.held()).add(more, "The delivery waits until an operator releases it.")
	default:
		return r.open(d, w)
	}
	if w.Verdict != HeldQueue { // retention deletes nothing that only waits for the queue
		w = w.add(more, r.untilExpiry())
	}
	return w.add(more, r.otherBlocks()).add(cause, r.lastAttempt())
}

// nextProbe says when Keyhook tries a disabled subscription by itself.
func (r *Receiver) nextProbe(w Delivery) string {
	switch {
	case !r.GetsProbe():
		return ""
	case w.NextAttemptAt != nil:
		return "Keyhook tries this delivery soon after " + at(*w.NextAttemptAt) + ". A success recovers the subscription."
	case r.ProbeAt > r.Now:
		return "Keyhook tries one delivery soon after " + at(r.ProbeAt) + ". A success recovers the subscription."
	}
	return "Keyhook tries one delivery soon. A success recovers the subscription."
}

// open explains a pending delivery of an open subscription.
func (r *Receiver) open(d *webhook.DeliveryFacts, w Delivery) Delivery {
	isDue := d.DueAt <= r.Now
	w.Verdict = Scheduled
	switch {
	case r.Status == webhook.Failing:
		w.Verdict, w.Mend = WaitingForProbe, r.mend(webhook.ActionRecover, "")
		w = w.add(what, fmt.Sprintf("The subscription is failing, after %d failures in a row.", r.ConsecutiveFailures)).
			add(cause, "The last error: "+r.LastError+".").add(more, "Keyhook tries one delivery at a time, and the others wait until one succeeds.")
		switch {
		case w.NextAttemptAt != nil:
			w = w.add(more, "This delivery is the next one.")
		case r.ProbeAt > r.Now:
			w = w.add(more, "The next attempt is not before "+at(r.ProbeAt)+".")
		}
		w = w.add(remedy, "If the receiver works again, recover the subscription to send everything now.")
	case r.isBehind(d) && !(r.frontIsDue() && r.RateLimitPerSecond != nil):
		w = w.add(what, "The delivery waits for its turn.")
	case isDue && r.RateLimitPerSecond != nil:
		w.Verdict = WaitingForPace
		w = w.add(what, fmt.Sprintf("The subscription gets at most %d requests a second, and %d deliveries are pending.", *r.RateLimitPerSecond, r.PendingDeliveries)).
			add(more, "The delivery is sent when its turn comes.")
		if *r.RateLimitPerSecond < webhook.MaxRateLimit {
			w.Mend = r.mend(webhook.ActionRaiseRateLimit, fmt.Sprint(min(2**r.RateLimitPerSecond, webhook.MaxRateLimit)))
			w = w.add(remedy, "A higher limit sends faster.")
		}
	case isDue:
		w = w.add(what, fmt.Sprintf("Attempt %d has been due since %s. Keyhook sends it as soon as it has a free slot.", d.Attempts+1, at(d.DueAt)))
	default:
		w = w.add(what, fmt.Sprintf("Attempt %d follows at %s.", d.Attempts+1, at(d.DueAt)))
	}
	if r.isBehind(d) {
		w = w.add(more, r.front())
	}
	return w.add(cause, r.lastAttempt())
}

// isBehind reports whether a pending delivery of an ordered subscription waits for another event.
func (r *Receiver) isBehind(d *webhook.DeliveryFacts) bool {
	return r.Front != nil && r.Front.Event != r.Event.RowID && (r.Front.Sending || !d.OutOfOrder)
}

// frontIsDue reports whether the delivery in front waits for no time.
func (r *Receiver) frontIsDue() bool { return r.Front.Sending || r.Front.DueAt <= r.Now }

// front says for which event the others of an ordered subscription wait.
func (r *Receiver) front() string {
	text := "The subscription is ordered: it gets one delivery at a time, in the order of publication. Event " + r.Front.EventID + " is in front: "
	next := r.Front.DueAt
	if r.Status == webhook.Failing {
		next = max(next, r.ProbeAt)
	}
	switch {
	case r.Front.Sending:
		return text + fmt.Sprintf("its attempt %d began at %s and is in progress.", r.Front.Attempts+1, at(r.Front.DueAt))
	case next > r.Now:
		return text + fmt.Sprintf("its attempt %d follows at %s.", r.Front.Attempts+1, at(next)) + r.skip()
	}
	return text + fmt.Sprintf("its attempt %d has been due since %s.", r.Front.Attempts+1, at(r.Front.DueAt))
}

// skip says how to get past an event in front that has failed, after a space. It is no advice, because the event is not delivered then.
// A discard has a time, so it cannot tell apart events of one millisecond, such as those of a batch.
func (r *Receiver) skip() string {
	switch {
	case r.Front.Attempts == 0:
		return ""
	case r.Front.SharesAt || r.Front.EventAt >= r.Event.At:
		return " A discard would drop a later event too, so repair the receiver, or wait until Keyhook gives up."
	}
	return " To send the later events without it, drop what was published up to then with `" + Command(r.mend(webhook.ActionDiscard, at(r.Front.EventAt+1))) + "`."
}

// otherBlocks says what else keeps the delivery from being sent, besides the first block.
func (r *Receiver) otherBlocks() (text string) {
	first := r.Why()
	if !r.Webhooks && first != webhook.BlockedByPlan {
		text = "Besides, the plan " + r.Event.Plan + " has no webhooks."
	}
	if r.QueueHeld && first != webhook.BlockedByHold {
		text += " Besides, " + strings.Replace(r.held(), "An", "an", 1)
	}
	return strings.TrimPrefix(text, " ")
}

// held says who stopped the queue, and why.
func (r *Receiver) held() string {
	if r.Event.Hold == nil {
		return "An operator has stopped all sending."
	}
	text := "An operator has stopped all sending at " + at(r.Event.Hold.Since)
	if r.Event.Hold.Reason != "" {
		text += ": " + strings.TrimSuffix(r.Event.Hold.Reason, ".")
	}
	return text + "."
}

// since says when the subscription was disabled, after a space.
func (r *Receiver) since() string {
	if r.DisabledAt == nil {
		return ""
	}
	return " at " + at(*r.DisabledAt)
}

// untilExpiry says how long a closed subscription may wait.
func (r *Receiver) untilExpiry() string {
	if r.Event.Kept == 0 {
		return ""
	}
	return "Keyhook keeps it until " + at(r.Event.At+r.Event.Kept.Milliseconds()) + "."
}

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
	return r.sendMissed(tell(NotWanted, "The subscription wants "+e.Type+" now, but it did not when the event was published, at "+at(e.At)+", or it had no URL."))
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
	return r.sendAgain(d, webhook.ActionReplayMissed, at(min(r.Event.At, r.Now)))
}

// healthNews explains why news about the health of one subscription did not go to another.
func (r *Receiver) healthNews() Delivery {
	d := tell(AboutItself, "The event is about the health of another subscription. Such events go only to subscriptions that are healthy and have another host, and only to a limited number in a minute.")
	if about := webhook.Hostname(r.Event.AboutURL); about != "" && about == webhook.Hostname(r.URL) {
		d = d.add(more, "This subscription has the same host, "+about+".")
	}
	return d
}
