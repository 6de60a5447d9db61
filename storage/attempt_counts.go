package storage

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// SubscriptionSeries counts the attempts of subscriptions of an organization, in the order of ids. It leaves out ids that do not
// exist; deleted subscriptions exist until retention deletes their counts. Times are as in Series, and until is a whole number of
// steps after since. Faults: Unavailable if too many reads of the organization's logs are running.
func (s *Store) SubscriptionSeries(ctx context.Context, organization int64, ids []string, since, until, step int64) ([]webhook.SubscriptionSeries, error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	var found []numberedID
	if err := s.logs.List(ctx, &found, `
		SELECT s.id, s.public_id FROM json_each(?) j CROSS JOIN subscriptions s ON s.public_id = j.value
		WHERE s.organization_id = ?`, string(list), organization); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b numberedID) int { return cmp.Compare(slices.Index(ids, a.ID), slices.Index(ids, b.ID)) })
	series := make([]webhook.SubscriptionSeries, len(found))
	for i, f := range found {
		series[i] = webhook.SubscriptionSeries{
			SubscriptionID: f.ID, Succeeded: make([]int64, (until-since)/step), Failed: make([]int64, (until-since)/step),
		}
		if err := s.fillSeries(ctx, &series[i], countOwner{organization, f.Row}, since, until, step); err != nil {
			return nil, err
		}
	}
	return series, nil
}

// numberedID is a public id with its row id.
type numberedID struct {
	Row int64  `db:"id"`
	ID  string `db:"public_id"`
}

// fillSeries adds the counts of a subscription, a few days at a time.
func (s *Store) fillSeries(ctx context.Context, series *webhook.SubscriptionSeries, owner countOwner, since, until, step int64) error {
	atOnce := max(minutesPerRead/step, 1) * step
	for from := since; from < until; from += atOnce {
		var points []struct {
			Minute    int64 `db:"minute"`
			Succeeded int64 `db:"succeeded"`
			Failed    int64 `db:"failed"`
		}
		if err := s.logs.List(ctx, &points, `
			SELECT minute / ?1 * ?1 AS minute, sum(succeeded) AS succeeded, sum(failed) AS failed FROM attempt_minutes
			WHERE organization_id = ?2 AND subscription_id = ?3 AND minute >= ?4 AND minute < ?5 GROUP BY 1`,
			step, owner.Organization, owner.Subscription, from, min(from+atOnce, until)); err != nil {
			return err
		}
		for _, p := range points {
			at := (p.Minute - since) / step
			series.Succeeded[at], series.Failed[at] = p.Succeeded, p.Failed
		}
	}
	return nil
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
