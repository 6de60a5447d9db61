package form

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Query reads the parameters of a query string and collects their problems. The zero value has no parameters.
type Query struct {
	values   map[string]string // of the parameters that the route knows
	problems []fault.Field
}

// The codes of problems with a query.
const (
	CodeInvalidParameter = "invalid_parameter"
	codeUnknownParameter = "unknown_parameter"
	codeInvalidCursor    = "invalid_cursor"
)

// ParseQuery reads the parameters with known names. Any other parameter is a problem: an ignored filter with a spelling mistake would
// show everything.
func ParseQuery(raw string, known []string) Query {
	q, list := Query{values: map[string]string{}}, "this path has no parameters"
	if len(known) > 0 {
		list = "the parameters are " + strings.Join(known, ", ")
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		q.add("", CodeInvalidParameter, "The query must be percent-encoded, as in a%20b, and have no semicolon.")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name):
			q.add(name, codeUnknownParameter, "The parameter "+Printable(name, MaxName)+" is unknown; "+list+".")
		case len(values[name]) > 1:
			q.Refuse(name, "may occur only once")
		default:
			q.values[name] = values[name][0]
		}
	}
	return q
}

func (q *Query) add(name, code, message string) {
	q.problems = append(q.problems, fault.Field{Field: Printable(name, MaxName), Code: code, Message: message})
}

// Refuse adds a problem: what the parameter must be.
func (q *Query) Refuse(name, must string) {
	q.add(name, CodeInvalidParameter, "The parameter "+Printable(name, MaxName)+" "+must+".")
}

// Err returns all problems as one fault (Malformed). If all problems have the same code, the fault has that code too.
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

// Value returns a parameter as it was sent.
func (q *Query) Value(name string) (value string, present bool) {
	value, present = q.values[name]
	return value, present
}

// Valid reports whether there is no problem so far.
func (q *Query) Valid() bool { return len(q.problems) == 0 }

// Choice returns a parameter that must have one of the values. If it is missing, the result is otherwise.
func (q *Query) Choice(name, otherwise string, values ...string) string {
	value, present := q.values[name]
	switch {
	case !present:
		return otherwise
	case !slices.Contains(values, value):
		q.Refuse(name, "must be one of "+strings.Join(values, ", "))
	}
	return value
}

// Choices returns a parameter that must have one or more of the values, separated by commas.
func (q *Query) Choices(name string, values ...string) (chosen []string) {
	text, present := q.values[name]
	if !present {
		return nil
	}
	for value := range strings.SplitSeq(text, ",") {
		if !slices.Contains(values, value) {
			q.Refuse(name, "must be one or more of "+strings.Join(values, ", ")+", separated by commas")
			return nil
		}
		if !slices.Contains(chosen, value) {
			chosen = append(chosen, value)
		}
	}
	return chosen
}

// Search returns the text that the parameter search looks for.
func (q *Query) Search() string {
	return q.Matching("search", fmt.Sprintf("may have at most %d characters", access.MaxExternalID),
		func(text string) bool { return utf8.RuneCountInString(text) <= access.MaxExternalID })
}

// Matching returns a parameter that must be valid. If it is missing, the result is empty.
func (q *Query) Matching(name, must string, valid func(string) bool) string {
	value, present := q.values[name]
	if present && !valid(value) {
		q.Refuse(name, must)
	}
	return value
}
