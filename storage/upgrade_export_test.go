package storage

import (
	"context"
	"regexp"
	"slices"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// Step takes a file from one schema version to the next.
type Step = func(*Tx) error

// Upgrading returns options of a later version, with that schema and those steps after the present ones. reached receives
// the progress; it may be nil.
func Upgrading(o Options, schema string, reached func(point string), steps ...Step) Options {
	o.Schema = schema
	o.tune = func(e *sqlite.Options) {
		e.Reached, e.Upgrades = reached, slices.Clone(schemaUpgrades[:])
		for _, step := range steps {
			e.Upgrades = append(e.Upgrades, func(t *sqlite.Tx) error { return step(&Tx{t}) })
		}
	}
	return o
}

// Version is the schema version that this binary writes.
const Version = schemaVersion

// Missing returns the versions without an upgrade step.
func Missing() (versions []int) {
	for i, s := range schemaUpgrades {
		if s == nil {
			versions = append(versions, i+2)
		}
	}
	return versions
}

// notCode matches the differences between texts of the same schema: comments, spaces and quotes.
var notCode = regexp.MustCompile(`--.*|[\s"]`)

// Objects returns the schema of the file, object by object.
func (s *Store) Objects(ctx context.Context) (map[string]string, error) {
	var list []struct{ Type, Name, SQL string }
	if err := s.pools.reads.List(ctx, &list, "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"); err != nil {
		return nil, err
	}
	named := map[string]string{}
	for _, o := range list {
		named[o.Type+" "+o.Name] = notCode.ReplaceAllString(o.SQL, "")
	}
	return named, nil
}

// Rows returns how many rows each table has.
func (s *Store) Rows(ctx context.Context) (map[string]int64, error) {
	var tables []string
	if err := s.pools.reads.List(ctx, &tables, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"); err != nil {
		return nil, err
	}
	rows := map[string]int64{}
	for _, table := range tables {
		var n int64
		if err := s.pools.reads.Get(ctx, &n, `SELECT count(*) FROM "`+table+`"`); err != nil {
			return nil, err
		}
		rows[table] = n
	}
	return rows, nil
}
