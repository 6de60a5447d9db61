package pending

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Count counts the pending deliveries of each subscription, because counting a million rows takes seconds. It is
// exact: the owner of the file loads it once, and the writer updates it after each commit.
type Count struct {
	mu         sync.Mutex
	count      map[int64]int64
	removed    map[int64]bool // deleted subscriptions that may have pending deliveries
	lastListed int64          // the last subscription that Orphaned returned
}

// NewCount returns a count of nothing.
func NewCount() *Count { return &Count{count: map[int64]int64{}, removed: map[int64]bool{}} }

// Load counts the pending deliveries in the file.
func (c *Count) Load(t *sqlite.Tx) error {
	var rows []struct {
		Subscription int64 `db:"subscription_id"`
		Pending      int64 `db:"pending"`
		Removed      bool  `db:"removed"`
	}
	if err := t.List(&rows, `
		SELECT subscription_id, count(*) AS pending, (SELECT deleted_at IS NOT NULL FROM subscriptions WHERE id = subscription_id) AS removed
		FROM deliveries WHERE state = `+delivery.Pending+` GROUP BY subscription_id`); err != nil {
		return fmt.Errorf("count pending deliveries: %w", err)
	}
	for _, r := range rows {
		c.count[r.Subscription] = r.Pending
		if r.Removed {
			c.removed[r.Subscription] = true
		}
	}
	return nil
}

// Add adds n pending deliveries of a subscription.
func (c *Count) Add(subscription, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[subscription] += n; c.count[subscription] == 0 {
		delete(c.count, subscription)
	}
}

// AddAll adds new pending deliveries.
func (c *Count) AddAll(jobs []webhook.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range jobs {
		c.count[jobs[i].Subscription]++
	}
}

// Of returns the number of pending deliveries of a subscription.
func (c *Count) Of(subscription int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[subscription]
}

// All returns a copy of the counts by subscription.
func (c *Count) All() map[int64]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.count)
}

// Total returns the number of all pending deliveries.
func (c *Count) Total() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pending := range c.count {
		n += pending
	}
	return n
}

// Remove marks a subscription as deleted.
func (c *Count) Remove(subscription int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed[subscription] = true
}

// Orphaned lists up to most deleted subscriptions with pending deliveries. It forgets those without any. Each call
// continues after the subscriptions of the last call, and starts again at the end.
func (c *Count) Orphaned(most int) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.removed, func(subscription int64, _ bool) bool { return c.count[subscription] == 0 })
	rows := slices.Sorted(maps.Keys(c.removed))
	next, _ := slices.BinarySearch(rows, c.lastListed+1)
	rows = append(rows[next:], rows[:next]...)
	rows = rows[:min(most, len(rows))]
	if len(rows) > 0 {
		c.lastListed = rows[len(rows)-1]
	}
	return rows
}
