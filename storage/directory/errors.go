package directory

import (
	"maps"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// RefuseTaken returns alreadyExists if the query finds the thing of the sort that has the value of the field. Like sqlite.RefuseIf, it
// comes before the first write of a job. The file has one writer, so nothing can take the value before the write.
func RefuseTaken(t *sqlite.Tx, sort, field, query string, args ...any) error {
	existing, err := sqlite.All[string](t, query, args...)
	if err != nil || len(existing) == 0 {
		return err
	}
	return alreadyExists(sort, existing[0], field)
}

// alreadyExists refuses values that another thing of the sort has in these fields. existing is its id, name or key.
func alreadyExists(sort, existing string, fields ...string) error {
	f := fault.New(fault.Conflict, "already_exists", "Another %s has the same %s; choose another.", sort, strings.Join(fields, " and "))
	f.Existing = existing
	for _, name := range fields {
		f.Fields = append(f.Fields, fault.Field{
			Field: name, Code: "already_exists", Message: "Another " + sort + " has this value; choose a new one.",
		})
	}
	return f
}

// refuseIfHas refuses to remove a thing if the query selects names of what it has.
func refuseIfHas(t *sqlite.Tx, sort, instead, query string, row int64) error {
	has, err := sqlite.All[string](t, query, row)
	if err == nil && len(has) > 0 {
		err = errInUse(sort, "it has "+strings.Join(has, ", ")+"; "+instead)
	}
	return err
}

func errInUse(sort, others string) error {
	return fault.New(fault.Conflict, "in_use", "This %s cannot be removed: %s.", sort, others)
}

func refuseBuiltIn(builtIn bool, sort, name string) error {
	if !builtIn {
		return nil
	}
	return fault.New(fault.Conflict, "built_in", "The %s %q is built in and must stay as it is; create another %s instead.", sort, name, sort)
}

// needed refuses a creation that lacks fields, which a change may leave out. A nil error means that no field is missing.
func needed(fields map[string]*string) error {
	var problems []fault.Field
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == nil {
			problems = append(problems, fault.Field{Field: name, Code: "missing", Message: "This is needed to create it; nothing has this external id yet."})
		}
	}
	return fault.Fields(problems)
}

// differing returns the wanted value, or nil if it is the present one.
func differing(wanted *string, present string) *string {
	if wanted != nil && *wanted == present {
		return nil
	}
	return wanted
}

// unknownField turns the NotFound fault of a lookup into a fault of the field that named the resource. Other errors stay.
func unknownField(err error, field, sort string) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.InField(field, "unknown_"+sort, "There is no such %s.", sort)
}
