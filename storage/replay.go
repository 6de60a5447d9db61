package storage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
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
		n, err := s.replaySome(ctx, p, c.Rows)
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
	after, last   int64  // of the events' rows
	exact, prefix string // JSON arrays of the types, and of the beginnings of types
	only          webhook.Only
}

// openReplay looks for the subscription and for the rows of the period. What is published later is not a part of it.
func (s *Store) openReplay(ctx context.Context, organization int64, id string, r webhook.Replay) (period, error) {
	type opened struct {
		sub       webhook.Subscription
		now, last int64
	}
	o, err := returning(ctx, s.of(organization), func(t *tx) (opened, error) {
		sub, err := s.subscription(t, organization, id)
		if err != nil {
			return opened{}, err
		}
		return opened{sub, t.now, s.lastEvent}, requireWebhooks(t, organization)
	})
	if err != nil {
		return period{}, err
	}
	p := period{
		id: id, subscription: o.sub.RowID, organization: organization, now: o.now, only: r.Only,
		since: max(r.Since, o.sub.CreatedAt), until: r.Until, last: o.last,
	}
	p.exact, p.prefix = patternLists(o.sub.EventTypes.Common(r.EventTypes))
	if p.after, err = s.before(ctx, p, p.since == o.sub.CreatedAt); err != nil {
		return p, err
	}
	if p.until == 0 {
		p.until = math.MaxInt64 // its last row bounds it
		return p, nil
	}
	end, err := s.eventFrom(ctx, p.until, p.last)
	p.last = end - 1
	return p, err
}

// before returns the last row that is before a period; atBirth says that it begins with the subscription, and so after the
// event that tells of that: others of the same millisecond may have come first.
func (s *Store) before(ctx context.Context, p period, atBirth bool) (int64, error) {
	first, err := s.eventFrom(ctx, p.since, p.last)
	if err != nil || !atBirth {
		return first - 1, err
	}
	later, err := s.eventFrom(ctx, p.since+1, p.last)
	if err != nil {
		return 0, err
	}
	var birth int64
	err = s.logs.get(ctx, &birth, `
		SELECT id FROM events INDEXED BY events_by_organization
		WHERE organization_id = ? AND id >= ? AND id < ? AND about = ? ORDER BY id LIMIT 1`,
		p.organization, first, later, p.subscription)
	if errors.Is(err, sql.ErrNoRows) { // retention has taken it
		return first - 1, nil
	}
	return birth, err
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

// eventFrom returns the row id from which on events were created at that time or later, up to one beyond the last. They
// are numbered in the order of time, so halving finds it in some twenty steps, however long the history is. Where the
// clock was set back, times overlap, and a row within the overlap is found.
func (s *Store) eventFrom(ctx context.Context, at, last int64) (int64, error) {
	low, high := int64(1), last+1 // all before low are earlier, none from high on is
	for low < high {
		middle := low + (high-low)/2
		var e struct {
			ID int64 `db:"id"`
			At int64 `db:"created_at"`
		}
		err := s.logs.get(ctx, &e, "SELECT id, created_at FROM events WHERE id >= ? ORDER BY id LIMIT 1", middle)
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
	AND e.about IS NOT ?2
	AND NOT (e.type = 'webhook_test' AND EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.cause = 3))
	AND (?7 <> 'failed' AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = ?2)
	  OR ?7 <> 'missed' AND EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = ?2 AND d.state = 2)
	    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.subscription_id = ?2 AND d.state IN (0, 1)))`

// args are the first seven parameters of a statement that asks what is replayable, and those that follow. What retention
// may have begun to take is left out: of an event without all its deliveries nobody can tell what became of it.
func (p period) args(kept time.Duration, now int64, more ...any) []any {
	since := p.since
	if kept > 0 {
		since = max(since, now-kept.Milliseconds())
	}
	return append([]any{p.organization, p.subscription, since, p.until, p.exact, p.prefix, p.only}, more...)
}

// chunk is what a read has found among the events that it looked at.
type chunk struct {
	Seen    int64  `db:"seen"`
	Reached int64  `db:"reached"` // the last of them
	Found   int64  `db:"found"`
	Rows    string `db:"rows"` // of what was found, a JSON array
}

// walk looks through the events of a period, in reads that are short enough for everybody else, and has do done with the
// chunks in which there is something.
func (s *Store) walk(ctx context.Context, p period, do func(chunk) error) error {
	for {
		var c chunk
		if err := s.logs.get(ctx, &c, `
			SELECT count(*) AS seen, coalesce(max(looked.id), 0) AS reached, count(*) FILTER (WHERE looked.found) AS found,
			       json_group_array(looked.id) FILTER (WHERE looked.found) AS rows
			FROM (
				SELECT e.id, (`+replayable+`) AS found
				FROM events e INDEXED BY events_by_organization
				WHERE e.organization_id = ?1 AND e.id > ?8 AND e.id <= ?9 ORDER BY e.id LIMIT ?10) looked`,
			p.args(s.retention.events, p.now, p.after, p.last, replayEvents)...); err != nil {
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
		p.after = c.Reached
	}
}

// replaySome makes deliveries of the events in those rows, as far as they are replayable still: another replay, or a
// redelivery, may have come first. One replay at a time does so, or those that run together would add up to what others
// wait for. Once it has its turn, the end of the context does not part it from its result.
func (s *Store) replaySome(ctx context.Context, p period, rows string) (int64, error) {
	select {
	case s.replaying <- struct{}{}:
		defer func() { <-s.replaying }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayWait)
	defer cancel()
	n, err := returning(ctx, s.of(p.organization).rows(replayEvents), func(t *tx) (int64, error) {
		if _, err := subscriptionRow(t, p.organization, p.id); err != nil {
			return 0, err
		}
		if err := requireWebhooks(t, p.organization); err != nil {
			return 0, err
		}
		n, err := t.affected(`
			INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
			SELECT e.id, ?2, 0, 2, 0, ?8 FROM json_each(?9) wanted CROSS JOIN events e ON e.id = wanted.value
			WHERE e.organization_id = ?1 AND `+replayable,
			p.args(s.retention.events, t.now, t.now, rows)...)
		if err != nil || n == 0 {
			return 0, err
		}
		t.onCommit(func() { s.pending.add(p.subscription, n) })
		s.changed(t, p.subscription)
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
	return s.of(p.organization).change(ctx, func(t *tx) error {
		return s.audit(t, by, p.organization, access.SubscriptionReplayed, target{"subscription", p.id, p.subscription}, map[string]any{
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
