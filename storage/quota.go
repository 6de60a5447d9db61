package storage

import (
	"context"
	"fmt"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// An estimate, in bytes, of what rows add to the file with their indexes. Measured were 250 to 450 bytes for an event beside
// its data, with its first delivery and attempt; 90 for each further delivery; 220 for a line of the audit log.
const (
	storedPerEvent     = 450 // 300 for the rows and 150 for the envelope of the body
	storedPerDelivery  = 100
	storedPerAuditLine = 300
	// storedPerChange is what a change needs at least: its line in the audit log, and the event of it.
	storedPerChange = 1_000
)

const dayLength = 86_400_000 // milliseconds

// storedSize estimates how many bytes an event and its deliveries add to the file.
func storedSize(e webhook.NewEvent, deliveries int) int {
	return storedPerEvent + len(e.Type) + len(e.Data) + len(e.IdempotencyKey) + deliveries*storedPerDelivery
}

// quotas count the bytes that each organization has stored in this UTC day. The table storage_days holds the counts too, as
// of the last commit. A day is one of the wall clock: if the clock jumps to another day, the count of that day holds, and
// if it jumps back, the count of the day before holds again.
type quotas struct {
	day   int64
	known map[int64]*quota // by organization; the writer alone changes what they say
	added map[int64]int64  // bytes by organization, in this transaction
}

// quota is what an organization may store and has stored in a day.
type quota struct {
	Plan  string `db:"name"`
	Limit *int64 `db:"max_stored_bytes_per_day"` // nil is no limit
	Bytes int64  `db:"bytes"`                    // with those of this transaction
}

func newQuotas() quotas { return quotas{known: map[int64]*quota{}, added: map[int64]int64{}} }

// forget drops what is known. It must be called where the plan of an organization changes.
func (q *quotas) forget() { clear(q.known) }

// remove drops an organization that the transaction has deleted.
func (q *quotas) remove(organization int64) {
	delete(q.known, organization)
	delete(q.added, organization)
}

// forgetAll also drops what the transaction has added, because it is rolled back.
func (q *quotas) forgetAll() {
	q.forget()
	clear(q.added)
}

// countStored counts bytes that the transaction adds for an organization.
func (t *tx) countStored(organization int64, bytes int) {
	if bytes == 0 {
		return
	}
	t.Wrote(0)
	t.quotas.added[organization] += int64(bytes)
	if q, ok := t.quotas.known[organization]; ok {
		q.Bytes += int64(bytes)
	}
}

// quota returns the quota of an organization for the day of the transaction.
func (t *tx) quota(organization int64) (*quota, error) {
	day := t.Now() / dayLength
	if t.quotas.day != day {
		t.quotas.day = day
		t.quotas.forget()
	}
	if q, ok := t.quotas.known[organization]; ok {
		return q, nil
	}
	q := new(quota)
	if err := t.Get(q, `
		SELECT p.name, p.max_stored_bytes_per_day,
		       coalesce((SELECT bytes FROM storage_days WHERE organization_id = o.id AND day = ?2), 0) AS bytes
		FROM organizations o JOIN plans p ON p.id = o.plan_id WHERE o.id = ?1`, organization, day); err != nil {
		return nil, sqlite.Missing(err, "organization")
	}
	q.Bytes += t.quotas.added[organization]
	if len(t.quotas.known) >= maxCached {
		t.quotas.forget()
	}
	t.quotas.known[organization] = q
	return q, nil
}

// requireStorage refuses to add so many bytes where the plan of an organization does not allow them today. The check stands
// in the transaction that adds them, so parallel requests cannot pass the limit. Faults: Limited.
func requireStorage(t *tx, organization int64, bytes int) error {
	q, err := t.quota(organization)
	if err != nil || q.Limit == nil || q.Bytes+int64(bytes) <= *q.Limit {
		return err
	}
	return fault.New(fault.Limited, "storage_quota_exceeded",
		"The plan %q allows %d bytes to be stored in a UTC day (max_stored_bytes_per_day); the organization has stored %d, and this "+
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

// storageDaysBatch is how many counts of past days a transaction deletes.
const storageDaysBatch = 500

// dropStorageDays deletes the counts of days before yesterday, unless the clock is doubted. It looks before it writes:
// mostly there are none.
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
