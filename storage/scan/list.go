package scan

import (
	"context"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
)

// List is a table whose rows belong to organizations, or the table of organizations. It is read in the order of row ids, newest first.
type List[T any] struct {
	Logs    *Reader
	Table   string // with its alias, if it has one: "events e"
	Index   string // on organization_id; empty for the table of organizations
	Columns string // with the alias
	Joins   string // CROSS JOIN, so that SQLite reads the table first
	Then    string // the order of rows that a join makes of one row, after a comma; empty if it makes at most one
	Where   string // conditions, with parameters from ?5 on; empty selects every row
}

// Query selects rows of a list.
type Query struct {
	Organization int64 // row id, or access.AllOrganizations
	First        int64 // the lowest row id; 0 is no bound
	Before       int64 // the row id at which the page begins, exclusive; 0 starts at the newest row
	Limit        int
	Filtered     bool  // Where leaves out some rows
	Slice        int   // rows of the first slice, if Where reads many rows for each; 0 is the limit of the reader
	Args         []any // of Where
}

// Page returns up to Limit rows. Faults: Unavailable if too many reads of the organization are running.
func (l List[T]) Page(ctx context.Context, q Query) (page access.Page[T], err error) {
	page.Rows = []T{}
	end, err := l.Logs.Take(ctx, q.Organization)
	if err != nil {
		return page, err
	}
	defer end()
	search := l.search(q, &page.Rows)
	high := Position{Row: UpperBound(q.Before)}
	if !q.Filtered {
		err = l.Logs.ReadAll(ctx, high, search)
		return page, err
	}
	reached, err := l.Logs.Walk(ctx, high, search, q.Slice)
	page.Next = reached.Row
	return page, err
}

type listSearch[T any] struct {
	List[T]
	query Query
	rows  *[]T

	id, from, where string // the row id, the table with its index, and the bounds
}

// search returns the search of a query. A list of all organizations reads the table in the order of its rows.
func (l List[T]) search(q Query, rows *[]T) listSearch[T] {
	alias := l.Table[strings.LastIndexByte(l.Table, ' ')+1:]
	id, from, organization := alias+".id", l.Table+" NOT INDEXED", "?1 = 0"
	switch {
	case q.Organization == access.AllOrganizations:
	case l.Index == "":
		organization = id + " = ?1"
	default:
		from, organization = l.Table+" INDEXED BY "+l.Index, alias+".organization_id = ?1"
	}
	return listSearch[T]{l, q, rows, id, from, organization + " AND " + id + " >= ?2 AND " + id + " < ?3"}
}

// Bound implements Search. For all organizations, it counts row ids instead of rows: to skip rows, SQLite would have to read them.
func (s listSearch[T]) Bound(ctx context.Context, high Position, rows int) (low Position, err error) {
	text := "SELECT " + s.id + " FROM " + s.from + " WHERE " + s.where + " ORDER BY " + s.id + " DESC LIMIT 1 OFFSET ?4 - 1"
	if s.query.Organization == access.AllOrganizations {
		text = `SELECT bound.id FROM (SELECT min(?3, (SELECT max(id) FROM ` + s.Table + `) + 1) - ?4 AS id) bound
			WHERE ?1 = 0 AND bound.id > max(?2, (SELECT min(id) FROM ` + s.Table + `))`
	}
	err = s.Logs.Pool.Get(ctx, &low, text, s.query.Organization, s.query.First, high.Row, rows)
	return low, err
}

// Read implements Search.
func (s listSearch[T]) Read(ctx context.Context, low, high Position) (full bool, err error) {
	text := "SELECT " + s.Columns + " FROM " + s.from + " " + s.Joins + " WHERE " + s.where
	if s.Where != "" {
		text += " AND " + s.Where
	}
	args := append([]any{s.query.Organization, max(low.Row, s.query.First), high.Row, s.query.Limit - len(*s.rows)}, s.query.Args...)
	var batch []T
	err = s.Logs.Pool.List(ctx, &batch, text+" ORDER BY "+s.id+" DESC"+s.Then+" LIMIT ?4", args...)
	*s.rows = append(*s.rows, batch...)
	return len(*s.rows) >= s.query.Limit, err
}
