package storage

import (
	"context"
	"fmt"

	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Estimates, in bytes, of what rows and their indexes add to the file. Measured: 250 to 450 for an event without its
// data, with its first delivery and attempt; 90 for each further delivery; 220 for an audit event.
const (
	storedPerEvent     = 450 // 300 for the rows and 150 for the envelope of the body
	storedPerDelivery  = 100
	storedPerAuditLine = 300
	// storedPerChange is the least that a change needs: its line in the audit log, and the event about it.
	storedPerChange = 1_000
)

const dayLength = 86_400_000 // milliseconds

// storedSize estimates how many bytes an event and its deliveries add to the file.
func storedSize(e webhook.NewEvent, deliveries int) int {
	return storedPerEvent + len(e.Type) + len(e.Data) + len(e.IdempotencyKey) + deliveries*storedPerDelivery
}

// quotas count the bytes that each organization has stored in the current UTC day. The table storage_days has the
// counts as of the last commit.
//
// The wall clock decides the day. If it jumps to another day, the count of that day applies. If it jumps back, the old
// count applies again.
type quotas struct {
	day    int64
	cached map[int64]*quota // by organization; only the writer changes them
	added  map[int64]int64  // bytes by organization that this transaction adds
}

// quota is how much an organization may store in a day, and how much it has stored. It also says whether its plan has
// webhooks, because a publication needs both.
type quota struct {
	Plan  string `db:"name"`
	Limit *int64 `db:"max_stored_bytes_per_day"` // nil means no limit
	Bytes int64  `db:"bytes"`                    // includes those of this transaction

	Webhooks bool `db:"webhooks"` // the plan has webhooks
	Closed   bool `db:"closed"`   // the organization is closed
}

func newQuotas() quotas { return quotas{cached: map[int64]*quota{}, added: map[int64]int64{}} }

// forget empties the cache. Call it when the plan of an organization changes, or when an organization is closed.
func (q *quotas) forget() { clear(q.cached) }

// remove removes an organization that the transaction has deleted.
func (q *quotas) remove(organization int64) {
	delete(q.cached, organization)
	delete(q.added, organization)
}

// forgetAll also removes what the transaction has added, for a rollback.
func (q *quotas) forgetAll() {
	q.forget()
	clear(q.added)
}

// countStored adds bytes to the count of an organization.
func (t *tx) countStored(organization int64, bytes int) {
	if bytes == 0 {
		return
	}
	t.Wrote(0)
	t.quotas.added[organization] += int64(bytes)
	if q, ok := t.quotas.cached[organization]; ok {
		q.Bytes += int64(bytes)
	}
}

// quota returns the quota of an organization on the day of the transaction.
func (t *tx) quota(organization int64) (*quota, error) {
	day := t.Now() / dayLength
	if t.quotas.day != day {
		t.quotas.day = day
		t.quotas.forget()
	}
	if q, ok := t.quotas.cached[organization]; ok {
		return q, nil
	}
	q := new(quota)
	if err := t.Get(q, `
		SELECT p.name, p.webhooks, p.max_stored_bytes_per_day, o.closed_at IS NOT NULL AS closed,
		       coalesce((SELECT bytes FROM storage_days WHERE organization_id = o.id AND day = ?2), 0) AS bytes
		FROM organizations o JOIN plans p ON p.id = o.plan_id WHERE o.id = ?1`, organization, day); err != nil {
		return nil, sqlite.Missing(err, "organization")
	}
	q.Bytes += t.quotas.added[organization]
	if len(t.quotas.cached) >= maxCached {
		t.quotas.forget()
	}
	t.quotas.cached[organization] = q
	return q, nil
}

// requireStorage refuses bytes that the plan does not allow today. The check is part of the transaction that adds them,
// so parallel requests cannot exceed the limit. Faults: Limited; Conflict for a closed organization.
func requireStorage(t *tx, organization int64, bytes int) error {
	q, err := t.quota(organization)
	switch {
	case err != nil:
		return err
	case q.Closed:
		return directory.ErrClosed
	case q.Limit == nil || q.Bytes+int64(bytes) <= *q.Limit:
		return nil
	}
	return fault.New(fault.Limited, "storage_quota_exceeded",
		"The plan %q allows %d stored bytes per UTC day (max_stored_bytes_per_day). The organization has stored %d today, and this "+
			"request needs about %d more. Try again after midnight UTC, or ask an operator for a higher max_stored_bytes_per_day or another plan.",
		q.Plan, *q.Limit, q.Bytes, bytes)
}

// writeStored adds the bytes of the transaction to the table.
func (t *tx) writeStored() error {
	for organization, bytes := range t.quotas.added {
		if _, err := t.Exec(`
			INSERT INTO storage_days (organization_id, day, bytes) VALUES (?, ?, ?)
			ON CONFLICT (organization_id, day) DO UPDATE SET bytes = bytes + excluded.bytes`,
			organization, t.Now()/dayLength, bytes); err != nil {
			return fmt.Errorf("count stored bytes: %w", err)
		}
	}
	clear(t.quotas.added)
	return nil
}

// storageDaysBatch limits the counts that one transaction deletes.
const storageDaysBatch = 500

// dropStorageDays deletes the counts from before yesterday, unless the clock is in doubt. It reads before it writes,
// because usually there are none.
func (s *Store) dropStorageDays(ctx context.Context) error {
	now, trusted := s.trustedTime()
	if !trusted {
		return nil
	}
	before := now/dayLength - 1
	var past bool
	if err := s.get(ctx, &past, "SELECT EXISTS (SELECT 1 FROM storage_days WHERE day < ?)", before); err != nil || !past {
		return err
	}
	return s.change(ctx, func(t *tx) error {
		_, err := t.Exec(`
			DELETE FROM storage_days WHERE (organization_id, day) IN (
				SELECT organization_id, day FROM storage_days INDEXED BY storage_days_by_day WHERE day < ? LIMIT ?)`, before, storageDaysBatch)
		return err
	})
}
