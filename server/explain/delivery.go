package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Delivery explains what happened to an event on its way to one subscription.
type Delivery struct {
	Verdict Verdict
	Detail  []Part // what happened, with times and the last error
	// LastError is the error of the latest attempt that ended, or else of the subscription for which the delivery waits.
	LastError string
	Hint      Hint         // where to look for the cause of the last error, unless the event arrived
	Mend      webhook.Mend // without an action if there is nothing to mend, or nothing mends it
	// NextAttemptAt is the time of the next attempt, in milliseconds; nil if the delivery waits for anything but a time.
	NextAttemptAt *int64
	Attempts      int // made so far, with the one in progress
}

// Part is a part of a detail: sentences of one kind.
type Part struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// The kinds of parts. Each detail begins with what happened.
const (
	what   = "what"
	cause  = "cause"
	more   = "more"
	remedy = "remedy" // what a person can do
)

// Text returns all parts of the detail.
func (d Delivery) Text() (text string) {
	for _, p := range d.Detail {
		text += " " + p.Text
	}
	return text[1:]
}

// add adds a part, unless its text is empty.
func (d Delivery) add(kind, text string) Delivery {
	if text != "" {
		d.Detail = append(d.Detail, Part{kind, text})
	}
	return d
}

// tell begins an explanation.
func tell(v Verdict, text string) Delivery { return Delivery{Verdict: v}.add(what, text) }

// Verdict says in a word what happened.
type Verdict string

// The verdicts.
const (
	Delivered       Verdict = "delivered"
	Sending         Verdict = "sending"
	Scheduled       Verdict = "scheduled" // due at a time, or as soon as Keyhook has a free slot
	WaitingForProbe Verdict = "waiting_for_probe"
	WaitingForPace  Verdict = "waiting_for_pace"
	HeldDisabled    Verdict = "held_disabled" // failures have disabled the subscription
	HeldPaused      Verdict = "held_paused"   // its owner has disabled it
	HeldQueue       Verdict = "held_queue"
	BlockedByPlan   Verdict = "blocked_by_plan"
	Exhausted       Verdict = "exhausted"
	Dropped         Verdict = "dropped"
	Expired         Verdict = "expired"
	// No delivery was created.
	NotWanted          Verdict = "not_wanted"
	CreatedLater       Verdict = "created_later"
	PlanLackedWebhooks Verdict = "plan_lacked_webhooks"
	AboutItself        Verdict = "about_itself"
	Filtered           Verdict = "filtered"
	InFeed             Verdict = "in_feed"
)

// Receiver is an event and one subscription of its organization.
type Receiver struct {
	Event webhook.EventFacts
	webhook.ReceiverFacts
	Now int64 // in milliseconds
	// ActFor is the organization that the commands must name; empty if they act there anyway.
	ActFor string
}

// Explain tells what happened to the event, and what will.
func (r *Receiver) Explain() Delivery {
	d := r.explain()
	for _, known := range r.Deliveries {
		d.Attempts += known.Attempts
		if known.Sending {
			d.Attempts++
		}
	}
	if d.LastError = r.lastError(); d.Verdict != Delivered {
		d.Hint = HintOf(d.LastError)
	}
	if r.DeletedAt != nil || r.URL == "" && len(r.Deliveries) > 0 {
		d.Mend = webhook.Mend{} // nothing can be sent to it
	}
	return d
}

// explain returns the verdict, without the number of attempts. If the event has several deliveries to the subscription, the one that
// came furthest decides: an event that has arrived has arrived.
func (r *Receiver) explain() Delivery {
	if d := r.newest(func(d webhook.DeliveryFacts) bool { return d.State == webhook.Delivered }); d != nil {
		return r.delivered(d)
	}
	if d := r.newest(func(d webhook.DeliveryFacts) bool { return d.Sending }); d != nil {
		return tell(Sending, fmt.Sprintf("Attempt %d began at %s and is in progress.", d.Attempts+1, at(d.DueAt))).add(cause, r.lastAttempt())
	}
	if d := r.firstDue(); d != nil && r.DeletedAt == nil { // nothing is pending for a deleted subscription
		return r.waiting(d)
	}
	if d := r.newest(func(d webhook.DeliveryFacts) bool { return d.State == webhook.Exhausted }); d != nil {
		return r.exhausted(d)
	}
	if len(r.Deliveries) > 0 {
		return r.dropped()
	}
	return r.absent()
}

// newest returns the newest delivery of a kind, or nil.
func (r *Receiver) newest(is func(webhook.DeliveryFacts) bool) *webhook.DeliveryFacts {
	if i := slices.IndexFunc(r.Deliveries, is); i >= 0 {
		return &r.Deliveries[i]
	}
	return nil
}

// firstDue returns the pending delivery that is due first, or nil. Of those that are due at the same time, it is the oldest.
func (r *Receiver) firstDue() (found *webhook.DeliveryFacts) {
	for i := range r.Deliveries {
		if d := &r.Deliveries[i]; d.State == webhook.Pending && (found == nil || d.DueAt <= found.DueAt) {
			found = d
		}
	}
	return found
}

// last returns the latest attempt that ended, or nil.
func (r *Receiver) last() (found *webhook.Attempt) {
	for _, d := range r.Deliveries {
		if d.Last != nil && (found == nil || d.Last.AttemptedAt > found.AttemptedAt) {
			found = d.Last
		}
	}
	return found
}

// lastError is as in Delivery.
func (r *Receiver) lastError() string {
	if a := r.last(); a != nil {
		return a.Error
	}
	if len(r.Deliveries) > 0 && !r.ByPerson() {
		return r.LastError
	}
	return ""
}

// lastAttempt is a sentence about the latest attempt that ended; empty if there is none.
func (r *Receiver) lastAttempt() string {
	switch a := r.last(); {
	case a == nil:
		return ""
	case a.Outcome == webhook.Interrupted:
		return fmt.Sprintf("A stop of Keyhook interrupted attempt %d, which began at %s.", a.Number, at(a.AttemptedAt))
	default:
		return fmt.Sprintf("Attempt %d failed at %s: %s.", a.Number, at(a.AttemptedAt+a.DurationMS), strings.TrimSuffix(a.Error, "."))
	}
}

// isOld reports whether the event is older than the retention. Then replays leave it out.
func (r *Receiver) isOld() bool {
	return r.Event.Kept > 0 && r.Event.At < r.Now-r.Event.Kept.Milliseconds()
}

// Host returns the host of the subscription's URL, with its port. The rest of a URL is often a secret of the receiver.
func (r *Receiver) Host() string { return webhook.URLHost(r.URL) }

// at writes a time as responses do.
func at(ms int64) string { return string(webhook.AppendTime(nil, ms)) }

// mend is an action on the subscription.
func (r *Receiver) mend(action webhook.Action, with string) webhook.Mend {
	return webhook.Mend{Action: action, Organization: r.ActFor, Subscription: r.ID, With: with}
}

// changePlan gives the organization a plan that has webhooks.
func (r *Receiver) changePlan() webhook.Mend {
	return webhook.Mend{Action: webhook.ActionChangePlan, Organization: r.OrganizationID, With: r.Event.WebhookPlan}
}

// sendAgain adds an action that creates a delivery. Without webhooks in the plan, it would be refused, so the plan comes first.
func (r *Receiver) sendAgain(d Delivery, action webhook.Action, with string) Delivery {
	d.Mend = r.mend(action, with)
	if !r.Webhooks {
		d.Mend = r.changePlan()
		d = d.add(remedy, "The plan "+r.Event.Plan+" has no webhooks. Nothing can be sent before an operator changes it.")
	}
	return d
}

func (r *Receiver) delivered(d *webhook.DeliveryFacts) Delivery {
	e := tell(Delivered, "Delivered to "+r.Host()+".")
	if a := d.Last; a != nil {
		status := "2xx"
		if a.ResponseStatus != nil {
			status = fmt.Sprint(*a.ResponseStatus)
		}
		e.Detail[0].Text = fmt.Sprintf("Delivered to %s at %s: the receiver answered attempt %d with %s.", r.Host(), at(a.AttemptedAt+a.DurationMS), a.Number, status)
	}
	if again := r.newest(func(d webhook.DeliveryFacts) bool { return d.State == webhook.Pending }); again != nil {
		e = e.add(more, "Another delivery of the same event, which somebody asked for, is on its way.")
	}
	return e
}

// exhausted explains the newest delivery that ended so. Its DueAt is its end, on the clock of FailingSince: the end of the request is a
// little earlier than its record.
func (r *Receiver) exhausted(ended *webhook.DeliveryFacts) Delivery {
	d := tell(Exhausted, "All attempts failed, so Keyhook gave up.").add(cause, r.lastAttempt())
	switch a := r.last(); {
	case r.DeletedAt != nil:
		return d.add(more, "The subscription was deleted at "+at(*r.DeletedAt)+".")
	case r.Event.IsTest:
		d.Detail[0].Text = "The test failed, and tests are not repeated."
		return r.sendAgain(d, webhook.ActionTest, "")
	case r.isOld() || !r.EventTypes.Want(r.Event.Type) || r.Missed != nil: // a recovery and a replay leave it out
		return r.sendAgain(d, webhook.ActionRedeliver, a.ID)
	case r.Status != webhook.Healthy && !r.ByPerson() && ended.DueAt >= r.FailingSince: // recover sends what failed since then
		d = d.add(more, fmt.Sprintf("The subscription is %s.", r.Status)).add(remedy, "Repair the receiver, then recover the subscription.")
		return r.sendAgain(d, webhook.ActionRecover, "")
	}
	return r.sendAgain(d, webhook.ActionReplayFailed, at(min(r.Event.At, r.Now)))
}

func (r *Receiver) dropped() Delivery {
	d := tell(Dropped, "The delivery was discarded while it waited.").add(cause, r.lastAttempt())
	switch a := r.last(); {
	case r.DeletedAt != nil:
		d.Detail[0].Text = "The subscription was deleted at " + at(*r.DeletedAt) + ", so its pending deliveries were dropped."
	case access.IsAuditType(r.Event.Type) && !r.AuditEvents:
		d.Detail[0].Text = "The subscription stopped receiving audit events, so its pending ones were dropped."
	case a == nil:
		return r.sendAgain(d, webhook.ActionRedeliverDropped, at(min(r.Event.At, r.Now)))
	default:
		return r.sendAgain(d, webhook.ActionRedeliver, a.ID)
	}
	return d
}
