package explain

import (
	"net/url"
	"strings"

	"github.com/keyhook/keyhook/storage/webhook"
)

// command is a command for the subscription: the verb, its id, and the flags after the verb.
func (r *Receiver) command(verb string) string {
	name, flags, _ := strings.Cut(verb, " ")
	if flags != "" {
		flags = " " + flags
	}
	return "keyhook subscriptions " + name + " " + r.ID + flags + r.flag()
}

// replayCommand sends the event and all later ones that the subscription did not get for the same reason.
func (r *Receiver) replayCommand(only string) string {
	return r.command("replay --since " + at(r.Event.At) + " --only " + only)
}

// redeliverCommand sends the event of an attempt again.
func (r *Receiver) redeliverCommand(a *webhook.Attempt) string {
	return "keyhook deliveries redeliver " + r.ID + " " + a.ID + r.flag()
}

// sendAgain adds a command that creates a delivery. Without webhooks in the plan, it would be refused, so the plan comes first.
func (r *Receiver) sendAgain(d Delivery, action Action, command string) Delivery {
	d.Action, d.Advice = action, command
	if !r.Webhooks {
		d.Action, d.Advice = ChangePlan, r.planCommand()
		d.Detail += " The plan " + r.Event.Plan + " has no webhooks. Nothing can be sent before an operator changes it."
	}
	return d
}

// isOld reports whether the event is older than the retention. Then replays leave it out.
func (r *Receiver) isOld() bool {
	return r.Event.Kept > 0 && r.Event.At < r.Now-r.Event.Kept.Milliseconds()
}

func (r *Receiver) planCommand() string {
	return "keyhook organizations update " + r.OrganizationID + " --plan growth"
}

// flag names the organization in a command, after a space.
func (r *Receiver) flag() string {
	if r.ActFor == "" {
		return ""
	}
	return " --organization " + r.ActFor
}

// Host returns the host of the subscription's URL, with its port. The rest of a URL is often a secret of the receiver.
func (r *Receiver) Host() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// host returns the host of a URL in lower case, without port.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// at writes a time as responses do.
func at(ms int64) string { return string(webhook.AppendTime(nil, ms)) }
