package storage

import "encoding/json"

// statementSizes are the numbers of rows that one statement writes or reads, the largest first. A statement costs some
// microseconds, however few its rows are.
var statementSizes = [...]int{64, 16, 4, 1}

// rowsAtOnce returns how many of n rows the next statement handles.
func rowsAtOnce(n int) int {
	for _, size := range statementSizes {
		if size <= n {
			return size
		}
	}
	return 0
}

// statements returns the texts of a statement for each of statementSizes.
func statements(text func(rows int) string) map[int]string {
	texts := make(map[int]string, len(statementSizes))
	for _, size := range statementSizes {
		texts[size] = text(size)
	}
	return texts
}

// textArray returns texts as a JSON array, for json_each.
func textArray[T ~string](texts []T) string {
	if len(texts) == 0 {
		return "[]"
	}
	array, _ := json.Marshal(texts) // strings always encode
	return string(array)
}
