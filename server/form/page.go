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
	p := Page{Limit: defaultPage, List: list}
	if limit, present := q.values["limit"]; present {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > largestPage {
			q.Refuse("limit", "must be a number from 1 to "+strconv.Itoa(largestPage))
		}
		p.Limit = n
	}
	if cursor, present := q.values["cursor"]; present {
		after, ok := parseCursor(p.List, cursor)
		if !ok {
			q.add("cursor", codeInvalidCursor, "The cursor does not belong to this list; start without a cursor.")
		}
		p.After = after
	}
	return p, q.Err()
}

// Next returns the cursor of the page that follows after.
func (p Page) Next(after Position) string { return cursor(p.List, after) }

// A cursor is a position as two varints, followed by a digest of the list and the position. The digest is not a signature: a caller
// who forges a cursor only reads another page of a list that it may read anyway. It detects cursors of other lists and damaged
// cursors.
const cursorDigest = 8

// cursor writes a position in a list.
func cursor(list string, p Position) string {
	b := binary.AppendVarint(nil, p.Row)
	b = binary.AppendVarint(b, p.At)
	return base64.RawURLEncoding.EncodeToString(appendDigest(list, b))
}

// appendDigest appends the digest of the list and b.
func appendDigest(list string, b []byte) []byte {
	sum := sha256.Sum256(append([]byte(list+"\n"), b...))
	return append(b, sum[:cursorDigest]...)
}

// parseCursor reads a cursor of the list.
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
