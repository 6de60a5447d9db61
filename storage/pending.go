package storage

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// pendingCount keeps the number of pending deliveries per subscription, because counting a million rows takes seconds.
// It is exact: it is loaded once, and the writer moves it after each commit.
type pendingCount struct {
	mu    sync.Mutex
	count map[int64]int64
}

func (p *pendingCount) load(t *tx) error {
	var rows []struct {
		Subscription int64 `db:"subscription_id"`
		Pending      int64 `db:"pending"`
	}
	if err := t.list(&rows, "SELECT subscription_id, count(*) AS pending FROM deliveries WHERE state = 0 GROUP BY subscription_id"); err != nil {
		return fmt.Errorf("count pending deliveries: %w", err)
	}
	p.count = make(map[int64]int64, len(rows))
	for _, r := range rows {
		p.count[r.Subscription] = r.Pending
	}
	return nil
}

func (p *pendingCount) add(subscription, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count[subscription] += n; p.count[subscription] == 0 {
		delete(p.count, subscription)
	}
}

func (p *pendingCount) of(subscription int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[subscription]
}

// subscriptions lists those that have pending deliveries, in order.
func (p *pendingCount) subscriptions() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.count))
}
