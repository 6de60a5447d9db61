package storage

import (
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

// tookColumns are the columns of attempt_minutes for webhook.Tally.Took.
var tookColumns = func() (names []string) {
	for _, bound := range webhook.DurationBounds {
		names = append(names, "within_"+strconv.FormatInt(bound, 10))
	}
	return append(names, "longer")
}()

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
