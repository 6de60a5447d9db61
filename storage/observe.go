package storage

import (
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Observer receives figures for metrics after each commit. The writer makes most of the calls, so the methods must
// return at once.
type Observer interface {
	// Committed reports a commit: how many writes shared it, and the time from BEGIN until it was durable.
	Committed(writes int, took time.Duration)
	// Published reports accepted events, without repeated ones.
	Published(events int)
	// HealthChanged reports the new status of a subscription's health.
	HealthChanged(to webhook.Status)
	// Expired reports how many pending deliveries retention deleted.
	Expired(deliveries int)
	// Interrupted reports how many attempts the last owner of the file left unfinished.
	Interrupted(attempts int)
}

// noObserver is the default Observer.
type noObserver struct{}

func (noObserver) Committed(int, time.Duration) {}
func (noObserver) Published(int)                {}
func (noObserver) HealthChanged(webhook.Status) {}
func (noObserver) Expired(int)                  {}
func (noObserver) Interrupted(int)              {}

// observeHealth counts a subscription under its new health, and reports a changed status to the observer after the commit.
func (s *Store) observeHealth(t *tx, from, to webhook.Health) {
	s.countSubscription(t, from, -1)
	s.countSubscription(t, to, 1)
	if from.Status != to.Status {
		t.OnCommit(func() { s.observer.HealthChanged(to.Status) })
	}
}
