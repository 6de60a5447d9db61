package queue

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// newRows are the published events and deliveries of a transaction that are not in the tables yet. They are written together,
// because a statement of many rows costs a third of as many statements. Every statement of the transaction writes them first,
// except those of sqlite.Tx.GetBeside.
type newRows struct {
	events, deliveries []any // the arguments of the statements
	keys               map[idempotencyKey]struct{}
}

type idempotencyKey struct {
	organization int64
	key          string
}

const eventArgs, deliveryArgs = 11, 6 // of one row

var (
	insertEvents = sqlite.Statements(func(n int) string {
		const row = "(?, ?, ?, ?, nullif(?, 0), ?, nullif(?, 0), nullif(?, 0), ?, ?, ?)"
		return `INSERT INTO events (id, organization_id, type, created_at, about, held, filtered, mark, body, idempotency_key, request_digest)
			VALUES ` + row + strings.Repeat(", "+row, n-1)
	})
	insertDeliveries = sqlite.Statements(func(n int) string {
		const row = "(?, ?, ?, ?, ?, nullif(?, 0), " + delivery.CauseEvent + ", 0)"
		return "INSERT INTO deliveries (id, event_id, subscription_id, state, due_at, sequence, cause, attempts) VALUES " + row + strings.Repeat(", "+row, n-1)
	})
)

func (t *tx) delayEvent(j webhook.Job, e webhook.NewEvent, about int64, held sql.NullInt64, filtered int) {
	var key, digest any
	if e.IdempotencyKey != "" {
		key, digest = e.IdempotencyKey, e.Digest[:]
		if t.newRows.keys == nil {
			t.newRows.keys = map[idempotencyKey]struct{}{}
		}
		t.newRows.keys[idempotencyKey{j.Organization, e.IdempotencyKey}] = struct{}{}
	}
	t.newRows.events = append(t.newRows.events,
		j.Event, j.Organization, e.Type, t.Now(), about, held, filtered, int64(e.Mark), j.Body, key, digest)
	t.Delay(1+len(j.Body)/pageSize, t.writeNewRows)
}

func (t *tx) delayDeliveries(jobs []webhook.Job) {
	for i := range jobs {
		state := webhook.Pending
		if jobs[i].Begun {
			state = delivery.InProgress
			t.rememberSending(sendingDelivery{ID: jobs[i].Delivery, Subscription: jobs[i].Subscription, BegunAt: jobs[i].DueAt})
		}
		t.newRows.deliveries = append(t.newRows.deliveries,
			jobs[i].Delivery, jobs[i].Event, jobs[i].Subscription, int64(state), jobs[i].DueAt, jobs[i].Sequence)
	}
	t.Delay(len(jobs), t.writeNewRows)
}

func (t *tx) writeNewRows() error {
	if _, err := insertEvents.Exec(t.Tx, eventArgs, t.newRows.events); err != nil {
		return fmt.Errorf("insert events: %w", err)
	}
	if _, err := insertDeliveries.Exec(t.Tx, deliveryArgs, t.newRows.deliveries); err != nil {
		return fmt.Errorf("insert deliveries: %w", err)
	}
	t.newRows.forget()
	return nil
}

// forget empties the new rows. It keeps no event in memory.
func (r *newRows) forget() {
	clear(r.events)
	clear(r.deliveries)
	clear(r.keys)
	r.events, r.deliveries = r.events[:0], r.deliveries[:0]
}
