package storage

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/webhook"
)

const minute = 60_000 // milliseconds

// counted is whose attempts are counted together: those of a subscription, or, where that is 0, of an organization.
type counted struct {
	Organization int64 `db:"organization_id"`
	Subscription int64 `db:"subscription_id"`
}

// tallyOf names a row of attempt_minutes.
type tallyOf struct {
	counted
	minute int64
}

// tally adds an attempt that has ended to the counts of its minute. They are written once for all that shares the
// transaction.
func (t *tx) tally(organization int64, r webhook.Result) {
	for _, subscription := range [...]int64{0, r.Subscription} {
		key := tallyOf{counted{organization, subscription}, t.now / minute}
		counts, ok := t.tallies[key]
		if !ok {
			counts = new(webhook.Tally)
			t.tallies[key] = counts
		}
		counts.Add(r.Succeeded, r.DurationMS)
	}
	t.dirty = true
}

// writeTallies adds the counts to the table.
func (t *tx) writeTallies() error {
	for key, counts := range t.tallies {
		args := make([]any, 0, 5+len(counts.Took))
		args = append(args, key.Organization, key.Subscription, key.minute, counts.Succeeded, counts.Failed)
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
	of := counted{Organization: organization}
	if subscription != "" {
		if err := s.get(ctx, &of.Subscription, "SELECT id FROM subscriptions WHERE public_id = ? AND organization_id = ?", subscription, organization); err != nil {
			return nil, missing(err, "subscription")
		}
	}
	points := []webhook.Point{}
	err := s.logs.list(ctx, &points, `
		SELECT minute / ?1 * ?1 AS minute, sum(succeeded) AS succeeded, sum(failed) AS failed, json_array(`+sumsOfTook+`) AS took
		FROM attempt_minutes
		WHERE organization_id = ?2 AND subscription_id = ?3 AND minute >= ?4 AND minute < ?5
		GROUP BY 1 ORDER BY 1`, step, of.Organization, of.Subscription, since, until)
	return points, err
}

// tookColumns are the columns of attempt_minutes for webhook.Tally.Took.
var tookColumns = func() (names []string) {
	for _, bound := range webhook.DurationBounds {
		names = append(names, "within_"+strconv.FormatInt(bound, 10))
	}
	return append(names, "longer")
}()

var sumsOfTook = "sum(" + strings.Join(tookColumns, "), sum(") + ")"

var addTally = func() string {
	columns := append([]string{"succeeded", "failed"}, tookColumns...)
	sums := make([]string, len(columns))
	for i, c := range columns {
		sums[i] = c + " = " + c + " + excluded." + c
	}
	return `
		INSERT INTO attempt_minutes (organization_id, subscription_id, minute, ` + strings.Join(columns, ", ") + `)
		VALUES (?, ?, ?` + strings.Repeat(", ?", len(columns)) + `)
		ON CONFLICT (organization_id, subscription_id, minute) DO UPDATE SET ` + strings.Join(sums, ", ")
}()
