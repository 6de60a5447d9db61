package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/fault"
)

// version is the schema version that this binary writes (PRAGMA user_version): one more than there are released steps.
const version = 1

// Why Open refuses a file. Each comes wrapped in a sentence that says what to do.
var (
	ErrNewerSchema = errors.New("database was written by a newer version")
	ErrSchema      = errors.New("database schema is not the expected one")
	ErrForeignFile = errors.New("file is not a Keyhook database")
	ErrLost        = errors.New("database is empty or gone")
	ErrDamaged     = errors.New("database is damaged")
)

// object is a table or an index of a schema.
type object struct {
	Type string `db:"type"`
	Name string `db:"name"`
	SQL  string `db:"sql"`
}

// objects lists what the schema is made of: all but SQLite's own, and the two tables that Litestream makes in every database
// that it replicates.
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

// identify looks at a file before anything is written to it, which might be another application's: whether it has no
// tables yet, and otherwise whether it is ours, of this schema or an older one, and sound.
func (s *Store) identify(ctx context.Context, schema string, size int64, wasLeftOpen bool) (err error) {
	name, err := dsn(s.path, readerPragmas())
	if err != nil {
		return err
	}
	db, err := connect(ctx, name, 1, readerPragmas())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if s.created, err = s.compare(ctx, db, schema); err != nil || s.created {
		return err
	}
	switch {
	case s.outdated > 0: // whatever its size: what is unsound is not to be upgraded
		return checkDatabase(ctx, db, "quick_check(1)")
	case wasLeftOpen:
		return s.checkFirst(ctx, db, size)
	}
	return nil
}

// compare compares the file with what it should be. created says that there is nothing in it yet, s.outdated that its schema
// is an older one: what that should be, nobody knows.
func (s *Store) compare(ctx context.Context, db sqlx.QueryerContext, schema string) (created bool, err error) {
	have, err := objects(ctx, db)
	if err != nil {
		return false, err
	}
	var app, user int64
	if err := errors.Join(
		sqlx.GetContext(ctx, db, &app, "PRAGMA application_id"),
		sqlx.GetContext(ctx, db, &user, "PRAGMA user_version"),
	); err != nil {
		return false, fmt.Errorf("read schema version: %w", err)
	}
	switch {
	case len(have) == 0 && app == 0 && user == 0:
		return true, nil
	case app != applicationID:
		return false, fault.Advise(fmt.Errorf("%w: %s holds another application's tables", ErrForeignFile, s.path),
			"set storage.path to another file")
	case user > s.upgrades.version():
		return false, s.upgrades.newer(s.path, user)
	case user < 1:
		return false, fault.Advise(fmt.Errorf("%w: %s has schema %d, which no version has written", ErrSchema, s.path, user),
			"restore a backup")
	case user < s.upgrades.version():
		s.outdated = user
		return false, nil
	}
	return false, compareSchema(ctx, schema, have)
}

// compareSchema checks what the file has against the schema text, by giving that text to an empty database in memory.
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
		return fmt.Errorf("%w; restore a backup or undo the change made by hand:\n%s", ErrSchema, d)
	}
	return nil
}

// diff lists what is missing with "-" and what is too much with "+", comments and spacing aside.
func diff(want, have []object) string {
	var b strings.Builder
	report := func(sign string, list, other []object) {
		for _, o := range list {
			if !slices.ContainsFunc(other, func(p object) bool {
				return p.Type == o.Type && p.Name == o.Name && canonical(p.SQL) == canonical(o.SQL)
			}) {
				fmt.Fprintf(&b, "%s %s %s: %s\n", sign, o.Type, o.Name, plain(o.SQL))
			}
		}
	}
	report("-", want, have)
	report("+", have, want)
	return b.String()
}

// canonical is plain without what SQLite changes when it alters a table: quotes around names, and the space that
// surrounds commas and parentheses.
func canonical(sql string) string {
	sql = strings.ReplaceAll(plain(sql), `"`, "")
	for _, mark := range []string{",", "(", ")"} {
		sql = strings.ReplaceAll(strings.ReplaceAll(sql, " "+mark, mark), mark+" ", mark)
	}
	return sql
}

// plain strips comments and folds white space. schema.sql has no string literal with "--" in it.
func plain(sql string) string {
	var b strings.Builder
	for line := range strings.Lines(sql) {
		code, _, _ := strings.Cut(line, "--")
		b.WriteString(code)
		b.WriteByte(' ')
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
