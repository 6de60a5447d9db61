package storage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	// replayEvents is how many events a replay looks at in one read, and so the most that it makes deliveries of in one
	// transaction. That costs 2 ms of a processor in the read and 3 ms in the transaction, for which other writes wait.
	replayEvents = 250
	// replayWait is how long a replay waits for the transaction of a chunk, whose number it must know.
	replayWait = 10 * time.Second
)

// EventsKept is how long events are kept; 0 is for ever.
func (s *Store) EventsKept() time.Duration { return s.retention.events }

// Replay makes new deliveries of what the subscription has not got of the events of a period, and returns how many. What
// is pending is left alone, so the same request, repeated, makes nothing twice; and it goes on where one was cut off:
// what that has made stays. A disabled subscription gets its deliveries when it is activated. Faults: NotFound,
// Forbidden where the plan lacks webhooks, Unavailable where the context ends first.
func (s *Store) Replay(ctx context.Context, by access.Actor, organization int64, id string, r webhook.Replay) (int64, error) {
	p, err := s.openReplay(ctx, organization, id, r)
	if err != nil {
		return 0, err
	}
	var made int64
	err = s.walk(ctx, p, func(c chunk) error {
		n, err := s.replaySome(ctx, p, c)
		made += n
		return err
	})
	if err != nil && made == 0 {
		return 0, err
	}
	return made, errors.Join(s.auditReplay(ctx, by, p, r, made, err == nil), unfinished(ctx, made, err))
}

// CountReplay returns how many deliveries Replay would make, and makes none. Faults: as Replay.
func (s *Store) CountReplay(ctx context.Context, organization int64, id string, r webhook.Replay) (n int64, err error) {
	p, err := s.openReplay(ctx, organization, id, r)
	if err != nil {
		return 0, err
	}
	err = s.walk(ctx, p, func(c chunk) error {
		n += c.Found
		return nil
	})
	return n, err
}

// period is what a replay looks through, and what it looks for.
type period struct {
	id            string // of the subscription
	subscription  int64
	organization  int64
	now           int64  // when it began
	since, until  int64  // of the events' times
	spans         []span // of the events' rows
	exact, prefix string // JSON arrays of the types, and of the beginnings of types
	only          webhook.Only
	withheld      string // JSON array of the types that the subscription does not receive, whatever it wants
}

// span is a part of the events, by their rows.
type span struct{ after, last int64 }

// openReplay looks for the subscription and for the rows of the period. What is published later is not a part of it, and
// neither is what was published before the subscription was created. Rows tell that: the clock may have been wrong.
func (s *Store) openReplay(ctx context.Context, organization int64, id string, r webhook.Replay) (period, error) {
	type opened struct {
		sub           webhook.Subscription
		now, disorder int64
		rows          span
	}
	o, err := returning(ctx, s.workFor(organization), func(t *tx) (o opened, err error) {
		if o.sub, err = s.subscription(t, organization, id); err != nil {
			return o, err
		}
		o.now, o.rows.last, o.disorder = t.Now(), s.lastEvent, s.disorder
		if err := t.Get(&o.rows.after, "SELECT birth FROM subscriptions WHERE id = ?", o.sub.RowID); err != nil {
			return o, fmt.Errorf("find the event of the subscription's creation: %w", err)
		}
		return o, requireWebhooks(t, organization)
	})
	if err != nil {
		return period{}, err
	}
	p := period{
		id: id, subscription: o.sub.RowID, organization: organization, now: o.now, only: r.Only,
		since: r.Since, until: r.Until, withheld: withheldTypes(o.sub),
	}
	if p.until == 0 {
		p.until = math.MaxInt64 // the last row ends it
	}
	p.exact, p.prefix = patternLists(o.sub.EventTypes.Common(r.EventTypes))
	end, err := s.replays.Take(ctx, organization)
	if err != nil {
		return p, err
	}
	defer end()
	p.spans, err = s.spans(ctx, p.since, p.until, o.rows, o.disorder)
	return p, err
}

// spans returns the parts of the given events in which those of a period are. Up to the row disorder all are looked at.
// From there on events are in the order of time, but for clock.Tolerance, so halving finds the period.
func (s *Store) spans(ctx context.Context, since, until int64, all span, disorder int64) ([]span, error) {
	const slack = int64(clock.Tolerance / time.Millisecond)
	disordered := span{all.after, min(all.last, disorder)}
	ordered := span{max(all.after, disorder), all.last}
	first, err := s.eventFrom(ctx, max(since, slack)-slack, ordered)
	if err != nil {
		return nil, err
	}
	end := ordered.last + 1
	if until <= math.MaxInt64-slack {
		if end, err = s.eventFrom(ctx, until+slack, ordered); err != nil {
			return nil, err
		}
	}
	spans := []span{disordered, {first - 1, end - 1}}
	return slices.DeleteFunc(spans, func(part span) bool { return part.after >= part.last }), nil
}

// patternLists writes patterns as two JSON arrays: the types, and the beginnings of types. AnyType is the empty beginning.
func patternLists(patterns []string) (exact, prefix string) {
	types, beginnings := []string{}, []string{}
	for _, p := range patterns {
		if beginning, ok := strings.CutSuffix(p, "*"); ok {
			beginnings = append(beginnings, beginning)
		} else {
			types = append(types, p)
		}
	}
	a, _ := json.Marshal(types) // strings can be encoded
	b, _ := json.Marshal(beginnings)
	return string(a), string(b)
}

// eventFrom returns the row of a span from which on events were created at that time or later, up to one beyond the last.
// Where the times are in order, halving finds it in some twenty steps, however long the history is.
func (s *Store) eventFrom(ctx context.Context, at int64, in span) (int64, error) {
	low, high := in.after+1, in.last+1 // all before low are earlier, none from high on is
	for low < high {
		middle := low + (high-low)/2
		var e stamped
		err := s.replays.Get(ctx, &e, "SELECT id, created_at AS at FROM events WHERE id >= ? ORDER BY id LIMIT 1", middle)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return 0, fmt.Errorf("look for the first event of a period: %w", err)
		case err == nil && e.At < at:
			low = min(e.ID+1, high)
		default:
			high = middle
		}
	}
	return low, nil
}

// replayable says whether an event is one that a replay makes a delivery of; its parameters are those of period.args. A
// test event goes with its test, and a subscription is not sent what tells of itself.
const replayable = `
	e.created_at >= ?3 AND e.created_at < ?4
	AND (e.type IN (SELECT value FROM json_each(?5))
	  OR EXISTS (SELECT 1 FROM json_each(?6) prefix WHERE substr(e.type, 1, length(prefix.value)) = prefix.value))
	AND e.type NOT IN (SELECT value FROM json_each(?8))
	AND e.about IS NOT ?2
	AND NOT (e.type = 'webhook_test' AND EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.cause = ` + causeTest + `))
	AND (?7 <> 'failed' AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = ?2)
	  OR ?7 <> 'missed' AND EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = ?2 AND d.state = ` + stateExhausted + `)
	    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = ?2 AND d.state IN (` + statePending + `, ` + stateDelivered + `)))`

// args are the first eight parameters of a statement that asks what is replayable, and those that follow. What retention
// may have begun to take is left out: of an event without all its deliveries nobody can tell what became of it.
func (p period) args(kept time.Duration, now int64, more ...any) []any {
	since := p.since
	if kept > 0 {
		since = max(since, now-kept.Milliseconds())
	}
	return append([]any{p.organization, p.subscription, since, p.until, p.exact, p.prefix, p.only, p.withheld}, more...)
}

// chunk is what a read has found among the events that it looked at.
type chunk struct {
	Seen    int64  `db:"seen"`
	Reached int64  `db:"reached"` // the last of them
	Found   int64  `db:"found"`
	Rows    string `db:"rows"` // of what was found, a JSON array
}

// walk looks through the events of a period, chunk by chunk, and calls do for the chunks in which something was found.
// Replays take turns after each chunk, those of one organization and those of all.
func (s *Store) walk(ctx context.Context, p period, do func(chunk) error) error {
	for _, part := range p.spans {
		if err := s.walkSpan(ctx, p, part, do); err != nil {
			return err
		}
	}
	return nil
}

// walkSpan is walk through a part of the events.
func (s *Store) walkSpan(ctx context.Context, p period, part span, do func(chunk) error) error {
	for {
		c, took, err := s.nextChunk(ctx, p, part)
		if err != nil {
			return fmt.Errorf("look for what to replay: %w", err)
		}
		if c.Found > 0 {
			if err := do(c); err != nil {
				return err
			}
		}
		if c.Seen < replayEvents {
			return nil
		}
		if err := scan.Pause(ctx, took); err != nil {
			return err
		}
		part.after = c.Reached
	}
}

// nextChunk looks at the next events of a period, in one short read, and returns how long that took.
func (s *Store) nextChunk(ctx context.Context, p period, part span) (c chunk, took time.Duration, err error) {
	end, err := s.replays.Take(ctx, p.organization)
	if err != nil {
		return c, 0, err
	}
	defer end()
	free, err := s.replays.Slot(ctx)
	if err != nil {
		return c, 0, err
	}
	defer free()
	began := time.Now()
	err = s.replays.Pool.Get(ctx, &c, `
		SELECT count(*) AS seen, coalesce(max(looked.id), 0) AS reached, count(*) FILTER (WHERE looked.found) AS found,
		       json_group_array(looked.id) FILTER (WHERE looked.found) AS rows
		FROM (
			SELECT e.id, (`+replayable+`) AS found
			FROM events e INDEXED BY events_by_organization
			WHERE e.organization_id = ?1 AND e.id > ?9 AND e.id <= ?10 ORDER BY e.id LIMIT ?11) looked`,
		p.args(s.retention.events, p.now, part.after, part.last, replayEvents)...)
	return c, time.Since(began), err
}

// replaySome makes deliveries of the events that a chunk has found, as far as they are replayable still: another replay, or a
// redelivery, may have come first. One replay at a time does so, or those that run together would add up to what others
// wait for. Once it has its turn, the end of the context does not part it from its result.
func (s *Store) replaySome(ctx context.Context, p period, c chunk) (int64, error) {
	select {
	case s.replaying <- struct{}{}:
		defer func() { <-s.replaying }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayWait)
	defer cancel()
	n, err := returning(ctx, s.workFor(p.organization).rows(replayEvents), func(t *tx) (int64, error) {
		sub, err := s.subscription(t, p.organization, p.id)
		if err != nil {
			return 0, err
		}
		p.withheld = withheldTypes(sub) // this may have changed since the replay began
		if err := requireWebhooks(t, p.organization); err != nil {
			return 0, err
		}
		if err := requireStorage(t, p.organization, int(c.Found)*storedPerDelivery); err != nil {
			return 0, err
		}
		n, err := t.Affected(`
			INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
			SELECT e.id, ?2, `+statePending+`, `+causeHand+`, 0, ?9 FROM json_each(?10) wanted CROSS JOIN events e ON e.id = wanted.value
			WHERE e.organization_id = ?1 AND `+replayable,
			p.args(s.retention.events, t.Now(), t.Now(), c.Rows)...)
		if err != nil || n == 0 {
			return 0, err
		}
		t.countStored(p.organization, int(n)*storedPerDelivery)
		t.OnCommit(func() { s.pending.add(p.subscription, n) })
		s.announceChange(t, p.subscription)
		return n, nil
	})
	if err != nil {
		return 0, fmt.Errorf("replay: %w", err)
	}
	return n, nil
}

// auditReplay tells who has had what sent again. complete is false where it was cut off.
func (s *Store) auditReplay(ctx context.Context, by access.Actor, p period, r webhook.Replay, made int64, complete bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayWait)
	defer cancel()
	until := r.Until
	if until == 0 {
		until = p.now
	}
	return s.workFor(p.organization).change(ctx, func(t *tx) error {
		return s.audit(t, by, p.organization, access.SubscriptionReplayed, auditTarget{"subscription", p.id, p.subscription}, map[string]any{
			"since": string(webhook.AppendTime(nil, r.Since)), "until": string(webhook.AppendTime(nil, until)),
			"event_types": r.EventTypes.Unique(), "only": r.Only, "deliveries": made, "complete": complete,
		})
	})
}

// unfinished says what came of a replay that could not go on for want of time or of a disk.
func unfinished(ctx context.Context, made int64, err error) error {
	if err == nil || ctx.Err() == nil && fault.KindOf(err) != fault.Unavailable {
		return err
	}
	return fault.New(fault.Unavailable, "replay_unfinished",
		"This ended early, with %d deliveries made; the same request goes on from there.", made).Because(err)
}
