package form

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Query reads the parameters of a query string and collects their problems. The zero value has no parameters.
type Query struct {
	values   map[string]string // of the parameters that the route knows
	problems []fault.Field
	failed   error // why nothing is read, whatever the parameters are
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

// Fail records that a request may not read what it asks for, unless err is nil. Err returns the first such error.
func (q *Query) Fail(err error) {
	if q.failed == nil {
		q.failed = err
	}
}

// Err returns the error of Fail, or all problems as one fault (Malformed). If all problems have the same code, the fault has that code too.
func (q *Query) Err() error {
	if len(q.problems) == 0 || q.failed != nil {
		return q.failed
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
func (q *Query) Valid() bool { return len(q.problems) == 0 && q.failed == nil }

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

// The number of items on a page.
const (
	defaultPage = 50
	largestPage = 200
)

// Position is the last item of a page: its row id, and its time in a list that is ordered by time.
type Position struct {
	Row, At int64
	Mark    int64 // of a list that needs one more number; 0 if it has none
	Since   int64 // the time at which a list in the order of rows begins; 0 if it has none
}

// Page is the part of a list that a request asks for.
type Page struct {
	Limit int
	After Position // zero means the start of the list
	List  string   // the name of the list, for the cursor
	Ended Position // where the store ended its search early; zero if it did not
}

// More is the number of items to read from the store: one more than the page has tells whether another page follows.
func (p Page) More() int { return p.Limit + 1 }

// Page reads limit and cursor. list names the list, so that a cursor of another list is refused. Handlers call it last, because it
// returns all problems of the query.
func (q *Query) Page(list string) (Page, error) {
	p := Page{List: list}
	p.Limit, p.After = q.Integer("limit", defaultPage, 1, largestPage), q.Cursor("cursor", list)
	return p, q.Err()
}

// Integer reads a number of a range. If it is missing, the result is otherwise.
func (q *Query) Integer(name string, otherwise, least, most int) int {
	text, present := q.values[name]
	if !present {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		q.Refuse(name, "must be a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
	return n
}

// Cursor reads a cursor of a list. If it is missing, the result is the start of the list.
func (q *Query) Cursor(name, list string) (after Position) {
	if text, present := q.values[name]; present {
		var ok bool
		if after, ok = parseCursor(list, text); !ok {
			q.add(name, codeInvalidCursor, "The cursor does not belong to this list; start without a cursor.")
		}
	}
	return after
}

// A cursor is a position as three or four varints, and a digest of the list and the position. The digest is not a signature: a caller who
// forges a cursor only reads another page of a list that it may read anyway. It detects cursors of other lists and damaged cursors.
const cursorDigest = 8

// Cursor writes a position in a list.
func Cursor(list string, p Position) string {
	var b []byte
	for _, number := range []int64{p.Row, p.At, p.Mark} {
		b = binary.AppendVarint(b, number)
	}
	if p.Since != 0 {
		b = binary.AppendVarint(b, p.Since)
	}
	return base64.RawURLEncoding.EncodeToString(appendDigest(list, b))
}

func appendDigest(list string, b []byte) []byte {
	sum := sha256.Sum256(append([]byte(list+"\n"), b...))
	return append(b, sum[:cursorDigest]...)
}

func parseCursor(list, text string) (p Position, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < cursorDigest {
		return p, false
	}
	body := b[:len(b)-cursorDigest]
	if string(appendDigest(list, body[:len(body):len(body)])) != string(b) {
		return p, false
	}
	for _, number := range []*int64{&p.Row, &p.At, &p.Mark, &p.Since} {
		n := 0
		if *number, n = binary.Varint(body); n <= 0 && (number != &p.Since || n < 0) {
			return Position{}, false
		}
		body = body[n:]
	}
	return p, p.Row > 0 && len(body) == 0
}
