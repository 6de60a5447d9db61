package directory

import (
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// refuseIf returns the refusal where the query finds a row. Asked before anything is written, it costs the other writes
// of the batch nothing; the constraints of the schema stand behind it.
func refuseIf(t *sqlite.Tx, refusal error, query string, args ...any) error {
	var found bool
	if err := t.Get(&found, "SELECT EXISTS ("+query+")", args...); err != nil {
		return err
	}
	if found {
		return refusal
	}
	return nil
}

// alreadyExists says that another thing of the sort has the same value in those fields.
func alreadyExists(sort string, fields ...string) error {
	f := fault.New(fault.Conflict, "already_exists", "Another %s has the same %s; choose another.", sort, strings.Join(fields, " and "))
	for _, name := range fields {
		f.Fields = append(f.Fields, fault.Field{
			Field: name, Code: "already_exists", Message: "Another " + sort + " has this value; choose a new one.",
		})
	}
	return f
}

// dependedOn says that a thing of the sort cannot be removed while others refer to it.
func dependedOn(sort, others string) error {
	return fault.New(fault.Conflict, "in_use", "This %s cannot be removed: %s.", sort, others)
}

// fixed says that a built-in thing of the sort cannot be changed.
func fixed(sort, name string) error {
	return fault.New(fault.Conflict, "built_in", "The %s %q is built in and must stay as it is; create another %s instead.", sort, name, sort)
}

// unknown turns the NotFound fault of a look-up into one about the field that named the thing. Other errors stay.
func unknown(err error, field, sort string) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Fields([]fault.Field{{
		Field: field, Code: "unknown_" + sort, Message: "There is no such " + sort + ".",
	}})
}
