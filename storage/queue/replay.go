package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// healthNews lists the types of events about the health of subscriptions, in SQL; see access.HealthNews.
var healthNews = "'" + strings.Join(access.HealthNewsTypes(), "', '") + "'"

const (
	// replayEvents is how many events a replay reads at once, at most. So one transaction creates at most as many deliveries.
	// That costs 2 ms of CPU for the read and 3 ms for the transaction, for which other writes wait.
	replayEvents = 250
	// replayTimeout is how long a replay waits for the transaction of a chunk. It does not give up earlier, because it
	// must know how many deliveries the transaction created.
	replayTimeout = 10 * time.Second
)

// Replay creates deliveries of the events of a period that the subscription has not received, and counts them. It skips events with a
// pending delivery, so a repeated request creates no delivery twice. What an interrupted replay created stays, and the next request
// continues from there. A disabled subscription gets its deliveries when it is activated. A dry run only counts. Faults: NotFound;
// Forbidden if the plan has no webhooks; Unavailable if the context ends first.
func (q *Queue) Replay(ctx context.Context, by access.Actor, organization int64, id string, r webhook.Replay) (created webhook.Replayed, err error) {
	p, err := q.openReplay(ctx, organization, id, r.WithoutAudit, r.DryRun)
	if err != nil {
		return created, err
	}
	p.by, p.only, p.since, p.until = by.Authority, r.Only, r.Since, cmp.Or(r.Until, p.until) // without an end, the last row id is the limit
	p.exact, p.prefix = fanout.PatternLists(p.sub.EventTypes.Common(r.EventTypes))
	end, err := q.o.Replays.Take(ctx, organization)
	if err != nil {
		return created, err
	}
	ranges, err := q.o.Replays.Period(ctx, p.since, p.until, p.rows, p.disorder)
	end()
	for i := 0; i < len(ranges) && err == nil; i++ {
		rows := ranges[i]
		err = q.inSlices(ctx, p, func(most int) (chunk, error) { return q.nextChunk(ctx, p, rows, most) },
			func(c chunk, made webhook.Replayed) {
				rows.After = c.Reached
				created.Add(made)
			})
	}
	if p.dryRun || err != nil && created.Total() == 0 {
		return created, err
	}
	return created, errors.Join(unfinishedReplay(ctx, created.Total(), err), q.auditReplay(ctx, by, p, r, created.Total(), err == nil))
}

// replayQuery describes the events that a replay reads, and those that it selects.
type replayQuery struct {
	by            access.Authority     // whose permissions are read again before each change; zero: the program itself
	sub           webhook.Subscription // when the replay began
	organization  int64
	now           int64      // start of the replay
	rows          scan.Range // the events since the creation of the subscription
	disorder      int64
	since, until  int64  // times of the events
	exact, prefix string // JSON arrays of whole types and of prefixes
	only          webhook.Only
	ended         webhook.DeliveryState // the state of deliveries that are sent again
	unless        webhook.DeliveryState // not if the event has a delivery in this state, or a pending one
	excludedTypes string                // JSON array of types that the subscription never receives
	filter        string                // of the subscription, see filter.Filter.Text; empty: every event passes
	dryRun        bool
}

// openReplay finds the subscription. Later events do not belong to the replay, nor do those from before the subscription was created.
// Row ids decide that, because the clock may have been wrong.
func (q *Queue) openReplay(ctx context.Context, organization int64, id string, withoutAudit, dryRun bool) (replayQuery, error) {
	return returning(ctx, q, sqlite.Work{Payer: organization}, func(t *tx) (replayQuery, error) {
		sub, err := q.receiver(t, organization, id)
		if err != nil {
			return replayQuery{}, err
		}
		p := replayQuery{
			sub: sub, organization: organization, now: t.Now(), rows: scan.Range{Last: t.lastEvent}, disorder: t.disorder, until: math.MaxInt64,
			ended: webhook.Exhausted, unless: webhook.Delivered, excludedTypes: excludedTypes(sub, withoutAudit), filter: sub.Filter.Text(),
			dryRun: dryRun,
		}
		if err := t.Get(&p.rows.After, "SELECT birth FROM subscriptions WHERE id = ?", sub.RowID); err != nil {
			return p, fmt.Errorf("find the event of the subscription's creation: %w", err)
		}
		return p, t.Quotas.RequireWebhooks(t.Tx, organization)
	})
}

// excludedTypes returns, as a JSON array, the event types that a subscription never receives, even if it wants them, or not now.
func excludedTypes(sub webhook.Subscription, withoutAudit bool) string {
	return history.HiddenTypes(withoutAudit || !audit.Receives(sub))
}

// replayable is the condition for events that a replay delivers. args returns its parameters. Test events are left out, and so are events
// about the subscription itself. An event about the health of another subscription was not missed: only some subscriptions receive it.
var replayable = `
	e.created_at >= :since AND e.created_at < :until AND ` + fanout.Wanted + `
	AND e.about IS NOT :subscription
	AND ` + delivery.NotTest + `
	AND (:only <> 'failed' AND e.type NOT IN (` + healthNews + `)
	    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = :subscription)
	  OR :only <> 'missed' AND EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = :subscription AND d.state = :ended)
	    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = :subscription AND d.state IN (` + delivery.Pending + `, ` + delivery.Sending + `, :unless)))
	AND ` + fanout.Passes

// replayReason is why a subscription has not received a replayable event: a column of webhook.Replayed. It has the parameters of replayable.
const replayReason = `
	CASE WHEN EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = :subscription) THEN 'exhausted'
	     WHEN e.held IS NULL THEN 'plan' WHEN e.created_at < :filter_changed_at THEN 'filter_changed' ELSE 'type_added' END`

// replayCounts are the columns of webhook.Replayed for rows with a replayReason. The reason is NULL for other rows.
const replayCounts = `
	count(*) FILTER (WHERE reason = 'exhausted') AS exhausted, count(*) FILTER (WHERE reason = 'plan') AS plan,
	count(*) FILTER (WHERE reason = 'type_added') AS type_added, count(*) FILTER (WHERE reason = 'filter_changed') AS filter_changed`

// args returns the parameters of replayable, and the organization; more are those of the rest of the statement. It leaves out events
// that retention may have started to delete: without all their deliveries, nobody knows their state. While the clock is in doubt, no event
// is too old.
func (q *Queue) args(p replayQuery, now int64, more ...any) []any {
	since := p.since
	if kept := q.o.History.EventRetention(); kept > 0 {
		since = max(since, now-kept.Milliseconds())
	}
	return append([]any{
		sql.Named("organization", p.organization), sql.Named("subscription", p.sub.RowID), sql.Named("since", since),
		sql.Named("until", p.until), sql.Named("exact", p.exact), sql.Named("prefix", p.prefix), sql.Named("only", p.only),
		sql.Named("ended", p.ended), sql.Named("unless", p.unless),
		sql.Named("excluded", p.excludedTypes), sql.Named("filter", p.filter), sql.Named("filter_changed_at", p.sub.FilterChangedAt),
	}, more...)
}

type chunk struct {
	Seen      int64  `db:"seen"`
	Reached   int64  `db:"reached"`    // the last row that was read
	ReachedAt int64  `db:"reached_at"` // the end of the last delivery that a recovery has read
	Rows      string `db:"rows"`       // the selected rows, as a JSON array
	webhook.Replayed
}

// inSlices calls read with the number of rows that it may read, creates the deliveries of that chunk and reports them to created, until
// read has seen fewer rows. After each slice, others get their turn. A filter parses bodies: 250 of 256 KiB take several seconds. So it
// begins with few rows, and goes on with as many as take a few milliseconds.
func (q *Queue) inSlices(ctx context.Context, p replayQuery, read func(most int) (chunk, error), created func(chunk, webhook.Replayed)) error {
	rows := replayEvents
	if p.filter != "" {
		rows = scan.CostlySlice
	}
	return scan.Batches(ctx, 0, func() (more bool, err error) {
		var c chunk
		next, err := q.o.Replays.Slice(ctx, p.organization, rows, replayEvents, func() (err error) {
			c, err = read(rows)
			return err
		})
		if err != nil {
			return false, fmt.Errorf("read what to send again: %w", err)
		}
		more, rows = c.Seen == int64(rows), next
		made, err := q.replayChunk(ctx, p, c)
		if err == nil {
			created(c, made)
		}
		return more, err
	})
}

func (q *Queue) nextChunk(ctx context.Context, p replayQuery, rows scan.Range, most int) (c chunk, err error) {
	err = q.o.Replays.Pool.Get(ctx, &c, `
		SELECT count(*) AS seen, coalesce(max(looked.id), 0) AS reached,
		       json_group_array(looked.id) FILTER (WHERE looked.reason IS NOT NULL) AS rows, `+replayCounts+`
		FROM (
			SELECT e.id, CASE WHEN (`+replayable+`) THEN `+replayReason+` END AS reason
			FROM events e INDEXED BY events_by_organization
			WHERE e.organization_id = :organization AND e.id > :after AND e.id <= :last ORDER BY e.id LIMIT :most) looked`,
		q.args(p, p.now, sql.Named("after", rows.After), sql.Named("last", rows.Last), sql.Named("most", most))...)
	return c, err
}

// replayChunk creates deliveries of the selected events of a chunk; in a dry run, it only counts them. It checks again that they
// are replayable, because another replay or a redelivery may have come first.
//
// Only one replay of an organization at a time writes, so that the waits of other writers do not add up. The replays of others do not
// wait for it: its write may wait long behind what the same organization publishes. Once it has its turn, it ignores the end of the
// context, so that it knows its result.
func (q *Queue) replayChunk(ctx context.Context, p replayQuery, c chunk) (webhook.Replayed, error) {
	if p.dryRun || c.Total() == 0 {
		return c.Replayed, nil
	}
	end, err := q.o.Replays.Take(ctx, p.organization)
	if err != nil {
		return webhook.Replayed{}, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	made, err := returning(ctx, q, sqlite.Work{Payer: p.organization, Cost: int(c.Total())}, func(t *tx) (webhook.Replayed, error) {
		return q.insertReplay(t, p, c)
	})
	if err != nil {
		return webhook.Replayed{}, fmt.Errorf("replay: %w", err)
	}
	return made, nil
}

// replayableRows selects those of some events that are replayable.
var replayableRows = `
	SELECT json_group_array(id) AS rows, ` + replayCounts + `
	FROM (
		SELECT e.id, ` + replayReason + ` AS reason FROM json_each(:rows) wanted CROSS JOIN events e ON e.id = wanted.value
		WHERE e.organization_id = :organization AND ` + replayable + `)`

// insertReplay is replayChunk in a transaction.
func (q *Queue) insertReplay(t *tx, p replayQuery, c chunk) (made webhook.Replayed, err error) {
	if err := principal.Require(t.Tx, p.by, access.WebhooksWrite); err != nil {
		return made, err // it was revoked since the replay began
	}
	sub, err := q.receiver(t, p.organization, p.sub.ID)
	if err != nil {
		return made, err
	}
	p.excludedTypes = excludedTypes(sub, false) // it may have changed since the replay began
	p.filter = ""                               // the events of the chunk have passed it
	room := t.Quotas.Require(t.Tx, p.organization, int(c.Total())*quota.PerDelivery)
	if err := cmp.Or(t.Quotas.RequireWebhooks(t.Tx, p.organization), room); err != nil {
		return made, err
	}
	var checked chunk
	if err := t.Get(&checked, replayableRows, q.args(p, t.Now(), sql.Named("rows", c.Rows))...); err != nil {
		return made, err
	}
	n := checked.Total()
	if n == 0 {
		return made, nil
	}
	if err := t.Exec(`
		INSERT INTO deliveries (id, event_id, subscription_id, state, cause, attempts, due_at, sequence)
		SELECT ? + key, value, ?, `+delivery.Pending+`, `+delivery.CauseHand+`, 0, ?, iif(?, value, NULL) FROM json_each(?)`,
		t.lastDelivery+1, sub.RowID, t.Now(), sub.Ordered, checked.Rows); err != nil {
		return made, err
	}
	t.lastDelivery += n
	t.Quotas.Count(t.Tx, p.organization, int(n)*quota.PerDelivery)
	t.OnCommit(func() { q.pending.Add(sub.RowID, n) })
	t.announceChange(sub.RowID)
	return checked.Replayed, nil
}

// auditReplay writes the audit event of a replay. complete is false if the replay was interrupted. On a full disk, it fails too.
func (q *Queue) auditReplay(ctx context.Context, by access.Actor, p replayQuery, r webhook.Replay, created int64, complete bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	return q.change(ctx, sqlite.Work{Payer: p.organization}, func(t *tx) error {
		return t.audit(by, p.organization, access.SubscriptionReplayed, audit.Subscription(p.sub.ID, p.sub.RowID), map[string]any{
			"since": string(webhook.AppendTime(nil, r.Since)), "until": string(webhook.AppendTime(nil, cmp.Or(r.Until, p.now))),
			"event_types": r.EventTypes.Unique(), "only": r.Only, "deliveries": created, "complete": complete,
		})
	})
}

// unfinishedReplay explains a replay that ran out of time or could not use the disk.
func unfinishedReplay(ctx context.Context, created int64, err error) error {
	if err == nil || ctx.Err() == nil && fault.KindOf(err) != fault.Unavailable {
		return err
	}
	return fault.New(fault.Unavailable, "replay_unfinished",
		"The replay ended early, after %d deliveries. Send the same request again to continue.", created).Because(err)
}
