package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	minute         = 60_000 // milliseconds
	minutesPerRead = 10_000 // one read adds them up in about 20 ms
)

// countOwner is a subscription whose attempts are counted together. If Subscription is 0, it is the whole organization. The zero
// value is all organizations, because to add up the rows of 1,000 organizations for a day takes seconds.
type countOwner struct {
	Organization int64 `db:"organization_id"`
	Subscription int64 `db:"subscription_id"`
}

// minuteKey is the key of a row of attempt_minutes.
type minuteKey struct {
	countOwner
	minute int64
}

// countAttempt adds a finished attempt to the counts of its minute.
func (t *tx) countAttempt(organization int64, r webhook.Result) {
	t.addCounts(organization, r.Subscription, func(c *webhook.AttemptCounts) { c.Add(r.Succeeded, r.DurationMS) })
}

// countExpired adds an expired delivery to the counts of this minute.
func (t *tx) countExpired(organization, subscription int64) {
	t.addCounts(organization, subscription, func(c *webhook.AttemptCounts) { c.Expired++ })
}

// addCounts changes the counts of this minute. The transaction writes the counts of all its writes once, at its end.
func (t *tx) addCounts(organization, subscription int64, add func(*webhook.AttemptCounts)) {
	for _, owner := range [...]countOwner{{}, {organization, 0}, {organization, subscription}} {
		key := minuteKey{owner, t.Now() / minute}
		counts, ok := t.attemptCounts[key]
		if !ok {
			counts = new(webhook.AttemptCounts)
			t.attemptCounts[key] = counts
		}
		add(counts)
	}
	t.Wrote(0)
}

// writeAttemptCounts adds the counts to the table.
func (t *tx) writeAttemptCounts() error {
	for key, counts := range t.attemptCounts {
		args := make([]any, 0, 6+len(counts.Took))
		args = append(args, key.Organization, key.Subscription, key.minute, counts.Succeeded, counts.Failed, counts.Expired)
		for _, n := range counts.Took {
			args = append(args, n)
		}
		if _, err := t.Exec(addAttemptCounts, args...); err != nil {
			return fmt.Errorf("count attempts: %w", err)
		}
	}
	clear(t.attemptCounts)
	return nil
}

// Series counts the attempts of an organization, or of one of its subscriptions, from since until until. For
// access.AllOrganizations it counts those of all. It returns one point for each step with attempts, in order. The three are in
// minutes, and steps start at multiples of step since the epoch. The attempts of a deleted subscription count until retention
// deletes them.
//
// Faults: NotFound; Unavailable if too many reads of the organization's logs are running.
func (s *Store) Series(ctx context.Context, organization int64, subscription string, since, until, step int64) ([]webhook.MinuteCounts, error) {
	owner := countOwner{Organization: organization}
	if subscription != "" {
		if err := s.get(ctx, &owner.Subscription, "SELECT id FROM subscriptions WHERE public_id = ? AND organization_id = ?", subscription, organization); err != nil {
			return nil, sqlite.Missing(err, "subscription")
		}
	}
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	points := []webhook.MinuteCounts{}
	for since < until {
		var batch []webhook.MinuteCounts
		if batch, since, err = s.seriesSlice(ctx, owner, since, until, step); err != nil {
			return nil, err
		}
		points = append(points, batch...)
	}
	return points, nil
}

// seriesSlice returns the points of the next minutesPerRead minutes, and the minute to continue from.
func (s *Store) seriesSlice(ctx context.Context, owner countOwner, since, until, step int64) (points []webhook.MinuteCounts, next int64, err error) {
	err = s.logs.Get(ctx, &next, `
		SELECT minute FROM attempt_minutes
		WHERE organization_id = ? AND subscription_id = ? AND minute >= ? AND minute < ? ORDER BY minute LIMIT 1 OFFSET ?`,
		owner.Organization, owner.Subscription, since, until, minutesPerRead-1)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		next = until
	case err != nil:
		return nil, 0, err
	default:
		next = min((next/step+1)*step, until)
	}
	err = s.logs.List(ctx, &points, `
		SELECT minute / ?1 * ?1 AS minute, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(expired) AS expired, json_array(`+durationSums+`) AS took
		FROM attempt_minutes
		WHERE organization_id = ?2 AND subscription_id = ?3 AND minute >= ?4 AND minute < ?5
		GROUP BY 1 ORDER BY 1`, step, owner.Organization, owner.Subscription, since, next)
	return points, next, err
}

// durationColumns are the columns of attempt_minutes for webhook.AttemptCounts.Took.
var durationColumns = func() (names []string) {
	for _, bound := range webhook.DurationBounds {
		names = append(names, "within_"+strconv.FormatInt(bound, 10))
	}
	return append(names, "longer")
}()

var durationSums = "sum(" + strings.Join(durationColumns, "), sum(") + ")"

var addAttemptCounts = func() string {
	columns := append([]string{"succeeded", "failed", "expired"}, durationColumns...)
	sums := make([]string, len(columns))
	for i, c := range columns {
		sums[i] = c + " = " + c + " + excluded." + c
	}
	return `
		INSERT INTO attempt_minutes (organization_id, subscription_id, minute, ` + strings.Join(columns, ", ") + `)
		VALUES (?, ?, ?` + strings.Repeat(", ?", len(columns)) + `)
		ON CONFLICT (organization_id, subscription_id, minute) DO UPDATE SET ` + strings.Join(sums, ", ")
}()
