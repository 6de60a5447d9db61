package dispatch

import (
	"net/http"
	"strconv"

	"github.com/keyhook/keyhook/storage/webhook"
)

// SentHeaders returns Keyhook's headers of an attempt, with masked signatures, because nobody can compute them again without the
// secret of that time. The timestamp is the time of the record: the request itself may have been sent some seconds later. If the
// secret was being replaced at that time, the request also had a signature with the previous secret.
func (d *Dispatcher) SentHeaders(a webhook.Attempt) http.Header {
	names := d.sender.names
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
