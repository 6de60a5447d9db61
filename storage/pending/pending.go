// Package pending owns the exact count of pending deliveries, and the reads about all of them: lanes, backlog and summaries. It
// does not know how deliveries are made or sent.
package pending

import (
	"cmp"
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

// Survey reads what is pending in the open database.
type Survey struct {
	o            Options
	summaryOfAll sharedRead[webhook.PendingSummary]
	figures      sharedRead[map[int64]access.OrganizationFigures]
}

// Options are what a survey needs. All are required.
type Options struct {
	Count *Count
	Reads *sqlite.Pool // for requests
	All   *sqlite.Pool // reads all pending deliveries; no request waits for it
	Logs  *scan.Reader // for reads of one organization

	Hold       func() *webhook.Hold              // the hold of the queue, or nil
	ReleasedAt func() int64                      // when the queue was released, in milliseconds; 0 if it was not held
	Statuses   func() webhook.SubscriptionCounts // the subscriptions of all organizations by status
}

// New returns the survey of an open database.
func New(o Options) *Survey {
	return &Survey{o: o, summaryOfAll: newSharedRead[webhook.PendingSummary](), figures: newSharedRead[map[int64]access.OrganizationFigures]()}
}

// Lanes lists the subscriptions with pending deliveries, whether open or not. The cost depends on their number, not on
// the number of deliveries. The counts are in memory, and the earliest delivery of each is one step into the index.
func (s *Survey) Lanes(ctx context.Context) ([]webhook.Lane, error) {
	return sqlite.All[webhook.Lane](s.o.All.In(ctx), selectLanes, sqlite.RowList(maps.Keys(s.o.Count.All())))
}

var selectLanes = `
	SELECT * FROM (
		SELECT j.value AS subscription_id, coalesce(s.organization_id, 0) AS organization_id,
		       iif(s.ordered, ` + firstDueInOrder("j.value") + `, (SELECT first.due_at FROM deliveries first WHERE first.id = (` + delivery.FirstPending("j.value") + `))) AS due_at
		FROM json_each(?) j LEFT JOIN subscriptions s ON s.id = j.value)
	WHERE due_at IS NOT NULL`

// firstDueInOrder returns an SQL expression of the earliest time at which an ordered subscription has something to send.
func firstDueInOrder(subscription string) string {
	return `(SELECT min(due_at) FROM (
		SELECT first.due_at FROM deliveries first WHERE first.id = (` + delivery.FirstInOrder(subscription) + `)
		UNION ALL
		SELECT min(d.due_at) FROM deliveries d INDEXED BY deliveries_ordered
		WHERE d.subscription_id = ` + subscription + ` AND d.state = ` + delivery.Pending + ` AND d.sequence = 0))`
}

// QueueSummary describes the pending deliveries and the hold. It costs as much as Lanes.
func (s *Survey) QueueSummary(ctx context.Context) (webhook.Queue, error) {
	counts := s.o.Count.All()
	q := webhook.Queue{Hold: s.o.Hold(), Subscriptions: int64(len(counts)), Largest: []webhook.Queued{}}
	for _, n := range counts {
		q.Deliveries += n
	}
	largest := slices.SortedFunc(maps.Keys(counts), func(a, b int64) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, row := range largest[min(len(largest), webhook.MaxQueued):] {
		delete(counts, row)
	}
	err := s.o.Reads.List(ctx, &q.Largest, `
		SELECT s.public_id AS subscription_public_id, o.public_id AS organization_public_id, o.external_id AS organization_external_id, o.name AS organization_name,
		       s.url, j.value AS pending, coalesce(`+delivery.FirstDue("s.id")+`, 0) AS oldest_due
		FROM json_each(?) j
		JOIN subscriptions s ON s.id = CAST(j.key AS INTEGER) JOIN organizations o ON o.id = s.organization_id`, sqlite.RowCounts(counts))
	slices.SortFunc(q.Largest, func(a, b webhook.Queued) int {
		return cmp.Or(cmp.Compare(b.Pending, a.Pending), cmp.Compare(a.SubscriptionID, b.SubscriptionID))
	})
	return q, err
}

// OrganizationFigures returns the figures of all organizations by row id. They may be some seconds old: with 10,000 organizations that all
// have pending deliveries, the read takes 40 ms. SQLite would take twice the time to add up.
func (s *Survey) OrganizationFigures(ctx context.Context) (map[int64]access.OrganizationFigures, error) {
	return s.figures.get(ctx, func(ctx context.Context) (map[int64]access.OrganizationFigures, error) {
		var found []access.OrganizationFigures
		err := s.o.Logs.List(ctx, &found, `
			SELECT o.id, 0 AS in_trouble, 0 AS pending, coalesce(o.last_event_at, 0) AS last_event_at,
			       (SELECT coalesce(sum(u.events), 0) FROM organization_days u WHERE u.organization_id = o.id AND u.day BETWEEN ?2 AND ?2 + 30) AS events FROM organizations o
			UNION ALL SELECT s.organization_id, 1, 0, 0, 0 FROM subscriptions s INDEXED BY subscriptions_in_trouble
			WHERE s.status <> 'healthy' AND s.paused = 0 AND s.deleted_at IS NULL AND NOT `+delivery.PausedByPerson+`
			UNION ALL SELECT s.organization_id, 0, j.value, 0, 0 FROM json_each(?1) j CROSS JOIN subscriptions s ON s.id = CAST(j.key AS INTEGER)
			WHERE s.deleted_at IS NULL`, sqlite.RowCounts(s.o.Count.All()), time.Now().Unix()/(24*60*60)-30)
		figures := make(map[int64]access.OrganizationFigures, len(found))
		for _, f := range found {
			sum := figures[f.RowID]
			figures[f.RowID] = access.OrganizationFigures{
				RowID: f.RowID, InTrouble: sum.InTrouble + f.InTrouble, Pending: sum.Pending + f.Pending, LastEventAt: sum.LastEventAt + f.LastEventAt, Events: sum.Events + f.Events,
			}
		}
		return figures, err
	})
}

// selectBacklog counts lanes and pending deliveries in one pass. Deliveries that wait for a rate limit, or behind others of an
// ordered subscription, are not late.
var selectBacklog = `
	SELECT count(*) FILTER (WHERE state = 'healthy') AS "healthy.lanes",
	       coalesce(sum(pending) FILTER (WHERE state = 'healthy'), 0) AS "healthy.deliveries",
	       count(*) FILTER (WHERE state = 'failing') AS "failing.lanes",
	       coalesce(sum(pending) FILTER (WHERE state = 'failing'), 0) AS "failing.deliveries",
	       count(*) FILTER (WHERE state = 'disabled') AS "closed.lanes",
	       coalesce(sum(pending) FILTER (WHERE state = 'disabled'), 0) AS "closed.deliveries",
	       coalesce(min(due_at) FILTER (WHERE state <> 'disabled' AND NOT paced), 0) AS oldest_due
	FROM (
		SELECT j.value AS pending,
		       iif(` + delivery.Why + ` = '', s.status, 'disabled') AS state,
		       s.rate_limit_per_second IS NOT NULL OR s.ordered AS paced,
		       max(s.probe_at, ` + delivery.FirstDue("s.id") + `) AS due_at
		FROM json_each(?) j
		JOIN subscriptions s ON s.id = CAST(j.key AS INTEGER)
		JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id)`

// Backlog counts the pending deliveries by the state of their subscriptions. It costs as much as Lanes.
func (s *Survey) Backlog(ctx context.Context) (webhook.Backlog, error) {
	var b webhook.Backlog
	err := s.o.All.Get(ctx, &b, selectBacklog, sqlite.RowCounts(s.o.Count.All()))
	b.Held = s.o.Hold() != nil
	switch {
	case b.Held:
		b.OldestDue = 0
	case b.OldestDue != 0:
		b.OldestDue = max(b.OldestDue, s.o.ReleasedAt())
	}
	return b, err
}

// sharedRead is the last result of a read that takes long. All who ask while it is fresh get it, and one reads it again.
type sharedRead[T any] struct {
	lock  chan struct{} // has a token while somebody uses the other fields
	value T
	until time.Time
}

func newSharedRead[T any]() sharedRead[T] { return sharedRead[T]{lock: make(chan struct{}, 1)} }

const freshTimes = 10 // a result is fresh for so many times the time that its read took

// get returns the last result while it is fresh, and otherwise a new one.
func (r *sharedRead[T]) get(ctx context.Context, read func(context.Context) (T, error)) (value T, err error) {
	select {
	case r.lock <- struct{}{}:
		defer func() { <-r.lock }()
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
	began := time.Now()
	if began.Before(r.until) {
		return r.value, nil
	}
	if value, err = read(ctx); err != nil {
		return value, err
	}
	end := time.Now()
	r.value, r.until = value, end.Add(freshTimes*end.Sub(began))
	return value, nil
}

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
	rows := slices.Sorted(maps.Keys(counts))
	if err := scan.Batches(ctx, 0, func() (more bool, err error) {
		some := map[int64]int64{}
		for _, row := range rows[:min(len(rows), subscriptionsPerRead)] {
			some[row] = counts[row]
		}
		rows = rows[len(some):]
		var groups []webhook.BlockedPending
		err = s.o.Logs.List(ctx, &groups, selectBlocked, sqlite.RowCounts(some))
		for _, g := range groups {
			if g.By == webhook.NotBlocked && held {
				g.By = webhook.BlockedByHold
			}
			found[g.By] = found[g.By].Plus(g)
		}
		return len(rows) > 0, err
	}); err != nil {
		return nil, err
	}
	blocked := []webhook.BlockedPending{}
	for _, by := range webhook.Blocks() {
		if f, ok := found[by]; ok {
			blocked = append(blocked, f)
		}
	}
	return blocked, nil
}
