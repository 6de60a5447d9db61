// Package history owns the reads of what was published, sent and changed: lists, counts, facts and searches of events, deliveries,
// attempts, subscriptions and the audit log. It writes nothing, and does not know how the rows are made.
package history

import (
	"time"

	"github.com/keyhook/keyhook/storage/pending"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// History is the part of the open database that answers questions.
type History struct{ o Options }

// Options are what a history needs. All are required, except KeepEvents.
type Options struct {
	Reads   *sqlite.Pool // for single rows
	Logs    *scan.Reader // for lists, which may read many rows
	IDs     publicid.Maker
	Policy  webhook.Policy
	Pending *pending.Count

	Hold        func() *webhook.Hold        // the hold of the queue, or nil
	KeepEvents  time.Duration               // how long events are kept; 0 means forever
	TrustedTime func() (now int64, ok bool) // the time in milliseconds; ok is false while the clock is in doubt
}

// New returns the history of an open database.
func New(o Options) *History { return &History{o} }

// EventRetention returns how long events are kept; 0 means forever. That is so while the clock is in doubt, too: nothing is deleted then.
func (h *History) EventRetention() time.Duration {
	if _, trusted := h.o.TrustedTime(); !trusted {
		return 0
	}
	return h.o.KeepEvents
}
