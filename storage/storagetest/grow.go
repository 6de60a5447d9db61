package storagetest

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Size says how many deliveries Grow writes.
type Size struct {
	// History is the number of ended deliveries. Each has one successful attempt. They are spread over all
	// subscriptions, ten per event.
	History int
	// Closed deliveries wait for disabled subscriptions. Failing ones wait for failing subscriptions whose next probe is
	// minutes away. Later ones are due at healthy subscriptions in some minutes. None is due before the benchmark ends.
	Closed, Failing, Later int
}

// fanOut is how many deliveries of the history share an event.
const fanOut = 10

// Grow fills a file like months of work. It writes millions of rows, for which Publish would need minutes. The file must
// have some dozens of healthy subscriptions, and nobody may have it open. If Size asks for closed deliveries, a quarter
// of the subscriptions becomes disabled. If it asks for failing ones, another quarter becomes failing. See StaysHealthy.
func Grow(tb testing.TB, path string, size Size) {
	tb.Helper()
	now := time.Now().UnixMilli()
	later := now + 9*time.Minute.Milliseconds()
	// If the power fails, the benchmark and its file are thrown away.
	const fast = "_pragma=synchronous(off)&_pragma=cache_size(-256000)&_pragma=foreign_keys(off)&_pragma=journal_size_limit(0)"
	withFile(tb, path, fast, func(db *sql.DB) error {
		db.SetMaxOpenConns(1)
		for _, part := range []struct {
			n      int
			of     string // the subscriptions, by row id
			change string // to these subscriptions
			state  webhook.DeliveryState
			dueAt  int64
		}{
			{size.History, "id > 0", "", webhook.Delivered, 0},
			{size.Closed, "id > 1 AND id % 4 = 1", fmt.Sprintf("status = 'disabled', last_error = 'deactivated', disabled_at = %d", now),
				webhook.Pending, now},
			{size.Failing, "id > 1 AND id % 4 = 2",
				fmt.Sprintf("status = 'failing', consecutive_failures = 5, last_error = 'timeout', probe_at = %d", later), webhook.Pending, now},
			{size.Later, "id > 1 AND id % 4 IN (0, 3)", "", webhook.Pending, later},
		} {
			if part.n == 0 {
				continue
			}
			if part.change != "" {
				if _, err := db.Exec("UPDATE subscriptions SET " + part.change + " WHERE " + part.of); err != nil {
					return err
				}
			}
			if err := insert(db, part.n, part.of, part.state, part.dueAt, now-24*time.Hour.Milliseconds()); err != nil {
				return err
			}
		}
		return nil
	})
}

// StaysHealthy reports whether Grow leaves the subscription with this row id healthy.
func StaysHealthy(row int) bool { return row == 1 || row%4 == 0 || row%4 == 3 }

// insert inserts n deliveries for subscriptions, in turn, with their events. Delivered ones also get an attempt.
func insert(db *sql.DB, n int, subscriptions string, state webhook.DeliveryState, dueAt, dayAgo int64) error {
	var event, delivery, receivers int64 // the first row ids, and how many subscriptions there are
	if err := db.QueryRow(`SELECT (SELECT coalesce(max(id), 0) + 1 FROM events), (SELECT coalesce(max(id), 0) + 1 FROM deliveries),
		(SELECT count(*) FROM subscriptions WHERE `+subscriptions+")").Scan(&event, &delivery, &receivers); err != nil {
		return err
	}
	if receivers < fanOut {
		return fmt.Errorf("%d subscriptions are too few for %d deliveries", receivers, n)
	}
	statements := []string{
		`CREATE TEMP TABLE receivers AS
		 SELECT row_number() OVER (ORDER BY id) - 1 AS place, id, organization_id FROM subscriptions WHERE ` + subscriptions,
		`CREATE UNIQUE INDEX temp.receivers_by_place ON receivers (place)`,
		fmt.Sprintf(`CREATE TEMP TABLE numbers AS
		 WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < %d) SELECT i FROM n`, n),
		fmt.Sprintf(`INSERT INTO events (id, organization_id, type, created_at, held, body)
		 SELECT %d + i, (SELECT organization_id FROM receivers WHERE place = 0), 'grown', %d + i / 100, 0,
		        CAST('{"type":"grown","data":{"text":"' || hex(zeroblob(100)) || '"}}' AS BLOB)
		 FROM numbers WHERE i * %d < %d`, event, dayAgo, fanOut, n),
		fmt.Sprintf(`INSERT INTO deliveries (id, event_id, subscription_id, state, cause, attempts, due_at)
		 SELECT %d + i, %d + i / %d, r.id, %d, 0, %d, %d + i / 1000
		 FROM numbers JOIN receivers r ON r.place = i %% %d`,
			delivery, event, fanOut, state, state, dueAt, receivers), // a delivered one has one attempt
	}
	if state == webhook.Delivered {
		statements = append(statements, fmt.Sprintf(`
		 INSERT INTO attempts (id, subscription_id, cause, outcome, response_status, response_body, duration_ms, error, attempted_at)
		 SELECT (%d + i) << 8 | 1, r.id, 0, 1, 200, '', 12, '', %d + i / 1000
		 FROM numbers JOIN receivers r ON r.place = i %% %d`, delivery, dayAgo, receivers))
	}
	for _, statement := range append(statements, "DROP TABLE temp.receivers", "DROP TABLE temp.numbers", "PRAGMA wal_checkpoint(TRUNCATE)") {
		if _, err := db.Exec(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
