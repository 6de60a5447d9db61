package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
)

// How many items a page has.
const (
	defaultPage = 50
	largestPage = 200
)

// position is where a list goes on: after the item with this row id, and at this time where a list is ordered by it.
type position struct {
	row, at int64
}

// page is the part of a list that is asked for.
type page struct {
	limit int
	after position // zero is the beginning
	list  string   // which list, for the cursor
	ended position // where the store ended its search before the page was full; zero where it did not
}

// more is how many items to ask the store for: one beyond the page tells whether there is another.
func (p page) more() int { return p.limit + 1 }

// page reads limit and cursor, the last of the query to be read, and reports all that is wrong with it.
func (c *call) page() (page, error) {
	p := page{limit: defaultPage, list: c.list()}
	if limit, given := c.query.values["limit"]; given {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > largestPage {
			c.query.refuse("limit", "must be a number from 1 to "+strconv.Itoa(largestPage))
		}
		p.limit = n
	}
	if cursor, given := c.query.values["cursor"]; given {
		after, ok := parseCursor(p.list, cursor)
		if !ok {
			c.query.note("cursor", codeInvalidCursor, "The cursor does not belong to this list; begin without one.")
		}
		p.after = after
	}
	return p, c.query.end()
}

// list names the list that a request is about: its route, the organization acted in, and whatever stands in its path.
func (c *call) list() string {
	var name strings.Builder
	name.WriteString(c.route.pattern + "\n" + c.principal.Organization.ID)
	for _, p := range c.params {
		name.WriteString("\n" + p.Value)
	}
	return name.String()
}

// A cursor is a position, its two numbers as varints, followed by a digest of the list and the position. The digest is
// no signature: who forges a position reads on there in a list that is its own to read. It keeps a cursor from being
// taken for a place in another list, and damage from going unnoticed.
const cursorDigest = 8

// cursor writes a position in a list.
func cursor(list string, p position) string {
	b := binary.AppendVarint(nil, p.row)
	b = binary.AppendVarint(b, p.at)
	return base64.RawURLEncoding.EncodeToString(seal(list, b))
}

// seal appends the digest.
func seal(list string, b []byte) []byte {
	sum := sha256.Sum256(append([]byte(list+"\n"), b...))
	return append(b, sum[:cursorDigest]...)
}

// parseCursor reads what cursor has written for the same list.
func parseCursor(list, text string) (p position, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < cursorDigest+2 {
		return p, false
	}
	body := b[:len(b)-cursorDigest]
	if string(seal(list, body[:len(body):len(body)])) != string(b) {
		return p, false
	}
	var n, m int
	p.row, n = binary.Varint(body)
	if n <= 0 {
		return position{}, false
	}
	p.at, m = binary.Varint(body[n:])
	if m <= 0 || n+m != len(body) || p.row < 1 {
		return position{}, false
	}
	return p, true
}

// listBody is a page as it is answered.
type listBody[B any] struct {
	Data       []B     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// answerPage writes a page of rows. There is one row too many where more follow. A page that is not full has more behind it
// where the search ended early.
func answerPage[R, B any](c *call, p page, rows []R, body func(R) B, at func(R) position) error {
	answer := listBody[B]{Data: make([]B, 0, min(len(rows), p.limit))}
	after := p.ended
	if len(rows) > p.limit {
		rows = rows[:p.limit]
		after = at(rows[len(rows)-1])
	}
	if after != (position{}) {
		next := cursor(p.list, after)
		answer.HasMore, answer.NextCursor = true, &next
	}
	for _, row := range rows {
		answer.Data = append(answer.Data, body(row))
	}
	return c.ok(answer)
}
