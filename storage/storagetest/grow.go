package storagetest

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Size says how many deliveries Grow writes.
type Size struct {
	// History is the number of ended deliveries. Each has one successful attempt. They are spread over all
	// subscriptions, ten per event.
	History int
	// Closed deliveries wait for disabled subscriptions. Failing ones wait for failing subscriptions whose next probe
	// is minutes away. Later ones are due at healthy subscriptions in some minutes. None is due before the benchmark
	// ends.
	Closed, Failing, Later int
}

// fanOut is how many deliveries of the history share an event.
const fanOut = 10

// Grow fills a file like months of work. It writes millions of rows, for which Publish would need minutes. The file
// must have some dozens of healthy subscriptions, and nobody may have it open. If Size asks for closed deliveries, a
// quarter of the subscriptions becomes disabled. If it asks for failing ones, another quarter becomes failing. See
// StaysHealthy.
func Grow(tb testing.TB, path string, size Size) {
	tb.Helper()
	db, err := sql.Open("sqlite", (&url.URL{
		Scheme: "file", Path: path,
		// If the power fails, the benchmark and its file are thrown away.
		RawQuery: "_pragma=synchronous(off)&_pragma=cache_size(-256000)&_pragma=foreign_keys(off)&_pragma=journal_size_limit(0)",
	}).String())
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	g := grower{db, time.Now().UnixMilli()}
	if err := errors.Join(g.grow(size), db.Close()); err != nil {
		tb.Fatalf("grow: %v", err)
	}
}

type grower struct {
	db  *sql.DB
	now int64
}

// Parts of the subscriptions, by row id.
const (
	anySubscription = "id > 0"
	disabledQuarter = "id > 1 AND id % 4 = 1"
	failingQuarter  = "id > 1 AND id % 4 = 2"
	healthyHalf     = "id > 1 AND id % 4 IN (0, 3)"
)

// StaysHealthy reports whether Grow leaves the subscription with this row id healthy.
func StaysHealthy(row int) bool { return row == 1 || row%4 == 0 || row%4 == 3 }

func (g grower) grow(size Size) error {
	minute := time.Minute.Milliseconds()
	if err := g.deliveries(size.History, anySubscription, webhook.Delivered, 0); err != nil {
		return err
	}
	if size.Closed > 0 {
		if _, err := g.db.Exec("UPDATE subscriptions SET status = 'disabled', last_error = 'deactivated', disabled_at = ? WHERE "+disabledQuarter, g.now); err != nil {
			return err
		}
	}
	if size.Failing > 0 {
		if _, err := g.db.Exec("UPDATE subscriptions SET status = 'failing', consecutive_failures = 5, last_error = 'timeout', probe_at = ? WHERE "+failingQuarter, g.now+9*minute); err != nil {
			return err
		}
	}
	return errors.Join(
		g.deliveries(size.Closed, disabledQuarter, webhook.Pending, g.now),
		g.deliveries(size.Failing, failingQuarter, webhook.Pending, g.now),
		g.deliveries(size.Later, healthyHalf, webhook.Pending, g.now+9*minute),
	)
}

// deliveries inserts n deliveries for the subscriptions of a part, in turn, with their events. Delivered ones also get
// an attempt.
func (g grower) deliveries(n int, part string, state webhook.DeliveryState, dueAt int64) error {
	if n == 0 {
		return nil
	}
	var event, delivery, receivers int64
	if err := errors.Join(
		g.db.QueryRow("SELECT coalesce(max(id), 0) FROM events").Scan(&event),
		g.db.QueryRow("SELECT coalesce(max(id), 0) FROM deliveries").Scan(&delivery),
		g.db.QueryRow("SELECT count(*) FROM subscriptions WHERE "+part).Scan(&receivers),
	); err != nil {
		return err
	}
	if receivers < fanOut {
		return fmt.Errorf("%d subscriptions are too few for %d deliveries", receivers, n)
	}
	for _, statement := range g.statements(n, part, state, dueAt, event, delivery, receivers) {
		if _, err := g.db.Exec(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// statements returns the SQL of deliveries. event and delivery are the last row ids, and receivers is the size of the part.
func (g grower) statements(n int, part string, state webhook.DeliveryState, dueAt, event, delivery, receivers int64) []string {
	dayAgo := g.now - 24*time.Hour.Milliseconds()
	statements := []string{
		`CREATE TEMP TABLE receivers AS
		 SELECT row_number() OVER (ORDER BY id) - 1 AS place, id, organization_id FROM subscriptions WHERE ` + part,
		`CREATE UNIQUE INDEX temp.receivers_by_place ON receivers (place)`,
		fmt.Sprintf(`CREATE TEMP TABLE numbers AS
		 WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < %d) SELECT i FROM n`, n),
		fmt.Sprintf(`INSERT INTO events (id, organization_id, type, created_at, held, body)
		 SELECT %d + i, (SELECT organization_id FROM receivers WHERE place = 0), 'grown', %d + i / 100, 0,
		        CAST('{"type":"grown","data":{"text":"' || hex(zeroblob(100)) || '"}}' AS BLOB)
		 FROM numbers WHERE i * %d < %d`, event+1, dayAgo, fanOut, n),
		fmt.Sprintf(`INSERT INTO deliveries (id, event_id, subscription_id, state, cause, attempts, due_at)
		 SELECT %d + i, %d + i / %d, r.id, %d, 0, %d, %d + i / 1000
		 FROM numbers JOIN receivers r ON r.place = i %% %d`,
			delivery+1, event+1, fanOut, state, state, dueAt, receivers), // a delivered one has one attempt
	}
	if state == webhook.Delivered {
		statements = append(statements, fmt.Sprintf(`
		 INSERT INTO attempts (id, subscription_id, cause, outcome, response_status, response_body, duration_ms, error, attempted_at)
		 SELECT (%d + i) << 8 | 1, r.id, 0, 1, 200, '', 12, '', %d + i / 1000
		 FROM numbers JOIN receivers r ON r.place = i %% %d`, delivery+1, dayAgo, receivers))
	}
	return append(statements, "DROP TABLE temp.receivers", "DROP TABLE temp.numbers", "PRAGMA wal_checkpoint(TRUNCATE)")
}
