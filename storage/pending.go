package storage

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/webhook"
)

// pendingCount counts the pending deliveries of each subscription, because counting a million rows takes seconds. It is
// exact: Open loads it once, and the writer updates it after each commit.
type pendingCount struct {
	mu         sync.Mutex
	count      map[int64]int64
	removed    map[int64]bool // deleted subscriptions that may have pending deliveries
	lastListed int64          // the last subscription that orphaned returned
}

func (p *pendingCount) load(t *tx) error {
	var rows []struct {
		Subscription int64 `db:"subscription_id"`
		Pending      int64 `db:"pending"`
	}
	if err := t.List(&rows, "SELECT subscription_id, count(*) AS pending FROM deliveries WHERE state = "+delivery.Pending+" GROUP BY subscription_id"); err != nil {
		return fmt.Errorf("count pending deliveries: %w", err)
	}
	p.count, p.removed = make(map[int64]int64, len(rows)), map[int64]bool{}
	for _, r := range rows {
		p.count[r.Subscription] = r.Pending
		var removed bool
		if err := t.Get(&removed, "SELECT deleted_at IS NOT NULL FROM subscriptions WHERE id = ?", r.Subscription); err != nil {
			return fmt.Errorf("look for deleted subscriptions: %w", err)
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

// addAll adds new pending deliveries.
func (p *pendingCount) addAll(jobs []webhook.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range jobs {
		p.count[jobs[i].Subscription]++
	}
}

func (p *pendingCount) of(subscription int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[subscription]
}

// all returns a copy of the counts by subscription.
func (p *pendingCount) all() map[int64]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.count)
}

// total returns the number of all pending deliveries.
func (p *pendingCount) total() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pending := range p.count {
		n += pending
	}
	return n
}

// remove marks a subscription as deleted.
func (p *pendingCount) remove(subscription int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed[subscription] = true
}

// orphaned lists up to most deleted subscriptions with pending deliveries. It forgets those without any. Each call
// continues after the subscriptions of the last call, and starts again at the end.
func (p *pendingCount) orphaned(most int) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.removed, func(subscription int64, _ bool) bool { return p.count[subscription] == 0 })
	rows := slices.Sorted(maps.Keys(p.removed))
	next, _ := slices.BinarySearch(rows, p.lastListed+1)
	rows = append(rows[next:], rows[:next]...)
	rows = rows[:min(most, len(rows))]
	if len(rows) > 0 {
		p.lastListed = rows[len(rows)-1]
	}
	return rows
}
