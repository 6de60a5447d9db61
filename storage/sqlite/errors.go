package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"

	modernc "modernc.org/sqlite"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// The result codes of SQLite that Keyhook distinguishes (sqlite.org/rescode.html).
const (
	sqliteError    = 1
	sqliteFull     = 13
	primaryMask    = 0xff
	sqliteBusy     = 5
	sqliteReadOnly = 8
	sqliteIOError  = 10
	sqliteCorrupt  = 11
	sqliteCantOpen = 14
	sqliteNotADB   = 26

	sqliteRead      = 266
	sqliteShortRead = 522
	sqliteFsync     = 1034
	sqliteWrite     = 778 // such as beyond a quota of the disk (EDQUOT), for which SQLite has no "full"
	sqliteDirFsync  = 1290
	sqliteIndexSize = 4874 // the index of the write-ahead log cannot grow: SQLite has no "full" for that file
	sqliteInPage    = 8714 // a fault in the mapped memory of the write-ahead log's index
)

func code(err error) int {
	if e, ok := errors.AsType[*modernc.Error](err); ok {
		return e.Code()
	}
	return 0
}

func isFull(err error) bool {
	c := code(err)
	return c&primaryMask == sqliteFull || c == sqliteIndexSize || errors.Is(err, errSpent)
}

// Missing turns "no rows" into the NotFound fault for a thing of the given sort. Other errors stay.
func Missing(err error, sort string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(sort)
	}
	return err
}

// RefuseIf returns the refusal if the query finds a row. Call it before the first write of a job: a refusal then does not
// roll back the other jobs of the batch. The constraints of the schema catch what it misses.
func RefuseIf(t *Tx, refusal error, query string, args ...any) error {
	var found bool
	err := t.Get(&found, "SELECT EXISTS ("+query+")", args...)
	if found {
		return refusal
	}
	return err
}

// Unavailable turns an error of the disk or the file into a fault without details. The caller may retry, and the log
// has the cause for the operator. It returns other errors unchanged.
func Unavailable(err error) error {
	if unusable(err) || errors.Is(err, ErrFailed) || errors.Is(err, ErrDamaged) || errors.Is(err, errSpent) {
		return fault.New(fault.Unavailable, "storage_unavailable",
			"The database cannot be used at the moment; try again later.").Because(err)
	}
	if errors.Is(err, ErrStopped) {
		return fault.New(fault.Unavailable, "shutting_down", "The server is shutting down; try again later.").Because(err)
	}
	return err
}

// unusable reports whether an error comes from the disk or the file, and not from the statement.
func unusable(err error) bool {
	of := []int{sqliteFull, sqliteIOError, sqliteBusy, sqliteReadOnly, sqliteCantOpen, sqliteCorrupt, sqliteNotADB}
	return slices.Contains(of, code(err)&primaryMask)
}

// Advise adds to an error of SQLite about a file that Open reads what it means and what to do.
func Advise(err error) error {
	if isFull(err) {
		return fault.Advise(fmt.Errorf("%w: the disk of storage.path is full (%w)", disk.ErrAccess, err), "make room there")
	}
	switch code(err) & primaryMask {
	case sqliteNotADB:
		return fault.Advise(fmt.Errorf("%w: it was left as it is (%w)", ErrForeignFile, err),
			"set storage.path to another file, or put the database back from a backup")
	case sqliteCorrupt:
		return fault.Advise(fmt.Errorf("%w: it was left as it is (%w)", ErrDamaged, err), "put the database back from a backup")
	case sqliteReadOnly, sqliteCantOpen:
		return fault.Advise(fmt.Errorf("%w: SQLite may not open or write them (%w)", disk.ErrAccess, err),
			"check the modes of the files of storage.path, and how their file system is mounted")
	}
	return err
}
