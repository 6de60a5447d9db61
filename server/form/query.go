package form

import (
	"net/url"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
)

// query hands out the parameters of a query one by one, each by what it must be, and collects all that is wrong with
// them. The zero value has none.
type Query struct {
	values   map[string]string // of the parameters that the route knows
	problems []fault.Field
}

// The codes of what is wrong with a query.
const (
	CodeInvalidParameter = "invalid_parameter"
	codeUnknownParameter = "unknown_parameter"
	codeInvalidCursor    = "invalid_cursor"
)

// newQuery reads the parameters that are known. Any other is a problem rather than passed over: a filter that is misspelt
// would show everything. Problems are noted in the order written.
func ParseQuery(raw string, known []string) Query {
	q := Query{values: map[string]string{}}
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, ok := parameter(part)
		_, again := q.values[name]
		switch {
		case !ok:
			q.Refuse(name, "must be percent-encoded, as in a%20b")
		case !slices.Contains(known, name):
			q.add(name, codeUnknownParameter, "There is no parameter "+Printable(name, MaxName)+" here; "+parameterList(known)+".")
		case again:
			q.Refuse(name, "may be given once")
		default:
			q.values[name] = value
		}
	}
	return q
}

// parameter splits a name and its value; ok is false where one of them cannot be decoded. A semicolon separates nothing
// (url.ParseQuery), and would be taken for doing so by others.
func parameter(part string) (name, value string, ok bool) {
	written, encoded, _ := strings.Cut(part, "=")
	name, err := url.QueryUnescape(written)
	if err != nil {
		return written, "", false
	}
	value, err = url.QueryUnescape(encoded)
	return name, value, err == nil && !strings.Contains(part, ";")
}

func parameterList(known []string) string {
	if len(known) == 0 {
		return "there is none at all"
	}
	return "there are " + strings.Join(known, ", ")
}

func (q *Query) add(name, code, message string) {
	q.problems = append(q.problems, fault.Field{Field: Printable(name, MaxName), Code: code, Message: message})
}

// refuse notes what a parameter must be and is not.
func (q *Query) Refuse(name, must string) {
	q.add(name, CodeInvalidParameter, "The parameter "+Printable(name, MaxName)+" "+must+".")
}

// end reports all that is wrong. Where that is one thing, or several of one sort, its code is the code of the whole.
func (q *Query) Err() error {
	if len(q.problems) == 0 {
		return nil
	}
	e := fault.New(fault.Malformed, q.problems[0].Code, "%s", q.problems[0].Message)
	e.Fields = q.problems
	for _, p := range q.problems[1:] {
		e.Message = "Several query parameters are wrong; see errors."
		if p.Code != e.Code {
			e.Code = CodeInvalidParameter
		}
	}
	return e
}

// value returns a parameter as it was given.
func (q *Query) Value(name string) (value string, given bool) {
	value, given = q.values[name]
	return value, given
}

// valid reports whether nothing is wrong so far.
func (q *Query) Valid() bool { return len(q.problems) == 0 }

// choice returns a parameter that has one of a few values, or otherwise where it is not given.
func (q *Query) Choice(name, otherwise string, values ...string) string {
	value, given := q.values[name]
	switch {
	case !given:
		return otherwise
	case !slices.Contains(values, value):
		q.Refuse(name, "must be one of "+strings.Join(values, ", "))
	}
	return value
}

// matching returns a parameter that is valid, empty where it is not given.
func (q *Query) Matching(name, must string, valid func(string) bool) string {
	value, given := q.values[name]
	if given && !valid(value) {
		q.Refuse(name, must)
	}
	return value
}
