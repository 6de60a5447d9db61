package sqlite

import (
	"encoding/json"
	"iter"
	"strconv"
)

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
