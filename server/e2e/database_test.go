package e2e

import (
	"database/sql"
	"encoding/json"
	"errors"
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

// readFrom begins a read beside a running process. Until its end, no checkpoint copies what the process writes, so the log grows.
func readFrom(t *testing.T, path string) (end func()) {
	t.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: "mode=ro"}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.Begin()
	var tables int
	if err == nil {
		err = tx.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { noError(t, tx.Rollback()) }
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
		fmt.Sprintf(`INSERT INTO events (id, organization_id, type, created_at, held, body)
			SELECT 1000000, organization_id, 'waiting', %d, 0, CAST('{"type":"waiting","data":{}}' AS BLOB) FROM temp.model LIMIT 1`, now),
		fmt.Sprintf(`INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
			SELECT 1000000, id, 0, 0, 0, %d FROM temp.model`, now+time.Hour.Milliseconds()),
		`PRAGMA wal_checkpoint(TRUNCATE)`)
}

// backdate makes the file one that was last used so long ago: all that has a time is older, the clock's high-water mark too.
func backdate(tb testing.TB, path string, by time.Duration) {
	tb.Helper()
	age := by.Milliseconds()
	change(tb, path,
		fmt.Sprintf("UPDATE events SET created_at = created_at - %d", age),
		fmt.Sprintf("UPDATE deliveries SET due_at = due_at - %d", age),
		fmt.Sprintf("UPDATE attempts SET attempted_at = attempted_at - %d", age),
		fmt.Sprintf("UPDATE audit_events SET at = at - %d", age))
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	var text []byte
	switch err := db.QueryRow("SELECT value FROM instance WHERE name = 'clock'").Scan(&text); {
	case errors.Is(err, sql.ErrNoRows):
		return // a version that keeps none
	case err != nil:
		tb.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(text, &state); err != nil {
		tb.Fatal(err)
	}
	for name, value := range state {
		if at, isNumber := value.(float64); isNumber && int64(at) > age {
			state[name] = int64(at) - age
		}
	}
	if text, err = json.Marshal(state); err != nil {
		tb.Fatal(err)
	}
	if _, err := db.Exec("UPDATE instance SET value = ? WHERE name = 'clock'", text); err != nil {
		tb.Fatal(err)
	}
}

// bury adds n removed subscriptions and n revoked keys to an organization, as copies of existing ones.
func bury(tb testing.TB, path, organization string, n int) {
	tb.Helper()
	numbers := fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", n)
	of := "organization_id = (SELECT id FROM organizations WHERE public_id = '" + organization + "')"
	var statements []string
	for table, changes := range map[string]string{
		"subscriptions": "deleted_at = updated_at, public_id = 'sub_' || printf('%026d', rowid)",
		"api_keys":      "revoked_at = created_at, public_id = 'key_' || printf('%026d', rowid), digest = randomblob(32)",
	} {
		statements = append(statements,
			"CREATE TEMP TABLE one AS SELECT * FROM "+table+" WHERE "+of+" LIMIT 1",
			numbers+"INSERT INTO temp.one SELECT o.* FROM temp.one o JOIN n",
			"UPDATE temp.one SET id = 1000 + rowid, "+changes,
			"INSERT INTO "+table+" SELECT * FROM temp.one",
			"DROP TABLE temp.one")
	}
	change(tb, path, append(statements, "PRAGMA wal_checkpoint(TRUNCATE)")...)
}
