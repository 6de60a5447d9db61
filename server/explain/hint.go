package explain

import (
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/webhook"
)

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
	CheckSecret:       "The receiver refuses the request. Compare the signing secret, and the request headers that the receiver wants.",
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
