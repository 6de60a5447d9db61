package explain

import (
	"cmp"
	"log/slog"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/webhook"
)

// mends has the command of each action, and how a sentence for a person begins that ends with the command. Words in capitals stand
// for the fields of a webhook.Mend.
var mends = map[webhook.Action]struct{ command, lead string }{
	webhook.ActionRecover:            {"subscriptions recover SUBSCRIPTION", "When the receiver works again, run: "},
	webhook.ActionReactivate:         {"subscriptions reactivate SUBSCRIPTION", "To send again, run: "},
	webhook.ActionTest:               {"subscriptions test SUBSCRIPTION", ""},
	webhook.ActionRaiseRateLimit:     {"subscriptions update SUBSCRIPTION --rate-limit-per-second WITH", ""},
	webhook.ActionAddEventType:       {"subscriptions update SUBSCRIPTION --event-types WITH", ""},
	webhook.ActionReceiveAuditEvents: {"subscriptions update SUBSCRIPTION --audit-events=true", ""},
	webhook.ActionRedeliver:          {"deliveries redeliver SUBSCRIPTION WITH", ""},
	webhook.ActionRedeliverDropped:   {"events redeliver --state dropped --subscription SUBSCRIPTION --since WITH --audit", ""},
	webhook.ActionReplayFailed:       {"subscriptions replay SUBSCRIPTION --since WITH --only failed", ""},
	webhook.ActionReplayMissed:       {"subscriptions replay SUBSCRIPTION --since WITH --only missed", ""},
	webhook.ActionDiscard:            {"subscriptions discard SUBSCRIPTION --before WITH", ""},

	webhook.ActionChangePlan:        {"organizations update ORGANIZATION --plan WITH", "The plan has no webhooks. To send again, an operator runs: "},
	webhook.ActionReleaseQueue:      {"queue release", "An operator has stopped all sending. To send again, an operator runs: "},
	webhook.ActionListSubscriptions: {"subscriptions list --organization all", ""},
	webhook.ActionListDisabled:      {"subscriptions list --organization all --status disabled", ""},
	webhook.ActionListFailing:       {"subscriptions list --organization all --status failing", ""},
	webhook.ActionListAudit:         {"audit list --organization ORGANIZATION --type WITH", ""},
	webhook.ActionRunDoctor:         {"doctor", ""},
	webhook.ActionTestAlerts:        {"alert test", ""},
}

// unknownPlan stands for a plan where no plan suits.
const unknownPlan = "PLAN"

// Command returns the command that does what m says; empty if m has no action. It names no plan if none has webhooks.
func Command(m webhook.Mend) string {
	text := mends[m.Action].command
	if text == "" {
		return ""
	}
	if m.Action == webhook.ActionRecover && m.With != "" {
		text += " --since WITH"
	}
	if strings.Contains(text, "SUBSCRIPTION") && m.Organization != "" {
		text += " --organization ORGANIZATION"
	}
	return "keyhook " + strings.NewReplacer(
		"SUBSCRIPTION", disk.Quote(m.Subscription), "ORGANIZATION", disk.Quote(m.Organization), "WITH", disk.Quote(cmp.Or(m.With, unknownPlan))).Replace(text)
}

// Sentence says when to do what m says, with the command; empty if m has no action.
func Sentence(m webhook.Mend) string { return mends[m.Action].lead + Command(m) }

// faults tells what to do about a fault of the store, by its code. It names paths, headers, fields and commands, which the store
// does not know.
var faults = map[string]string{
	"subject_mismatch":      "An operator can change the user's external_id with PATCH /api/v1/users/{id}/.",
	"organization_required": "Name one with the header X-Organization-Id.",
	"not_a_member":          "An operator can add the user with PUT /api/v1/organizations/{id}/members/{user_id}/.",
	"overlap_in_progress": "Rotate again after that, or end the overlap now with \"force\": true " +
		"(keyhook subscriptions rotate-secret --force).",
	"paused": "Activate it with \"is_active\": true (keyhook subscriptions reactivate).",
	"too_many_pending": "Wait until fewer are pending, or discard them with POST /api/v1/webhooks/subscriptions/{id}/discard/ " +
		"(keyhook subscriptions discard).",
}

// WithMend returns the message of a fault with what to do about it, if that is known.
func WithMend(code, message string) string {
	if mend := faults[code]; mend != "" {
		return message + " " + mend
	}
	return message
}

// LogMend writes a webhook.Mend in a log as its sentence. It is for the ReplaceAttr of a slog.HandlerOptions.
func LogMend(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindAny {
		if m, is := a.Value.Any().(webhook.Mend); is {
			a.Value = slog.StringValue(Sentence(m))
		}
	}
	return a
}

// Hint says in a code where to look for the cause of a failed attempt. It is empty where the failure tells no cause.
type Hint string

// The hints.
const (
	CheckSecret       Hint = "check_secret"
	CheckPath         Hint = "check_path"
	Redirected        Hint = "redirected"
	CheckCertificate  Hint = "check_certificate"
	CheckHost         Hint = "check_host"
	TooSlow           Hint = "too_slow"
	ReceiverError     Hint = "receiver_error"
	ReceiverRefuses   Hint = "receiver_refuses"
	ReceiverRateLimit Hint = "rate_limited_by_receiver"
)

// hints has what a person should do. The console has the same sentences.
var hints = map[Hint]string{
	CheckSecret:       "The receiver refuses the request. Compare the signing secret, the clocks, and the request headers that the receiver wants.",
	CheckPath:         "The receiver takes no POST at this path. Correct the URL.",
	Redirected:        "Keyhook follows no redirects. Set the URL to which the receiver redirects.",
	CheckCertificate:  "The certificate of the receiver is not valid for this URL. Renew it, or send the whole chain.",
	CheckHost:         "Keyhook cannot connect to the host. Look at the URL, the DNS, the port and the firewall. A private address needs egress.allowed_networks.",
	TooSlow:           "The receiver did not answer in time. Answer first, and do long work afterwards.",
	ReceiverError:     "The receiver, or a proxy in front of it, has a fault. Its answer or its log says why.",
	ReceiverRefuses:   "The receiver refuses the request. Its answer or its log says why.",
	ReceiverRateLimit: "The receiver wants fewer requests. Set a limit of requests per second.",
}

// Sentence says what a person should do; empty for no hint.
func (h Hint) Sentence() string { return hints[h] }

// causes are the hints of failures without a status.
var causes = map[webhook.FailureClass]Hint{
	webhook.DNSError: CheckHost, webhook.ConnectError: CheckHost, webhook.BlockedAddress: CheckHost,
	webhook.TLSError: CheckCertificate, webhook.TimeoutError: TooSlow, webhook.ProtocolError: ReceiverError,
}

// HintOf returns the hint for the error of an attempt, or for the last error of a subscription.
func HintOf(failure string) Hint {
	class, text, _ := strings.Cut(failure, ": ")
	switch {
	case strings.HasPrefix(text, webhook.NothingSent):
		return ""
	case text == webhook.ConnectionLost:
		return ReceiverError
	}
	if webhook.FailureClass(class) != webhook.HTTPStatus {
		return causes[webhook.FailureClass(class)]
	}
	number, _, _ := strings.Cut(text, " ")
	status, _ := strconv.Atoi(number)
	switch {
	case status == 401, status == 403:
		return CheckSecret
	case status == 404, status == 405, status == 410:
		return CheckPath
	case status == 429:
		return ReceiverRateLimit
	case status >= 500:
		return ReceiverError
	case status >= 400:
		return ReceiverRefuses
	case status >= 300:
		return Redirected
	}
	return ""
}
