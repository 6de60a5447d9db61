package sqlite

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/fault"
)

// The reasons why Open, Backup and Restore refuse a file. Each error is wrapped with advice on what to do, but for what only the
// commands know: how to make a backup.
var (
	ErrNewerSchema = errors.New("database was written by a newer version")
	ErrSchema      = errors.New("database schema is not the expected one")
	ErrForeignFile = errors.New("file is not a Keyhook database")
	ErrDamaged     = errors.New("database is damaged")
	ErrNoFile      = errors.New("there is no file") // of Restore
)

type object struct {
	Type string `db:"type"`
	Name string `db:"name"`
	SQL  string `db:"sql"`
}

// objects lists the tables and indexes of the schema, without SQLite's own objects and the two tables that Litestream
// creates in every database.
func objects(ctx context.Context, db sqlx.QueryerContext) ([]object, error) {
	list := []object{}
	err := sqlx.SelectContext(ctx, db, &list, `
		SELECT type, name, sql FROM sqlite_schema
		WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND name NOT IN ('_litestream_lock', '_litestream_seq') ORDER BY type, name`)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	return list, nil
}

// readVersion returns the schema version and the objects of a database. The version is 0 if the database is empty. It
// refuses a database of another application.
func readVersion(ctx context.Context, db sqlx.QueryerContext, path string) (found int64, have []object, err error) {
	if have, err = objects(ctx, db); err != nil {
		return 0, nil, err
	}
	var app int64
	if err := errors.Join(
		sqlx.GetContext(ctx, db, &app, "PRAGMA application_id"),
		sqlx.GetContext(ctx, db, &found, "PRAGMA user_version"),
	); err != nil {
		return 0, nil, fmt.Errorf("read schema version: %w", err)
	}
	switch {
	case len(have) == 0 && app == 0 && found == 0:
		return 0, nil, nil
	case app != applicationID:
		return 0, nil, otherApplication(path)
	case found < 1:
		return 0, nil, fault.Advise(fmt.Errorf("%w: %s has schema %d, which no version has written", ErrSchema, path, found), "restore a backup")
	}
	return found, have, nil
}

// compare compares the schema of the database with the one of this version. It cannot check an older schema.
func (i *inspection) compare(ctx context.Context, db sqlx.QueryerContext) error {
	found, have, err := readVersion(ctx, db, i.o.Path)
	switch {
	case err != nil:
		return err
	case found == 0:
		i.noTables = true
		return nil
	case found > i.o.version():
		return i.o.newer(found)
	case found < i.o.version():
		i.outdated = found
		return nil
	}
	return compareSchema(ctx, i.o.Schema, have)
}

// compareSchema compares the objects of the file with the schema text, which it runs in an empty database in memory.
func compareSchema(ctx context.Context, schema string, have []object) error {
	reference, err := sqlx.Open(driver, "file::memory:")
	if err != nil {
		return err
	}
	defer reference.Close()
	reference.SetMaxOpenConns(1) // every connection to :memory: is a database of its own
	if _, err := reference.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("apply schema.sql: %w", err)
	}
	want, err := objects(ctx, reference)
	if err != nil {
		return err
	}
	if d := diff(want, have); d != "" {
		return fault.Advise(fmt.Errorf("%w. The differences (- is missing, + is additional):\n%s", ErrSchema, strings.TrimSpace(d)),
			"restore a backup, or undo the change that was made by hand")
	}
	return nil
}

// diff lists missing objects with "-" and additional ones with "+". It ignores comments and spacing.
func diff(want, have []object) string {
	var b strings.Builder
	report := func(sign string, list, other []object) {
		for _, o := range list {
			if !slices.ContainsFunc(other, func(p object) bool {
				return p.Type == o.Type && p.Name == o.Name && (p.SQL == o.SQL || canonical(p.SQL) == canonical(o.SQL))
			}) {
				fmt.Fprintf(&b, "%s %s %s: %s\n", sign, o.Type, o.Name, plain(o.SQL))
			}
		}
	}
	report("-", want, have)
	report("+", have, want)
	return b.String()
}

// canonical is plain without the changes that SQLite makes when it alters a table: quotes around names, and space
// around commas and parentheses.
func canonical(sql string) string {
	return spacedMark.ReplaceAllString(strings.ReplaceAll(plain(sql), `"`, ""), "$1")
}

// plain strips comments and folds white space. schema.sql has no string literal with "--" in it.
func plain(sql string) string {
	return strings.Join(strings.Fields(comment.ReplaceAllString(sql, "")), " ")
}

var (
	spacedMark = regexp.MustCompile(` ?([,()]) ?`)
	comment    = regexp.MustCompile(`--.*`)
)
