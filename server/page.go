package server

import (
	"strings"

	"github.com/keyhook/keyhook/server/form"
)

// page reads limit and cursor, the last of the query to be read, and reports all that is wrong with it.
func (c *call) page() (form.Page, error) { return c.query.Page(c.list()) }

// list names the list that a request is about: its route, the organization acted in, and whatever stands in its path.
func (c *call) list() string {
	var name strings.Builder
	name.WriteString(c.route.pattern + "\n" + c.principal.Organization.ID)
	for _, p := range c.params {
		name.WriteString("\n" + p.Value)
	}
	return name.String()
}

// listBody is a page as it is answered.
type listBody[B any] struct {
	Data       []B     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// answerPage writes a page of rows. There is one row too many where more follow. A page that is not full has more behind it
// where the search ended early.
func writePage[R, B any](c *call, p form.Page, rows []R, body func(R) B, at func(R) form.Position) error {
	answer := listBody[B]{Data: make([]B, 0, min(len(rows), p.Limit))}
	after := p.Ended
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		after = at(rows[len(rows)-1])
	}
	if after != (form.Position{}) {
		next := p.Next(after)
		answer.HasMore, answer.NextCursor = true, &next
	}
	for _, row := range rows {
		answer.Data = append(answer.Data, body(row))
	}
	return c.ok(answer)
}
