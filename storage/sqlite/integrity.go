package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/fault"
)

// After a crash the structure of the file is checked, so that damage is found before a request meets it. A small file is checked
// first, at some 100 MB a second. A large file is checked table by table while it is in use, as long as the write-ahead log allows.
const (
	checkedFirst = 64 << 20         // bytes
	checkLimit   = 60 * time.Second // per table, because the write-ahead log cannot restart meanwhile
)

// checkFirst checks a file that was left open, if it is small. It leaves a large one to checkLater.
func (f *File) checkFirst(ctx context.Context, db sqlx.QueryerContext) error {
	if f.size > checkedFirst {
		f.unchecked = true
		f.o.Logger.Warn("the database was not closed by its last owner; it is checked while it is in use", "bytes", f.size)
		return nil
	}
	began := time.Now()
	if err := checkDatabase(ctx, db, "quick_check(1)"); err != nil {
		return err
	}
	f.o.Logger.Warn("the database was not closed by its last owner; it was checked and is sound", "bytes", f.size, "took", time.Since(began))
	return nil
}

// checkLater checks a large file while it is in use, on a connection of its own.
func (f *File) checkLater(ctx context.Context) error {
	if !f.unchecked {
		return nil
	}
	return readDatabase(ctx, f.o.Path, func(db *sqlx.DB) error { return f.checkTables(ctx, db) })
}

func (f *File) checkTables(ctx context.Context, db *sqlx.DB) error {
	tables := []string{}
	if err := db.SelectContext(ctx, &tables, "SELECT name FROM sqlite_schema WHERE type = 'table'"); err != nil {
		return err
	}
	began, all := time.Now(), true
	for _, table := range tables {
		limited, cancel := context.WithTimeout(ctx, checkLimit)
		f.checking.Store(&cancel) // see watchLog
		err := checkDatabase(limited, db, `quick_check("`+table+`")`)
		late := limited.Err() != nil
		f.checking.Store(nil)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case late:
			all = false
			f.o.Logger.Warn("a table is too large to be checked while it is in use; check a backup of it", "table", table)
		case errors.Is(err, ErrDamaged):
			f.failures.degrade(byReading, damaged, err)
			return nil
		case err != nil:
			return err
		}
	}
	if all {
		f.o.Logger.Info("the database was checked and is sound", "took", time.Since(began))
	}
	return nil
}

// checkDatabase is checkIntegrity for the database itself, not for a copy.
func checkDatabase(ctx context.Context, db sqlx.QueryerContext, check string) error {
	err := checkIntegrity(ctx, db, check, "it was left as it is")
	if errors.Is(err, ErrDamaged) {
		return fault.AdviseMissing(err, "put the database back from a backup")
	}
	return err
}

// checkIntegrity runs a check of SQLite's: quick_check reads the structure, and integrity_check compares indexes with their
// tables too. ErrDamaged wraps about and what was found first.
func checkIntegrity(ctx context.Context, db sqlx.QueryerContext, check, about string) error {
	found := []string{}
	if err := sqlx.SelectContext(ctx, db, &found, "PRAGMA "+check); err != nil {
		return fmt.Errorf("check the database: %w", Advise(err))
	}
	if len(found) == 1 && found[0] == "ok" {
		return nil
	}
	return fmt.Errorf("%w: %s (%.300s)", ErrDamaged, about, strings.Join(strings.Fields(strings.Join(found, " ")), " "))
}
