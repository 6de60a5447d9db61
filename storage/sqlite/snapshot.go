package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// ErrNoSpace refuses a copy that does not fit on its disk. It is wrapped with advice on what to do.
var ErrNoSpace = errors.New("disk is too full")

// fullCheckSize is the largest copy that is checked in full, which takes about 50 s per gigabyte. Above it, indexes are
// not compared with their tables, because VACUUM has just created them from the tables.
const fullCheckSize = 256 << 20 // bytes

// source is an open database to copy. It is read through its open descriptors, so a user who could not open it may write the copy.
type source struct {
	path string
	size int64 // bytes, including its write-ahead log
	db   *sqlx.DB
}

func openSource(ctx context.Context, path string) (*source, error) {
	none := fault.Advise(fmt.Errorf("%w: there is no database at %s", ErrForeignFile, path), "set storage.path to where it is")
	size, err := fileSize(path)
	if err == nil && size == 0 {
		err = none
	}
	if err != nil {
		return nil, err
	}
	if err := disk.CheckKinds(path); err != nil {
		return nil, err
	}
	log, err := fileSize(path + disk.WAL)
	if err != nil {
		return nil, err
	}
	db, err := connect(ctx, path, 1, commonPragmas(), readOnly)
	if err != nil {
		return nil, failedCopy(err, path, filepath.Dir(path))
	}
	var tables int
	if err := db.GetContext(ctx, &tables, "SELECT count(*) FROM sqlite_schema"); err != nil { // this opens the log too
		return nil, errors.Join(failedCopy(err, path, filepath.Dir(path)), db.Close())
	}
	if tables == 0 { // the log that had all of it is missing
		return nil, errors.Join(none, db.Close())
	}
	return &source{path, size + log, db}, nil
}

// snapshot fills the empty file at to with the state of the database at one moment, and flushes it to the disk. It
// reads in a transaction, so no writer waits for it, in this process or another.
func (s *source) snapshot(ctx context.Context, to string) error {
	for _, name := range disk.Database(to)[1:] { // SQLite would read such a file as a part of the copy
		if err := disk.Remove(name); err != nil {
			return fmt.Errorf("begin the copy: %w", err)
		}
	}
	if _, err := s.db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return failedCopy(err, s.path, filepath.Dir(to))
	}
	return disk.SyncFile(to)
}

func failedCopy(err error, path, dir string) error {
	if isFull(err) {
		return fault.Advise(fmt.Errorf("%w: there is no free space in %s, and the partial copy was removed (%w)", ErrNoSpace, dir, err),
			"make room there, or name another directory")
	}
	switch code(err) & primaryMask {
	case sqliteNotADB:
		return noDatabase(path)
	case sqliteCorrupt:
		return fault.Advise(fmt.Errorf("%w: %s cannot be read in full (%w)", ErrDamaged, path, err), "use an older backup")
	case sqliteReadOnly, sqliteCantOpen: // even a reader of a write-ahead log may have to make files beside it
		return fault.Advise(fmt.Errorf("SQLite cannot read %s where it is (%w)", path, err),
			"check whether its disk is read-only, or its directory belongs to another user; if so, copy the file, and %s if there is one, to another directory, and use that copy", path+disk.WAL)
	}
	return fmt.Errorf("copy the database: %w", err)
}

// readOnly is the option of a connection that does not even fold back the log of a crash.
const readOnly = "mode=ro"

// existing opens a database without creating it. A pool connects again when it needs to, and must not make an empty file where somebody
// has removed the database.
const existing = "mode=rw"

// Copies describe a valid copy of the database.
type Copies struct {
	Version int64 // the newest schema version that this binary knows
	// Inspect reads the contents of a checked copy; it may be nil.
	Inspect func(ctx context.Context, db *sqlx.DB) error
}

func (c Copies) check(ctx context.Context, path string) error {
	err := readDatabase(ctx, path, func(db *sqlx.DB) error { return c.checkOpen(ctx, db, path) }, readOnly)
	switch {
	case code(err)&primaryMask == sqliteNotADB, errors.Is(err, ErrForeignFile):
		return fmt.Errorf("%w: %s", ErrForeignFile, path)
	case code(err)&primaryMask == sqliteCorrupt && !errors.Is(err, ErrDamaged):
		return fault.Advise(fmt.Errorf("%w: %s: %w", ErrDamaged, path, err), "use another backup")
	case code(err)&primaryMask == sqliteReadOnly, code(err)&primaryMask == sqliteCantOpen:
		return fmt.Errorf("%w: %w", disk.ErrAccess, failedCopy(err, path, ""))
	}
	return err
}

func (c Copies) checkOpen(ctx context.Context, db *sqlx.DB, path string) error {
	found, _, err := readVersion(ctx, db, path)
	switch {
	case err != nil:
		return err
	case found == 0:
		return ErrForeignFile
	case found > c.Version:
		return fault.Advise(fmt.Errorf("%w: %s has schema %d and this binary knows %d", ErrNewerSchema, path, found, c.Version),
			"use the newer binary")
	}
	size, err := fileSize(path)
	if err != nil {
		return err
	}
	check := "integrity_check(3)"
	if size > fullCheckSize {
		check = "quick_check(3)"
	}
	err = fault.AdviseMissing(checkIntegrity(ctx, db, check, path), "use another backup")
	if err != nil || c.Inspect == nil {
		return err
	}
	return c.Inspect(ctx, db)
}

// requireSpace refuses if a copy would leave less than spareSpace free on the disk. otherwise says what else the operator can do.
func requireSpace(from *source, dir, otherwise string) error {
	free, _, known := disk.Free(dir)
	if need := uint64(from.size + spareSpace); known && free < need {
		return fault.Advise(fmt.Errorf("%w: a copy of %s needs up to %d MB in %s, where %d MB are free", ErrNoSpace, filepath.Base(from.path), need>>20, dir, free>>20),
			"make room there, or %s", otherwise)
	}
	return nil
}

// spareSpace is the space that a copy leaves for a server on the same disk.
const spareSpace = 64 << 20
