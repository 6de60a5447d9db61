package pending

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// subscriptionsPerRead limits how long one read of PendingSummary takes: about 5 ms.
const subscriptionsPerRead = 500

// PendingSummary counts the subscriptions and the pending deliveries of an organization, or of access.AllOrganizations. The
// summary of all organizations may be a few seconds old: with 300,000 subscriptions that have pending deliveries, a read takes
// seconds. Faults: Unavailable if too many reads of the organization's logs are running.
func (s *Survey) PendingSummary(ctx context.Context, organization int64) (webhook.PendingSummary, error) {
	if organization == access.AllOrganizations {
		return s.summaryOfAll.get(ctx, func(ctx context.Context) (sum webhook.PendingSummary, err error) {
			sum.Statuses = s.o.Statuses()
			sum.Blocked, err = s.blockedPending(ctx, s.o.Count.All())
			return sum, err
		})
	}
	end, err := s.o.Logs.Take(ctx, organization)
	if err != nil {
		return webhook.PendingSummary{}, err
	}
	defer end()
	var sum webhook.PendingSummary
	counts, err := s.pendingOf(ctx, organization, &sum.Statuses)
	if err != nil {
		return sum, err
	}
	sum.Blocked, err = s.blockedPending(ctx, counts)
	return sum, err
}

// pendingOf returns the pending deliveries of an organization by subscription. It counts all its subscriptions, of which there are
// at most 5,000.
func (s *Survey) pendingOf(ctx context.Context, organization int64, statuses *webhook.SubscriptionCounts) (map[int64]int64, error) {
	var rows []struct {
		Row    int64          `db:"id"`
		Status webhook.Status `db:"status"`
		Paused bool           `db:"paused"`
	}
	if err := s.o.Logs.List(ctx, &rows, `
		SELECT s.id, s.status, `+delivery.PausedByPerson+` AS paused FROM subscriptions s INDEXED BY subscriptions_live
		WHERE s.organization_id = ? AND s.deleted_at IS NULL`, organization); err != nil {
		return nil, err
	}
	counts := map[int64]int64{}
	for _, r := range rows {
		statuses.Add(webhook.Health{Status: r.Status, Paused: r.Paused}, 1)
		if n := s.o.Count.Of(r.Row); n > 0 {
			counts[r.Row] = n
		}
	}
	return counts, nil
}

// selectBlocked groups subscriptions by what blocks them. It leaves out deleted ones, whose deliveries are dropped soon.
var selectBlocked = `
	SELECT why AS blocked_by, count(*) AS subscriptions, sum(pending) AS deliveries, coalesce(min(due_at), 0) AS oldest_due
	FROM (
		SELECT ` + delivery.Why + ` AS why, j.value AS pending, ` + delivery.FirstDue("s.id") + ` AS due_at
		FROM json_each(?) j CROSS JOIN subscriptions s ON s.id = CAST(j.key AS INTEGER)
		CROSS JOIN organizations o ON o.id = s.organization_id CROSS JOIN plans p ON p.id = o.plan_id)
	WHERE why <> '` + string(webhook.BlockedByDeletion) + `'
	GROUP BY why`

// blockedPending groups pending deliveries, which are counted by subscription, by what blocks them.
func (s *Survey) blockedPending(ctx context.Context, counts map[int64]int64) ([]webhook.BlockedPending, error) {
	held := s.o.Hold() != nil
	found := map[webhook.Block]webhook.BlockedPending{}
	for rows := range slices.Chunk(slices.Sorted(maps.Keys(counts)), subscriptionsPerRead) {
		some := make(map[int64]int64, len(rows))
		for _, row := range rows {
			some[row] = counts[row]
		}
		began := time.Now()
		var groups []webhook.BlockedPending
		if err := s.o.Logs.List(ctx, &groups, selectBlocked, sqlite.RowCounts(some)); err != nil {
			return nil, err
		}
		for _, g := range groups {
			if g.By == webhook.NotBlocked && held {
				g.By = webhook.BlockedByHold
			}
			found[g.By] = found[g.By].Plus(g)
		}
		if len(rows) < subscriptionsPerRead {
			break
		}
		if err := scan.Pause(ctx, time.Since(began)); err != nil {
			return nil, err
		}
	}
	blocked := []webhook.BlockedPending{}
	for _, by := range webhook.Blocks() {
		if f, ok := found[by]; ok {
			blocked = append(blocked, f)
		}
	}
	return blocked, nil
}
