package form

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Nested returns the form of the object in a field; nil if the field is missing or no object. The problems of its fields are its own:
// its Err returns them, with their paths from the outer object.
func (f *Form) Nested(name string) *Form {
	value := f.take(name)
	if value == nil {
		return nil
	}
	return f.nested(name, value)
}

// List returns the forms of the objects in an array. An element that is no object is a problem, and nil in the list. Faults are those
// of Nested.
func (f *Form) List(name string, max int) []*Form {
	values := f.array(name, max, "an array of objects")
	if len(values) > max {
		f.Refuse(name, "too_many", "This may have at most %d elements.", max)
		return nil
	}
	list := make([]*Form, len(values))
	for i, value := range values {
		list[i] = f.nested(name+"."+strconv.Itoa(i), value)
	}
	return list
}

// nested returns the form of an object. All of the body is known to be valid JSON. The names of a large body are not known to be unique.
func (f *Form) nested(name string, value jsontext.Value) *Form {
	if value.Kind() != jsontext.KindBeginObject {
		f.wrongType(name, "an object")
		return nil
	}
	members, err := parseObject(nil, value, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		field := tooManyFields(name)
		f.Refuse(field.Field, field.Code, "%s", field.Message)
		return nil
	}
	if twice, is := duplicateMember(members); is {
		f.Refuse(name, "duplicate", "This object has %q twice; send each name once.", Printable(twice, MaxName))
		return nil
	}
	return &Form{members: members, compact: f.compact, unchecked: f.unchecked, path: f.path + name + "."}
}

// Path returns the place of a field in the body, as problems name it.
func (f *Form) Path(name string) string { return f.path + name }

// Reset forgets what was read and which problems there were, so that the form can be read again.
func (f *Form) Reset() {
	for i := range f.members {
		f.members[i].read = false
	}
	f.missing, f.problems, f.failed = nil, nil, nil
}
