package server

import (
	"strings"

	"github.com/keyhook/keyhook/server/form"
)

// page reads limit and cursor. A handler reads them last, because this reports all problems of the query.
func (x *exchange) page() (form.Page, error) { return x.query.Page(x.list()) }

// list names the list of a request: its route, the organization in which the caller acts, and the values in the path.
func (x *exchange) list() string {
	var name strings.Builder
	name.WriteString(x.route.pattern + "\n" + x.Principal.Organization.ID)
	for _, p := range x.params {
		name.WriteString("\n" + p.Value)
	}
	return name.String()
}

// listBody is a page of a list.
type listBody[B any] struct {
	Data       []B     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// writePage writes a page of rows. One extra row means that more rows follow. A page that is not full may be followed by more
// rows too, if the store ended its search early.
func writePage[R, B any](x *exchange, p form.Page, rows []R, body func(R) B, at func(R) form.Position) error {
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
	return x.ok(answer)
}
