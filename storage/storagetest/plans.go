package storagetest

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage"
)

// QueryPlans returns the query plans of all statements that the store has run, by text.
func QueryPlans(tb testing.TB, store *storage.Store) map[string][]string {
	tb.Helper()
	texts, err := store.Statements(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	slices.Sort(texts)
	plans := map[string][]string{}
	withFile(tb, store.Path(), patient, func(db *sql.DB) (err error) {
		for _, text := range slices.Compact(texts) {
			if plans[text], err = explainPlan(db, text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return nil
	})
	return plans
}

func explainPlan(db *sql.DB, text string) (plan []string, err error) {
	rows, err := db.Query("EXPLAIN QUERY PLAN "+text, parameters(text)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var detail string
		if err := rows.Scan(new(any), new(any), new(any), &detail); err != nil {
			return nil, err
		}
		plan = append(plan, detail)
	}
	return plan, rows.Err()
}

// parameters returns NULL for each parameter of a statement: for its names, or its plain question marks, or up to the highest number.
func parameters(text string) (args []any) {
	for _, name := range regexp.MustCompile(`:[a-z_]+`).FindAllString(text, -1) {
		args = append(args, sql.Named(name[1:], nil))
	}
	for _, mark := range regexp.MustCompile(`\?[0-9]*`).FindAllString(text, -1) {
		number, err := strconv.Atoi(mark[1:])
		if err != nil {
			number = len(args) + 1
		}
		args = append(args, make([]any, max(0, number-len(args)))...)
	}
	return args
}

// Grows matches a step whose time grows with the file: it sorts, or builds an index, or scans one of the large tables, by the aliases of our
// statements. Pending deliveries, running attempts and live subscriptions are scanned once at the start, each in an index of its own.
var Grows = regexp.MustCompile(`TEMP B-TREE|AUTOMATIC|^SCAN (events|e|deliveries|d|attempts|a|api_keys|k|subscriptions|s|audit_events|key_days|organization_days|u)\b($| USING (COVERING )?INDEX (events|key_days|organization_days|deliveries_by|attempts_by|attempts_in|api|subscriptions_by|audit|sqlite))`)

// NoneGrows checks the plans of all statements that the store has run, and returns their number. but allows exceptions:
// a statement with the first text may have steps with the second.
func NoneGrows(tb testing.TB, store *storage.Store, but map[string]string) int {
	tb.Helper()
	plans := QueryPlans(tb, store)
	for text, plan := range plans {
		for _, step := range plan {
			allowed := false
			for part, fine := range but {
				allowed = allowed || strings.Contains(text, part) && strings.Contains(step, fine)
			}
			if !allowed && Grows.MatchString(step) {
				tb.Errorf("%s\n  %s", text, strings.Join(plan, "\n  "))
				break
			}
		}
	}
	return len(plans)
}
