package e2e

import (
	"database/sql"
	"fmt"
	"net/url"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

const terminate = syscall.SIGTERM

// change runs statements on the database of a stopped process. It is for what would take the API hours.
func change(tb testing.TB, path string, statements ...string) {
	tb.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=synchronous(off)&_pragma=foreign_keys(on)"}).String())
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

// count returns the number that a query yields, read beside a running process.
func count(tb testing.TB, path, query string) (n int) {
	tb.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: "mode=ro"}).String())
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// multiply copies the only subscription until there are n, each in wait for one delivery that is due in an hour.
func multiply(tb testing.TB, path string, n int) {
	tb.Helper()
	now := time.Now().UnixMilli()
	numbers := fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", n)
	change(tb, path,
		`CREATE TEMP TABLE model AS SELECT * FROM subscriptions LIMIT 1`,
		numbers+`INSERT INTO temp.model SELECT s.* FROM temp.model s JOIN n`,
		`UPDATE temp.model SET id = 1000 + rowid, public_id = 'sub_' || printf('%026d', rowid)`,
		`INSERT INTO subscriptions SELECT * FROM temp.model`,
		fmt.Sprintf(`INSERT INTO events (id, organization_id, type, created_at, body)
			SELECT 1000000, organization_id, 'waiting', %d, CAST('{"type":"waiting","data":{}}' AS BLOB) FROM temp.model LIMIT 1`, now),
		fmt.Sprintf(`INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
			SELECT 1000000, id, 0, 0, 0, %d FROM temp.model`, now+time.Hour.Milliseconds()),
		`PRAGMA wal_checkpoint(TRUNCATE)`)
}
