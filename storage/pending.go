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
	mu      sync.Mutex
	count   map[int64]int64
	removed map[int64]bool // subscriptions that are gone and may have left something behind
	visited int64          // the last subscription that orphaned has listed
}

func (p *pendingCount) load(t *tx) error {
	var rows []struct {
		Subscription int64 `db:"subscription_id"`
		Pending      int64 `db:"pending"`
	}
	if err := t.List(&rows, "SELECT subscription_id, count(*) AS pending FROM deliveries WHERE state = "+statePending+" GROUP BY subscription_id"); err != nil {
		return fmt.Errorf("count pending deliveries: %w", err)
	}
	p.count, p.removed = make(map[int64]int64, len(rows)), map[int64]bool{}
	for _, r := range rows {
		p.count[r.Subscription] = r.Pending
		var removed bool
		if err := t.Get(&removed, "SELECT deleted_at IS NOT NULL FROM subscriptions WHERE id = ?", r.Subscription); err != nil {
			return fmt.Errorf("look for removed subscriptions: %w", err)
		}
		if removed {
			p.removed[r.Subscription] = true
		}
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

// all returns a copy of the numbers by subscription.
func (p *pendingCount) all() map[int64]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.count)
}

// total is how much is pending in all.
func (p *pendingCount) total() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pending := range p.count {
		n += pending
	}
	return n
}

// remove notes that a subscription is gone.
func (p *pendingCount) remove(subscription int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed[subscription] = true
}

// orphaned lists removed subscriptions for which something is still pending, at most so many, and forgets those for which
// nothing is. Each call goes on in order where the one before has ended, and begins anew after the last.
func (p *pendingCount) orphaned(most int) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.removed, func(subscription int64, _ bool) bool { return p.count[subscription] == 0 })
	rows := slices.Sorted(maps.Keys(p.removed))
	next, _ := slices.BinarySearch(rows, p.visited+1)
	rows = append(rows[next:], rows[:next]...)
	rows = rows[:min(most, len(rows))]
	if len(rows) > 0 {
		p.visited = rows[len(rows)-1]
	}
	return rows
}
