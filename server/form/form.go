// Package form owns the reading of JSON bodies, field by field, and of query strings, parameter by parameter. It collects all
// problems, so that a response lists them at once. It knows no request. Its problems name paths of the API where these help.
package form

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/storage/fault"
)

// Form reads the fields of a JSON object and collects their problems. Each method reads one field of a type. It returns nil if the
// field is missing or has a problem; Err tells which. The zero value is an empty object.
type Form struct {
	members   []member
	first     [4]member // the memory of the first members
	missing   []string  // names that were read and are not there
	compact   bool      // no white space between tokens
	unchecked bool      // nested objects may contain a name twice
	path      string    // before the names of fields in problems, such as "events.3."
	problems  []fault.Field
	failed    error // why there is no body, or a lookup that failed, which is no problem of the field
}

// Failed returns the form of a body that cannot be read. It has no fields, and Err returns why.
func Failed(why error) *Form { return &Form{failed: why} }

// Refuse adds a problem of a field. It keeps one problem more than a response lists, which shows that there are more.
func (f *Form) Refuse(name, code, format string, args ...any) {
	if f.full() {
		return
	}
	f.problems = append(f.problems, fault.Field{Field: f.path + name, Code: code, Message: fmt.Sprintf(format, args...)})
}

// MaxProblems is how many problems a response lists. One more item then says that there are more.
const MaxProblems = 100

// full reports whether more problems would not be listed.
func (f *Form) full() bool { return len(f.problems) > MaxProblems }

// Fail records that a lookup failed. Err returns the first such failure.
func (f *Form) Fail(err error) {
	if f.failed == nil {
		f.failed = err
	}
}

// Err returns all problems as one fault (Invalid), or why there is no body, or the failure of a lookup. Handlers call it last, because fields that nobody
// read are problems too.
func (f *Form) Err() error {
	if f.failed != nil {
		return f.failed
	}
	f.refuseUnknown()
	return fault.Fields(f.problems)
}

// refuseUnknown adds a problem for every field that was not read. Names are case-sensitive.
func (f *Form) refuseUnknown() {
	for _, m := range f.members {
		if f.full() {
			return
		}
		if !m.read {
			f.Refuse(truncate(string(m.name), MaxName), "unknown_field", "This field is unknown; the fields are %s.", f.known())
		}
	}
}

func (f *Form) known() string {
	names := slices.Clone(f.missing)
	for _, m := range f.members {
		if m.read {
			names = append(names, string(m.name))
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

func (f *Form) find(name string) *member {
	for i := range f.members {
		if string(f.members[i].name) == name {
			return &f.members[i]
		}
	}
	return nil
}

// take returns the value of a field, or nil if it is missing.
func (f *Form) take(name string) jsontext.Value {
	if m := f.find(name); m != nil {
		m.read = true
		return m.value
	}
	f.missing = append(f.missing, name)
	return nil
}

// Has reports whether a field is present.
func (f *Form) Has(name string) bool { return f.find(name) != nil }

// Require adds a problem for every field that is missing.
func (f *Form) Require(names ...string) {
	for _, name := range names {
		if !f.Has(name) {
			f.Refuse(name, "missing", "This field is required.")
		}
	}
}

// Null reports whether a field is null, for fields where null is a value.
func (f *Form) Null(name string) bool {
	m := f.find(name)
	isNull := m != nil && m.value.Kind() == jsontext.KindNull
	if isNull {
		m.read = true
	}
	return isNull
}

// maxEscaped is the most bytes of one character in JSON: two escapes of a surrogate pair. The quotes do not change the result of
// dividing the length by it.
const maxEscaped = len(`\ud83d\ude00`)

// The forms of values in messages. Each names the type as JSON does, and what is in it.
const (
	aString     = "a string in quotes"
	anObject    = `an object, such as {"number": 1001}`
	aTime       = `a string with a time, such as "2030-01-31T12:00:00Z"`
	aScope      = `a space-delimited string, such as "events:read events:write"`
	permissions = `an array of strings, such as ["events:read", "events:write"]`
	eventTypes  = `an array of strings, such as ["order.created", "user.*"]`
)

func (f *Form) wrongType(name, form string) { f.Refuse(name, "wrong_type", "This must be %s.", form) }

// typed returns a value if it is of a kind; nil if it is missing or of another kind, which is a problem.
func (f *Form) typed(name string, value jsontext.Value, kind jsontext.Kind, form string) jsontext.Value {
	if value != nil && value.Kind() != kind {
		f.wrongType(name, form)
		return nil
	}
	return value
}

// Text returns a string of at most max characters, unchanged.
func (f *Form) Text(name string, max int) *string { return f.text(name, f.take(name), max, aString) }

// text is Text of a value, which is nil if it is missing. form is the form of the value, for the message.
func (f *Form) text(name string, value jsontext.Value, max int, form string) *string {
	if value = f.typed(name, value, jsontext.KindString, form); value == nil {
		return nil
	}
	if len(value)/maxEscaped > max {
		f.Refuse(name, "too_long", "This may have at most %d characters.", max)
		return nil
	}
	var buffer [64]byte // a longer text goes to the heap
	unquoted, err := jsontext.AppendUnquote(buffer[:0], value)
	if err != nil {
		f.Refuse(name, "invalid", "This is not valid UTF-8.")
		return nil
	}
	if utf8.RuneCount(unquoted) > max {
		f.Refuse(name, "too_long", "This may have at most %d characters.", max)
		return nil
	}
	return new(string(unquoted))
}

// Or returns the value of a field, or otherwise if the field is missing or was refused.
func Or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// Bool returns a boolean.
func (f *Form) Bool(name string) *bool {
	value := f.take(name)
	switch {
	case value == nil:
		return nil
	case value.Kind() == jsontext.KindTrue, value.Kind() == jsontext.KindFalse:
		return new(value.Kind() == jsontext.KindTrue)
	}
	f.wrongType(name, "true or false, without quotes")
	return nil
}

// Integer returns a whole number from least to most.
func (f *Form) Integer(name string, least, most int64) *int64 {
	value := f.take(name)
	if value == nil {
		return nil
	}
	form := fmt.Sprintf("a whole number from %d to %d, without quotes", least, most)
	if value.Kind() != jsontext.KindNumber || bytes.ContainsAny(value, ".eE") {
		f.wrongType(name, form)
		return nil
	}
	n, err := int64(0), strconv.ErrRange
	if len(value) <= len("-9223372036854775808") {
		n, err = strconv.ParseInt(string(value), 10, 64)
	}
	if err != nil || n < least || n > most {
		f.Refuse(name, "out_of_range", "This must be %s.", form)
		return nil
	}
	return &n
}

// Element is a string in an array.
type Element struct {
	Field string // its name in problems, such as "event_types.3"
	Text  string
}

// Strings returns the strings of an array, or nil if the field is missing. Other values are problems and are left out.
func (f *Form) Strings(name, form string) []Element {
	values := f.array(name, maxList, form)
	if len(values) > maxList {
		f.Refuse(name, "too_many", "This may have at most %d elements.", maxList)
		values = values[:0]
	}
	if values == nil {
		return nil
	}
	list := make([]Element, 0, len(values))
	for i, value := range values {
		at := name + "." + strconv.Itoa(i)
		text, err := jsontext.AppendUnquote(nil, value)
		if value.Kind() != jsontext.KindString || err != nil {
			f.wrongType(at, aString)
			continue
		}
		list = append(list, Element{at, string(text)})
	}
	return list
}

const maxList = 1000

// array returns the values of an array, or nil if the field is missing. Of an array with more than max values it returns max+1, so
// that the rest takes no memory.
func (f *Form) array(name string, max int, form string) []jsontext.Value {
	value := f.typed(name, f.take(name), jsontext.KindBeginArray, form)
	if value == nil {
		return nil
	}
	return arrayElements(value, max+1)
}

// Limit returns a change of a limit. Null removes the limit: the result points to nil.
func (f *Form) Limit(name string, least, most int64) **int64 {
	return nullable(f, name, func(name string) **int64 {
		if limit := f.Integer(name, least, most); limit != nil {
			return &limit
		}
		return nil
	})
}

// Nested returns the form of the object in a field; nil if the field is missing or no object. The problems of its fields are its own:
// its Err returns them, with their paths from the outer object.
func (f *Form) Nested(name string) *Form { return f.nested(name, f.take(name)) }

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

// nested returns the form of an object; nil for nil. All of the body is known to be valid JSON. The names of a large body are not known
// to be unique.
func (f *Form) nested(name string, value jsontext.Value) *Form {
	if value = f.typed(name, value, jsontext.KindBeginObject, "an object"); value == nil {
		return nil
	}
	members, err := parseObject(nil, value, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		f.refuseFields(name)
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
