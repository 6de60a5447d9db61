// Package form reads what a request says: a JSON body field by field, and a query string parameter by parameter. It collects
// all problems, so that a response can list them at once. It knows no HTTP: callers pass in the bytes.
package form

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/storage/fault"
)

// form hands out the members of a JSON object one by one, each by what it must be, and collects all that is wrong with
// them. A getter returns nil for a member that is not there or not right; the difference is for end to tell.
type Form struct {
	members   []member
	compact   bool   // no white space between tokens
	unchecked bool   // names given twice in nested objects have not been looked for
	path      string // before the names of fields in problems, as "events.3."
	problems  []fault.Field
	failed    error // of a look-up, which tells nothing about the field
}

// refuse notes what is wrong with a field. One problem more than an answer lists is enough to say that there are more.
func (f *Form) Refuse(name, code, format string, args ...any) {
	if f.full() {
		return
	}
	f.problems = append(f.problems, fault.Field{Field: f.path + name, Code: code, Message: fmt.Sprintf(format, args...)})
}

// MaxProblems is how many problems a response lists. One more item says that there are more.
const MaxProblems = 100

// full reports whether there is no use in looking for more problems.
func (f *Form) full() bool { return len(f.problems) > MaxProblems }

// fail notes that something could not be found out; only the first such failure counts.
func (f *Form) Fail(err error) {
	if f.failed == nil {
		f.failed = err
	}
}

// end reports all that is wrong, or that it could not be found out.
func (f *Form) Err() error {
	if f.failed != nil {
		return f.failed
	}
	f.refuseUnknown()
	return fault.Fields(f.problems)
}

// leftovers notes what nobody asked for: a name that differs in case only is another name.
func (f *Form) refuseUnknown() {
	for _, m := range f.members {
		if f.full() {
			return
		}
		if !m.read {
			f.Refuse(truncate(m.name, MaxName), "unknown_field", "There is no such field here.")
		}
	}
}

// take returns the value of a member, nil where there is none.
func (f *Form) take(name string) jsontext.Value {
	for i := range f.members {
		if string(f.members[i].name) == name {
			f.members[i].read = true
			return f.members[i].value
		}
	}
	return nil
}

// has reports whether the member is there.
func (f *Form) has(name string) bool {
	for i := range f.members {
		if string(f.members[i].name) == name {
			return true
		}
	}
	return false
}

// require notes the members that are missing.
func (f *Form) Require(names ...string) {
	for _, name := range names {
		if !f.has(name) {
			f.Refuse(name, "missing", "This field is required.")
		}
	}
}

// null takes the member if it is null, for the fields in which that is a value of its own.
func (f *Form) Null(name string) bool {
	for i := range f.members {
		if string(f.members[i].name) == name && f.members[i].value.Kind() == jsontext.KindNull {
			f.members[i].read = true
			return true
		}
	}
	return false
}

// maxEscaped is how many bytes one character takes at most: two escapes of a surrogate pair. The quotes of a string that
// is not too long make no difference to its length divided by it.
const maxEscaped = len(`\ud83d\ude00`)

// plain returns a string of at most max characters, as it is.
func (f *Form) Text(name string, max int) *string {
	value := f.take(name)
	if value == nil {
		return nil
	}
	if value.Kind() != jsontext.KindString {
		f.Refuse(name, "wrong_type", "This must be a string.")
		return nil
	}
	if len(value)/maxEscaped > max {
		f.Refuse(name, "too_long", "This may have at most %d characters.", max)
		return nil
	}
	unquoted, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		f.Refuse(name, "invalid", "This is not valid UTF-8.")
		return nil
	}
	if utf8.RuneCount(unquoted) > max {
		f.Refuse(name, "too_long", "This may have at most %d characters.", max)
		return nil
	}
	text := string(unquoted)
	return &text
}

// flag returns a boolean.
func (f *Form) Bool(name string) *bool {
	value := f.take(name)
	switch {
	case value == nil:
		return nil
	case value.Kind() == jsontext.KindTrue, value.Kind() == jsontext.KindFalse:
		flag := value.Kind() == jsontext.KindTrue
		return &flag
	}
	f.Refuse(name, "wrong_type", "This must be true or false.")
	return nil
}

// number returns a whole number between least and most.
func (f *Form) Integer(name string, least, most int64) *int64 {
	value := f.take(name)
	if value == nil {
		return nil
	}
	if value.Kind() != jsontext.KindNumber || bytes.ContainsAny(value, ".eE") {
		f.Refuse(name, "wrong_type", "This must be a whole number from %d to %d.", least, most)
		return nil
	}
	n, err := int64(0), strconv.ErrRange
	if len(value) <= len("-9223372036854775808") {
		n, err = strconv.ParseInt(string(value), 10, 64)
	}
	if err != nil || n < least || n > most {
		f.Refuse(name, "out_of_range", "This must be a whole number from %d to %d.", least, most)
		return nil
	}
	return &n
}

// element is a string of an array.
type Element struct {
	Field string // its name in problems, as "event_types.3"
	Text  string
}

// list returns the strings of an array, without judging them; nil where there is none. What is no string is refused and
// left out.
func (f *Form) Strings(name string) []Element {
	values := f.array(name, maxList)
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
			f.Refuse(at, "wrong_type", "This must be a string.")
			continue
		}
		list = append(list, Element{at, string(text)})
	}
	return list
}

// maxList is how many elements a list of strings may have.
const maxList = 1000

// array returns the values of an array; nil where there is none. Of one that is longer than max it returns one value more,
// so that it need not be held in memory.
func (f *Form) array(name string, max int) []jsontext.Value {
	value := f.take(name)
	if value == nil {
		return nil
	}
	if value.Kind() != jsontext.KindBeginArray {
		f.Refuse(name, "wrong_type", "This must be a list.")
		return nil
	}
	return arrayElements(value, max+1)
}

// rate returns a limit, nil for none. given tells that from a limit that is not there.
func (f *Form) Limit(name string, least, most int64) (given bool, limit *int64) {
	if f.Null(name) {
		return true, nil
	}
	limit = f.Integer(name, least, most)
	return limit != nil, limit
}
