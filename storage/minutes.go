package storage

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/webhook"
)

const minute = 60_000 // milliseconds

// tallyOf names a row of attempt_minutes.
type tallyOf struct {
	subscription, minute int64
}

// tally adds an attempt that has ended to the counts of its minute. They are written once for all that shares the
// transaction.
func (t *tx) tally(r webhook.Result) {
	key := tallyOf{r.Subscription, t.now / minute}
	counts, ok := t.tallies[key]
	if !ok {
		counts = new(webhook.Tally)
		t.tallies[key] = counts
	}
	counts.Add(r.Succeeded, r.DurationMS)
	t.dirty = true
}

// writeTallies adds the counts to the table.
func (t *tx) writeTallies() error {
	for key, counts := range t.tallies {
		args := make([]any, 0, 4+len(counts.Took))
		args = append(args, key.subscription, key.minute, counts.Succeeded, counts.Failed)
		for _, n := range counts.Took {
			args = append(args, n)
		}
		if _, err := t.exec(addTally, args...); err != nil {
			return fmt.Errorf("count attempts: %w", err)
		}
	}
	clear(t.tallies)
	return nil
}

// Series returns what the attempts of an organization, or of one of its subscriptions, came to from since until until: one
// point for each step in which there were any, in order. The three are minutes; steps are counted from the epoch. What a
// removed subscription was sent counts until retention takes it. Faults: NotFound.
func (s *Store) Series(ctx context.Context, organization int64, subscription string, since, until, step int64) ([]webhook.Point, error) {
	where, of := "s.organization_id", organization
	if subscription != "" {
		where = "s.id"
		if err := s.get(ctx, &of, "SELECT id FROM subscriptions WHERE public_id = ? AND organization_id = ?", subscription, organization); err != nil {
			return nil, missing(err, "subscription")
		}
	}
	points := []webhook.Point{}
	err := s.logs.list(ctx, &points, `
		SELECT m.minute / ?1 * ?1 AS minute, sum(m.succeeded) AS succeeded, sum(m.failed) AS failed, json_array(`+sumsOfTook+`) AS took
		FROM subscriptions s JOIN attempt_minutes m ON m.subscription_id = s.id
		WHERE `+where+` = ?2 AND m.minute >= ?3 AND m.minute < ?4
		GROUP BY 1 ORDER BY 1`, step, of, since, until)
	return points, err
}

// tookColumns are the columns of attempt_minutes for webhook.Tally.Took.
var tookColumns = func() (names []string) {
	for _, bound := range webhook.DurationBounds {
		names = append(names, "within_"+strconv.FormatInt(bound, 10))
	}
	return append(names, "longer")
}()

var sumsOfTook = "sum(m." + strings.Join(tookColumns, "), sum(m.") + ")"

var addTally = func() string {
	columns := append([]string{"succeeded", "failed"}, tookColumns...)
	sums := make([]string, len(columns))
	for i, c := range columns {
		sums[i] = c + " = " + c + " + excluded." + c
	}
	return `
		INSERT INTO attempt_minutes (subscription_id, minute, ` + strings.Join(columns, ", ") + `)
		VALUES (?, ?` + strings.Repeat(", ?", len(columns)) + `)
		ON CONFLICT (subscription_id, minute) DO UPDATE SET ` + strings.Join(sums, ", ")
}()
