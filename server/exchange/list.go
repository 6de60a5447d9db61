package exchange

import (
	"context"
	"encoding/csv"
	"iter"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// AllOrganizations is the value of the parameter organization with which a list has the items of all organizations.
const AllOrganizations = "all"

// ListsAll reports whether the request asks for the items of all organizations. It does not check whether the caller may read them.
func (x *Exchange) ListsAll() bool {
	value, _ := x.Query.Value("organization")
	return value == AllOrganizations
}

// RefuseForAll refuses a parameter that names a thing of one organization, if the list has the items of all organizations.
func (x *Exchange) RefuseForAll(name string) {
	if text, _ := x.Query.Value(name); text != "" && x.ListsAll() {
		x.Query.Refuse(name, "cannot be combined with organization=all; name its organization in the header "+credential.OrganizationHeader)
	}
}

// ListOrganization returns the organization whose items a list has: the one in which the caller acts, or access.AllOrganizations.
// Only operators may list all: otherwise the query has an error.
func (x *Exchange) ListOrganization() int64 {
	x.Query.Matching("organization", "must be all; the header "+credential.OrganizationHeader+" names one organization",
		func(value string) bool { return value == AllOrganizations })
	if !x.ListsAll() {
		return x.Organization()
	}
	x.Query.Fail(x.Principal.Permit(access.NewScope(access.PlatformRead)))
	return access.AllOrganizations
}

// Page reads limit and cursor. A handler reads them last, because Page returns all problems of the query.
func (x *Exchange) Page() (form.Page, error) { return x.Query.Page(x.list()) }

// list names the list of a request: its route, the organization whose items it has, its order, and the values in the path.
func (x *Exchange) list() string {
	parts := []string{x.Path.Pattern, x.Principal.Organization.ID}
	if x.ListsAll() {
		parts[1] = AllOrganizations
	}
	if order, sorted := x.Query.Value("sort"); sorted {
		parts = append(parts, order)
	}
	for _, v := range x.Path.values {
		parts = append(parts, v.value)
	}
	return strings.Join(parts, "\n")
}

// List is the body of a response with a page of a list.
type List[B any] struct {
	Data       []B     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// NewList makes a page of rows. One extra row means that more rows follow. A page that is not full may be followed by more rows too, if
// the store ended its search early.
func NewList[R, B any](p form.Page, rows []R, body func(R) B, at func(R) form.Position) List[B] {
	after := p.Ended
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		after = at(rows[len(rows)-1])
	}
	list := List[B]{Data: Each(rows, body)}
	if after != (form.Position{}) {
		list.HasMore, list.NextCursor = true, new(form.Cursor(p.List, after))
	}
	return list
}

// Each returns what body makes of each item, in their order. The result is never nil.
func Each[T, B any](items []T, body func(T) B) []B {
	bodies := make([]B, len(items))
	for i, item := range items {
		bodies[i] = body(item)
	}
	return bodies
}

// ListRows responds with a page of a list that the store orders by row id. The store lists at most limit rows with ids below
// before; 0 starts at the newest row.
func ListRows[R, B any](x *Exchange, list func(ctx context.Context, before int64, limit int) ([]R, error), body func(R) B, row func(R) int64) error {
	return SearchRows(x, func(ctx context.Context, before int64, limit int) (page access.Page[R], err error) {
		page.Rows, err = list(ctx, before, limit)
		return page, err
	}, body, row)
}

// SearchRows is ListRows for a list whose search may end early.
func SearchRows[R, B any](x *Exchange, list func(ctx context.Context, before int64, limit int) (access.Page[R], error),
	body func(R) B, row func(R) int64) error {
	return ListPositions(x, func(ctx context.Context, after form.Position, limit int) ([]R, form.Position, error) {
		found, err := list(ctx, after.Row, limit)
		return found.Rows, form.Position{Row: found.Next}, err
	}, body, func(r R) form.Position { return form.Position{Row: row(r)} })
}

// ListPositions is SearchRows for a list that is not in the order of row ids. The store returns the place of an early end of its search.
func ListPositions[R, B any](x *Exchange, list func(ctx context.Context, after form.Position, limit int) (rows []R, ended form.Position, err error),
	body func(R) B, at func(R) form.Position) error {
	p, err := x.Page()
	if err != nil {
		return err
	}
	rows, ended, err := list(x.Request.Context(), p.After, p.More())
	if err != nil {
		return err
	}
	p.Ended = ended
	return x.OK(NewList(p, rows, body, at))
}

// csvMemory is about what a response as CSV takes while it is sent.
const csvMemory = 128 << 10

// WantsCSV reports whether Accept lists text/csv, and not with the weight 0, which means "not acceptable" (RFC 9110, section 12.4.2). The
// response has all rows then, so it has no pages.
func (x *Exchange) WantsCSV() (wants bool) {
	for item := range strings.SplitSeq(x.Request.Header.Get("Accept"), ",") {
		mediaType, parameters, _ := mime.ParseMediaType(item)
		weight, err := strconv.ParseFloat(parameters["q"], 64)
		wants = wants || mediaType == "text/csv" && (err != nil || weight > 0)
	}
	for _, name := range []string{"limit", "cursor"} {
		if _, present := x.Query.Value(name); present && wants {
			x.Query.Refuse(name, "cannot be combined with Accept: text/csv, which has all rows")
		}
	}
	return wants
}

// WriteCSV responds with rows as CSV, with a line of names first. B is a struct of texts, pointers to texts and numbers; the names are
// those in JSON. The response is sent row by row. If an error comes after the beginning, the connection is aborted: the client must not
// take a part for the whole.
func WriteCSV[B any](x *Exchange, rows iter.Seq2[B, error]) error {
	if err := x.reserve(csvMemory, 0); err != nil {
		return err
	}
	x.SetHeader("Content-Type", "text/csv; charset=utf-8")
	w := csv.NewWriter(x)
	columns := reflect.TypeFor[B]()
	cells := make([]string, columns.NumField())
	for i := range cells {
		cells[i] = columns.Field(i).Tag.Get("json")
	}
	_ = w.Write(cells) // the next write fails too
	for row, err := range rows {
		switch {
		case err != nil && x.Status() == 0:
			return err
		case err != nil:
			x.Cause = err
			panic(http.ErrAbortHandler)
		}
		for i := range cells {
			cells[i] = csvCell(reflect.ValueOf(row).Field(i))
		}
		if w.Write(cells) != nil {
			return nil // a client that disconnects is not a failure of the server
		}
	}
	w.Flush()
	return nil
}

// csvCell returns the text of a cell. A spreadsheet takes a text that begins with one of these characters for a formula, which could send
// other cells to the author of the text; an apostrophe makes it a text.
func csvCell(v reflect.Value) string {
	if v.Kind() == reflect.Int64 {
		return strconv.FormatInt(v.Int(), 10)
	}
	text := reflect.Indirect(v)
	if !text.IsValid() { // a nil pointer
		return ""
	}
	if s := text.String(); s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return text.String()
}
