package sqlite

import (
	"encoding/json"
	"iter"
	"strconv"
)

// statementSizes are the numbers of rows that one statement writes or reads, the largest first. A statement costs some
// microseconds, however few its rows are.
var statementSizes = [...]int{64, 16, 4, 1}

// RowsAtOnce returns how many of n rows the next statement handles.
func RowsAtOnce(n int) int {
	for _, size := range statementSizes {
		if size <= n {
			return size
		}
	}
	return 0
}

// Texts are the texts of a statement by the number of its rows. RowsAtOnce chooses one of them.
type Texts map[int]string

// Exec runs a statement for all rows, and returns how many it has changed. args are the arguments of the rows, width for each.
func (s Texts) Exec(t *Tx, width int, args []any) (changed int64, err error) {
	for len(args) > 0 {
		n := RowsAtOnce(len(args) / width)
		some, err := t.Affected(s[n], args[:n*width]...)
		if err != nil {
			return changed, err
		}
		changed, args = changed+some, args[n*width:]
	}
	return changed, nil
}

// Statements returns the texts of a statement.
//
// A frequent UPDATE says OR FAIL. Otherwise SQLite copies each page that it changes, to be able to undo this one statement.
// Nobody needs that, because every write returns the error, and the writer then rolls the whole transaction back. An INSERT
// does not say OR FAIL: SQLite copies the pages anyway if the INSERT sets row ids or has foreign keys.
func Statements(text func(rows int) string) Texts {
	texts := make(Texts, len(statementSizes))
	for _, size := range statementSizes {
		texts[size] = text(size)
	}
	return texts
}

// RowList writes row ids as a JSON array, for json_each.
func RowList(rows iter.Seq[int64]) string {
	b := []byte{'['}
	for row := range rows {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, row, 10)
	}
	return string(append(b, ']'))
}

// RowCounts writes counts by row id as a JSON object, for json_each.
func RowCounts(counts map[int64]int64) string {
	object, _ := json.Marshal(counts) // integers always encode
	return string(object)
}

// TextList writes texts as a JSON array, for json_each.
func TextList[T ~string](texts []T) string {
	if len(texts) == 0 {
		return "[]"
	}
	list, _ := json.Marshal(texts) // strings always encode
	return string(list)
}
