package form

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// The number of items on a page.
const (
	defaultPage = 50
	largestPage = 200
)

// Position is the last item of a page: its row id, and its time in a list that is ordered by time.
type Position struct {
	Row, At int64
	Mark    int64 // of a list that needs one more number; 0 if it has none
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

// A cursor is a position as three varints, followed by a digest of the list and the position. The digest is not a signature: a caller who
// forges a cursor only reads another page of a list that it may read anyway. It detects cursors of other lists and damaged cursors.
const cursorDigest = 8

// Cursor writes a position in a list.
func Cursor(list string, p Position) string {
	var b []byte
	for _, number := range []int64{p.Row, p.At, p.Mark} {
		b = binary.AppendVarint(b, number)
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
	for _, number := range []*int64{&p.Row, &p.At, &p.Mark} {
		n := 0
		if *number, n = binary.Varint(body); n <= 0 {
			return Position{}, false
		}
		body = body[n:]
	}
	return p, p.Row > 0 && len(body) == 0
}
