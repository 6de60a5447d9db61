package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// After a crash the structure of the file is looked at: what a disk has broken is better told at once than found by a
// request. A small file is looked at before anything else, at some 100 MB a second; a large one, table by table, while it
// is in use already, as long as the write-ahead log allows.
const (
	checkedFirst = 64 << 20         // bytes
	checkLimit   = 60 * time.Second // for one table: while it is read, the write-ahead log cannot be folded back
)

// leftOpen reports whether the last owner did not come to close the file: who closes it removes the write-ahead log.
func leftOpen(path string) (bool, error) {
	size, err := fileSize(path + disk.WAL)
	return size > 0, err
}

// checkFirst looks at a file that was left open, if it is small; a large one it leaves to checkLater.
func (s *Store) checkFirst(ctx context.Context, db sqlx.QueryerContext, size int64) error {
	if size > checkedFirst {
		s.unchecked = true
		s.log.Warn("the database was not closed by its last owner; it is checked while it is in use", "bytes", size)
		return nil
	}
	began := time.Now()
	if err := checkDatabase(ctx, db, "quick_check(1)"); err != nil {
		return err
	}
	s.log.Warn("the database was not closed by its last owner; it was checked and is sound", "bytes", size, "took", time.Since(began))
	return nil
}

// checkLater looks at a large file while it is in use, on a connection of its own.
func (s *Store) checkLater(ctx context.Context) error {
	if !s.unchecked {
		return nil
	}
	name, err := dsn(s.path, readerPragmas())
	if err != nil {
		return err
	}
	db, err := connect(ctx, name, 1, readerPragmas())
	if err != nil {
		return err
	}
	defer db.Close()
	tables := []string{}
	if err := db.SelectContext(ctx, &tables, "SELECT name FROM sqlite_schema WHERE type = 'table'"); err != nil {
		return err
	}
	began, all := time.Now(), true
	for _, table := range tables {
		limited, cancel := context.WithTimeout(ctx, checkLimit)
		s.checking.Store(&cancel) // see watchLog
		err := checkDatabase(limited, db, `quick_check("`+table+`")`)
		late := limited.Err() != nil
		s.checking.Store(nil)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case late:
			all = false
			s.log.Warn("a table is too large to be checked while it is in use; check a backup of it", "table", table)
		case errors.Is(err, ErrDamaged):
			s.condition.ail(byReading, damaged, err)
			return nil
		case err != nil:
			return err
		}
	}
	if all {
		s.log.Info("the database was checked and is sound", "took", time.Since(began))
	}
	return nil
}

// checkDatabase is checkIntegrity for the database itself, as opposed to a copy of it.
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
		return fmt.Errorf("check the database: %w", unreadable(err))
	}
	if len(found) == 1 && found[0] == "ok" {
		return nil
	}
	return fmt.Errorf("%w: %s (%.300s)", ErrDamaged, about, strings.Join(strings.Fields(strings.Join(found, " ")), " "))
}
