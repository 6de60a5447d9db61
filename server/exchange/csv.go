package exchange

import (
	"encoding/csv"
	"iter"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

// csvMemory is about what a response as CSV takes while it is sent.
const csvMemory = 128 << 10

// WantsCSV reports whether Accept lists text/csv. The weight 0 refuses it (RFC 9110, section 12.4.2). The response has all rows then, so it
// has no pages.
func (x *Exchange) WantsCSV() (wants bool) {
	for item := range strings.SplitSeq(x.Request.Header.Get("Accept"), ",") {
		mediaType, parameters, _ := mime.ParseMediaType(item)
		weight, hasWeight := parameters["q"]
		wants = wants || mediaType == "text/csv" && (!hasWeight || strings.Trim(weight, "0.") != "")
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
