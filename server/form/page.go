package form

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// How many items a page has.
const (
	defaultPage = 50
	largestPage = 200
)

// position is where a list goes on: after the item with this row id, and at this time where a list is ordered by it.
type Position struct {
	Row, At int64
}

// page is the part of a list that is asked for.
type Page struct {
	Limit int
	After Position // zero is the beginning
	List  string   // which list, for the cursor
	Ended Position // where the store ended its search before the page was full; zero where it did not
}

// more is how many items to ask the store for: one beyond the page tells whether there is another.
func (p Page) More() int { return p.Limit + 1 }

// page reads limit and cursor of the list with that name, the last of the query to be read, and reports all that is wrong with it.
func (q *Query) Page(list string) (Page, error) {
	p := Page{Limit: defaultPage, List: list}
	if limit, given := q.values["limit"]; given {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > largestPage {
			q.Refuse("limit", "must be a number from 1 to "+strconv.Itoa(largestPage))
		}
		p.Limit = n
	}
	if cursor, given := q.values["cursor"]; given {
		after, ok := parseCursor(p.List, cursor)
		if !ok {
			q.add("cursor", codeInvalidCursor, "The cursor does not belong to this list; begin without one.")
		}
		p.After = after
	}
	return p, q.Err()
}

// next returns the cursor of what follows after.
func (p Page) Next(after Position) string { return cursor(p.List, after) }

// A cursor is a position, its two numbers as varints, followed by a digest of the list and the position. The digest is
// no signature: who forges a position reads on there in a list that is its own to read. It keeps a cursor from being
// taken for a place in another list, and damage from going unnoticed.
const cursorDigest = 8

// cursor writes a position in a list.
func cursor(list string, p Position) string {
	b := binary.AppendVarint(nil, p.Row)
	b = binary.AppendVarint(b, p.At)
	return base64.RawURLEncoding.EncodeToString(appendDigest(list, b))
}

// seal appends the digest.
func appendDigest(list string, b []byte) []byte {
	sum := sha256.Sum256(append([]byte(list+"\n"), b...))
	return append(b, sum[:cursorDigest]...)
}

// parseCursor reads what cursor has written for the same list.
func parseCursor(list, text string) (p Position, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < cursorDigest+2 {
		return p, false
	}
	body := b[:len(b)-cursorDigest]
	if string(appendDigest(list, body[:len(body):len(body)])) != string(b) {
		return p, false
	}
	var n, m int
	p.Row, n = binary.Varint(body)
	if n <= 0 {
		return Position{}, false
	}
	p.At, m = binary.Varint(body[n:])
	if m <= 0 || n+m != len(body) || p.Row < 1 {
		return Position{}, false
	}
	return p, true
}
