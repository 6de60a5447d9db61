package storage

import (
	"fmt"
	"sync"

	"github.com/keyhook/keyhook/storage/webhook"
)

// subscriptionCount counts the subscriptions by status, because counting 100,000 rows at each scrape takes too long. It is
// exact: Open loads it once, and the writer updates it after each commit.
type subscriptionCount struct {
	mu     sync.Mutex
	counts webhook.SubscriptionCounts
}

func (c *subscriptionCount) load(t *tx) error {
	if err := t.Get(&c.counts, `
		SELECT count(*) FILTER (WHERE status = 'healthy') AS healthy, count(*) FILTER (WHERE status = 'failing') AS failing,
		       count(*) FILTER (WHERE status = 'disabled') AS disabled, coalesce(sum(paused), 0) AS paused
		FROM subscriptions WHERE deleted_at IS NULL`); err != nil {
		return fmt.Errorf("count subscriptions: %w", err)
	}
	return nil
}

// countSubscription counts a subscription n times after the commit.
func (s *Store) countSubscription(t *tx, h webhook.Health, n int64) {
	t.OnCommit(func() {
		s.subscriptions.mu.Lock()
		defer s.subscriptions.mu.Unlock()
		s.subscriptions.counts.Add(h, n)
	})
}

// SubscriptionCounts returns the numbers of subscriptions by status, of all organizations.
func (s *Store) SubscriptionCounts() webhook.SubscriptionCounts {
	s.subscriptions.mu.Lock()
	defer s.subscriptions.mu.Unlock()
	return s.subscriptions.counts
}
