package explain

import (
	"github.com/keyhook/keyhook/storage/webhook"
)

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
		d.Detail += " The plan " + r.Event.Plan + " has no webhooks. Nothing can be sent before an operator changes it."
	}
	return d
}

// isOld reports whether the event is older than the retention. Then replays leave it out.
func (r *Receiver) isOld() bool {
	return r.Event.Kept > 0 && r.Event.At < r.Now-r.Event.Kept.Milliseconds()
}

// Host returns the host of the subscription's URL, with its port. The rest of a URL is often a secret of the receiver.
func (r *Receiver) Host() string { return webhook.URLHost(r.URL) }

// at writes a time as responses do.
func at(ms int64) string { return string(webhook.AppendTime(nil, ms)) }
