package sender

import (
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

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

// header makes the headers of an attempt, signed. All values are slices of one string, so it costs two allocations and its map.
func (s *Sender) header(t *Target, j *webhook.Job, now time.Time) http.Header {
	var scratch [256]byte // enough for all signatures in an overlap of two secrets, and two numbers
	var ends [5]int
	timestamp, overlap := now.Unix(), t.previous != nil && now.UnixMilli() < t.PreviousUntil

	text := t.current.AppendHex(scratch[:0], timestamp, j.Body)
	ends[0] = len(text)
	if overlap {
		text = t.previous.AppendHex(text, timestamp, j.Body)
	}
	ends[1] = len(text)
	text = t.current.AppendStandard(text, j.EventID, timestamp, j.Body)
	if overlap {
		text = t.previous.AppendStandard(append(text, ' '), j.EventID, timestamp, j.Body)
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

// SentHeaders returns Keyhook's headers of an attempt, with masked signatures, because nobody can compute them again without the
// secret of that time. The timestamp is the time of the record: the request itself may have been sent some seconds later. If the
// secret was being replaced at that time, the request also had a signature with the previous secret.
func (s *Sender) SentHeaders(a webhook.Attempt) http.Header {
	names := s.names
	timestamp := strconv.FormatInt(a.AttemptedAt/1000, 10)
	h := http.Header{"Content-Type": contentType, "User-Agent": userAgent}
	for name, value := range map[string]string{
		names.signature: webhook.Masked, names.timestamp: timestamp, names.eventID: a.EventID, names.eventType: a.EventType,
		names.attempt:       strconv.Itoa(a.Number),
		"Webhook-Signature": "v1," + webhook.Masked, "Webhook-Timestamp": timestamp, "Webhook-Id": a.EventID,
	} {
		h[name] = []string{value}
	}
	return h
}
