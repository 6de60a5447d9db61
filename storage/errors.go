package storage

import (
	"database/sql"
	"errors"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The reasons why a database cannot be opened, copied, restored or used. Each error is wrapped with advice on what to
// do.
var (
	ErrInUse         = sqlite.ErrInUse
	ErrNewerSchema   = sqlite.ErrNewerSchema
	ErrSchema        = sqlite.ErrSchema
	ErrForeignFile   = sqlite.ErrForeignFile
	ErrDamaged       = sqlite.ErrDamaged
	ErrExists        = sqlite.ErrExists
	ErrBackupRunning = sqlite.ErrBackupRunning
	ErrNoSpace       = sqlite.ErrNoSpace
	ErrStopped       = sqlite.ErrStopped
	ErrFailed        = sqlite.ErrFailed

	ErrLost = errors.New("database is empty or gone") // but its key file or its lock file exists
)

// missing turns sql.ErrNoRows into a NotFound fault. sort is the kind of object.
func missing(err error, sort string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(sort)
	}
	return err
}

// refuseIf returns refusal if the query finds a row. Checked before the first write, a refusal costs the other writes
// of the batch nothing. The constraints of the schema are the second check.
func refuseIf(t *tx, refusal error, query string, args ...any) error {
	var found bool
	if err := t.Get(&found, "SELECT EXISTS ("+query+")", args...); err != nil {
		return err
	}
	if found {
		return refusal
	}
	return nil
}

// alreadyExists says that another object of this kind has the same values in those fields.
func alreadyExists(sort string, fields ...string) error {
	f := fault.New(fault.Conflict, "already_exists", "Another %s has the same %s; choose another.", sort, strings.Join(fields, " and "))
	for _, name := range fields {
		f.Fields = append(f.Fields, fault.Field{
			Field: name, Code: "already_exists", Message: "Another " + sort + " has this value; choose a new one.",
		})
	}
	return f
}

// dependedOn says that an object cannot be deleted while others refer to it.
func dependedOn(sort, others string) error {
	return fault.New(fault.Conflict, "in_use", "This %s cannot be removed: %s.", sort, others)
}

// fixed says that a built-in object cannot be changed.
func fixed(sort, name string) error {
	return fault.New(fault.Conflict, "built_in", "The %s %q is built in and must stay as it is; create another %s instead.", sort, name, sort)
}

// unknown turns the NotFound fault of a look-up into a fault about the field with the name. It returns other errors
// unchanged.
func unknown(err error, field, sort string) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Fields([]fault.Field{{
		Field: field, Code: "unknown_" + sort, Message: "There is no such " + sort + ".",
	}})
}
