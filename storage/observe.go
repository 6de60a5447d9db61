package storage

import (
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Observer is told what happens in a store, by those who measure it. Its methods are called after the commit, most of them
// by the writer, and must return at once.
type Observer interface {
	// Committed tells of a transaction: how many writes shared it, and how long it took from BEGIN to being durable.
	Committed(writes int, took time.Duration)
	// Published tells of events that were accepted, repetitions aside.
	Published(events int)
	// Turned tells that a subscription's health has another status.
	Turned(to webhook.Status)
	// Interrupted tells how many attempts the last owner of the file has left behind.
	Interrupted(attempts int)
}

// unobserved is the Observer of a store that has none.
type unobserved struct{}

func (unobserved) Committed(int, time.Duration) {}
func (unobserved) Published(int)                {}
func (unobserved) Turned(webhook.Status)        {}
func (unobserved) Interrupted(int)              {}

// observeHealth tells the observer of a change of health, once that is committed.
func (s *Store) observeHealth(t *tx, from, to webhook.Status) {
	if from != to {
		t.OnCommit(func() { s.observer.Turned(to) })
	}
}

// accepted counts what was published now, and not at an earlier time under the same idempotency key.
func accepted(published []webhook.Published) (n int) {
	for i := range published {
		if !published[i].Replayed {
			n++
		}
	}
	return n
}
