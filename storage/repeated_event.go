package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// countRepeated sets how many deliveries the repeated events had when they were published. Each event may have
// thousands. So a log reader counts them, and not the transaction, for which others wait.
func (q *Queue) countRepeated(ctx context.Context, organization int64, published []webhook.Published) error {
	var repeated []webhook.Event
	for _, p := range published {
		if p.Repeated {
			row, at, _ := q.ids.Row(access.EventID, p.ID)
			repeated = append(repeated, webhook.Event{RowID: row, At: at})
		}
	}
	if len(repeated) == 0 {
		return nil
	}
	if err := q.history.CountDeliveries(ctx, organization, repeated); err != nil {
		return err
	}
	for i := range published {
		if published[i].Repeated {
			published[i].Deliveries, repeated = repeated[0].Deliveries, repeated[1:]
			if published[i].Deliveries > 0 {
				published[i].Notice = webhook.NoticeOf(published[i].Deliveries, 0, true, published[i].Mark)
			}
		}
	}
	return nil
}

// fillRepeated sets the results of events whose idempotency key is already stored, without the number of deliveries.
func (t *tx) fillRepeated(organization int64, events []webhook.NewEvent, published []webhook.Published) error {
	var problems []fault.Field
	for i, e := range events {
		published[i] = webhook.Published{}
		if e.IdempotencyKey == "" {
			continue
		}
		var first struct {
			RowID    int64        `db:"id"`
			Type     string       `db:"type"`
			At       int64        `db:"created_at"`
			Digest   []byte       `db:"request_digest"`
			Held     *int         `db:"held"`
			Filtered int          `db:"filtered"`
			Mark     webhook.Mark `db:"mark"`
		}
		get := t.GetBeside
		if t.hasKey(organization, e.IdempotencyKey) {
			get = t.Get
		}
		err := get(&first, `
			SELECT id, type, created_at, request_digest, held, coalesce(filtered, 0) AS filtered, coalesce(mark, 0) AS mark FROM events
			WHERE organization_id = ? AND idempotency_key = ?`, organization, e.IdempotencyKey)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return fmt.Errorf("look for idempotency key: %w", err)
		case string(first.Digest) != string(e.Digest[:]):
			problems = append(problems, fault.Field{
				Field: fieldOf(i, len(events), "idempotency_key"), Code: "idempotency_key_reused",
				Message: "This key belongs to another event; use a new one.",
			})
			continue
		}
		published[i] = webhook.Published{
			ID: t.ids.ID(access.EventID, first.RowID, first.At), Type: first.Type, At: first.At, Mark: first.Mark, Repeated: true,
			Notice: webhook.NoticeOf(0, first.Filtered, first.Held != nil, first.Mark), // until countRepeated counts the deliveries
		}
		if first.Held != nil {
			published[i].Held = *first.Held
		}
	}
	return fault.Fields(problems)
}

// fieldOf returns the name of a field of the i-th of n events, as the publisher wrote it.
func fieldOf(i, n int, name string) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("events.%d.%s", i, name)
}

// countNew counts the events that were not repeated.
func countNew(published []webhook.Published) (n int) {
	for i := range published {
		if !published[i].Repeated {
			n++
		}
	}
	return n
}
