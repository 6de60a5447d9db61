package dispatch

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/webhook"
)

// preparedTarget is a webhook.Target with everything that is the same for all its attempts.
type preparedTarget struct {
	webhook.Target
	request   *http.Request // without headers, body and context
	current   signers
	previous  signers
	headers   http.Header     // the subscription's own
	sendError webhook.Failure // why nothing can be sent to it; zero if it can
}

// signers sign with one secret, in both schemes.
type signers struct {
	hex      *signature.Signer
	standard *signature.StandardSigner
}

func newSigners(secret webhook.Secret) (s signers, err error) {
	if s.hex, err = signature.NewSigner(secret.Reveal()); err != nil {
		return s, err
	}
	s.standard, err = signature.NewStandardSigner(secret.Reveal())
	return s, err
}

// prepare makes a preparedTarget. A problem with the target becomes the error of its attempts, so the owner sees it.
func (s *sender) prepare(t webhook.Target) *preparedTarget {
	prepared := &preparedTarget{Target: t, headers: make(http.Header, len(t.Headers))}
	if t.Unusable != "" {
		prepared.sendError = webhook.Failure{Class: webhook.ProtocolError, Text: t.Unusable}
		return prepared
	}
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" {
		prepared.sendError = webhook.Failure{Class: webhook.ProtocolError, Text: "the URL of the subscription is not valid"}
		return prepared
	}
	if u.Scheme != "https" && !(s.allowHTTP && u.Scheme == "http") {
		prepared.sendError = webhook.Failure{Class: webhook.ProtocolError, Text: "the URL of the subscription must begin with https://"}
		return prepared
	}
	for _, h := range t.Headers {
		// The setting of the prefix may have changed since the header was accepted.
		if !webhook.ReservedHeader(h.Name, s.names.prefix) {
			prepared.headers[h.Name] = []string{h.Value.Reveal()}
		}
	}
	prepared.request = &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if prepared.current, err = newSigners(t.Secret); err == nil && !t.Previous.IsZero() {
		prepared.previous, err = newSigners(t.Previous)
	}
	if err != nil {
		prepared.sendError = webhook.Failure{Class: webhook.ProtocolError, Text: "the signing secret cannot be used; rotate it"}
	}
	return prepared
}

// overlaps reports whether the previous secret signs too.
func (t *preparedTarget) overlaps(now time.Time) bool {
	return t.previous.hex != nil && now.UnixMilli() < t.PreviousUntil
}

// headerNames are the names with the prefix, in canonical form.
type headerNames struct {
	prefix                                                      string
	signature, previous, timestamp, eventID, eventType, attempt string
}

func newHeaderNames(prefix string) headerNames {
	name := func(rest string) string { return http.CanonicalHeaderKey(prefix + "-" + rest) }
	return headerNames{
		prefix, name("Signature"), name("Signature-Previous"), name("Timestamp"), name("Event-Id"), name("Event-Type"), name("Attempt"),
	}
}

// These headers are the same for all requests. The transport does not change them.
var (
	contentType = []string{"application/json"}
	userAgent   = []string{"Keyhook/1 (webhooks)"}
)

// header makes the headers of an attempt, with its signatures. All values are slices of one string, so a header costs
// two allocations and its map.
func (s *sender) header(t *preparedTarget, j *webhook.Job, now time.Time) http.Header {
	var scratch [256]byte // enough for all signatures in an overlap of two secrets, and two numbers
	var ends [5]int
	timestamp, overlap := now.Unix(), t.overlaps(now)

	text := t.current.hex.AppendHex(scratch[:0], timestamp, j.Body)
	ends[0] = len(text)
	if overlap {
		text = t.previous.hex.AppendHex(text, timestamp, j.Body)
	}
	ends[1] = len(text)
	text = t.current.standard.Append(text, j.EventID, timestamp, j.Body)
	if overlap {
		text = t.previous.standard.Append(append(text, ' '), j.EventID, timestamp, j.Body)
	}
	ends[2] = len(text)
	text = strconv.AppendInt(text, timestamp, 10)
	ends[3] = len(text)
	text = strconv.AppendInt(text, int64(j.Number()), 10)
	ends[4] = len(text)

	all := string(text)
	values := []string{
		all[:ends[0]], all[ends[0]:ends[1]], all[ends[1]:ends[2]], all[ends[2]:ends[3]], all[ends[3]:ends[4]],
		j.EventID, j.EventType,
	}
	h := make(http.Header, 12+len(t.headers))
	maps.Copy(h, t.headers)
	h["Content-Type"], h["User-Agent"] = contentType, userAgent
	h[s.names.signature] = values[0:1:1]
	if overlap {
		h[s.names.previous] = values[1:2:2]
	}
	h["Webhook-Signature"] = values[2:3:3]
	h[s.names.timestamp], h["Webhook-Timestamp"] = values[3:4:4], values[3:4:4]
	h[s.names.attempt] = values[4:5:5]
	h[s.names.eventID], h["Webhook-Id"] = values[5:6:6], values[5:6:6]
	h[s.names.eventType] = values[6:7:7]
	return h
}
