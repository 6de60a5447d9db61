package queue

import (
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const minute = 60_000 // milliseconds

// minuteKey is the key of a row of attempt_minutes: the attempts of a subscription in a minute. If subscription is 0, it is those of
// the whole organization. If both are 0, it is those of all organizations, because to add up the rows of 1,000 organizations for a
// day takes seconds.
type minuteKey struct{ organization, subscription, minute int64 }

// deliveryUses are what the usage counts of a delivery that has ended. The other ends are in no count.
var deliveryUses = map[webhook.DeliveryState]access.OrganizationUse{webhook.Delivered: {Succeeded: 1}, webhook.Exhausted: {Failed: 1}}

// Expired notes that the transaction deletes a pending delivery. It waited for a closed subscription. For a deleted one, it is not
// counted: nobody expects it.
func (q *Queue) Expired(now *sqlite.Tx, subscription int64) error {
	t := q.o.Memory.with(now)
	t.OnCommit(func() { t.pending.Add(subscription, -1) })
	sub, err := t.Fanout.Subscription(t.Tx, subscription)
	if err != nil || sub.Deleted {
		return err
	}
	t.addCounts(sub.Organization, subscription, func(c *webhook.AttemptCounts) { c.Expired++ })
	t.OnCommit(func() { t.observer.Expired(1) })
	return nil
}

// addCounts changes the counts of this minute. The transaction writes the counts of all its writes once, at its end.
func (t *tx) addCounts(organization, subscription int64, add func(*webhook.AttemptCounts)) {
	now := t.Now() / minute
	for _, key := range [...]minuteKey{{0, 0, now}, {organization, 0, now}, {organization, subscription, now}} {
		counts, ok := t.attemptCounts[key]
		if !ok {
			counts = new(webhook.AttemptCounts)
			t.attemptCounts[key] = counts
		}
		add(counts)
	}
	t.UndoIfFailed()
}

func (t *tx) writeAttemptCounts() error {
	for key, counts := range t.attemptCounts {
		args := make([]any, 0, 6+len(counts.Took))
		args = append(args, key.organization, key.subscription, key.minute, counts.Succeeded, counts.Failed, counts.Expired)
		for _, n := range counts.Took {
			args = append(args, n)
		}
		if err := t.Exec(addAttemptCounts, args...); err != nil {
			return fmt.Errorf("count attempts: %w", err)
		}
	}
	clear(t.attemptCounts)
	return nil
}

var addAttemptCounts = func() string {
	columns := append([]string{"succeeded", "failed", "expired"}, history.DurationColumns...)
	sums := make([]string, len(columns))
	for i, c := range columns {
		sums[i] = c + " = " + c + " + excluded." + c
	}
	return `
		INSERT INTO attempt_minutes (organization_id, subscription_id, minute, ` + strings.Join(columns, ", ") + `)
		VALUES (?, ?, ?` + strings.Repeat(", ?", len(columns)) + `)
		ON CONFLICT (organization_id, subscription_id, minute) DO UPDATE SET ` + strings.Join(sums, ", ")
}()
