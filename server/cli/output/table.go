package output

import (
	"io"
	"strings"
	"text/tabwriter"
)

// Table aligns cells in columns. It escapes each cell, so cells may contain text from anybody. The zero value has no rows.
type Table struct{ text strings.Builder }

// Add adds a row.
func (t *Table) Add(cells ...string) {
	for i, cell := range cells {
		if i > 0 {
			t.text.WriteByte('\t')
		}
		t.text.WriteString(Escape(cell))
	}
	t.text.WriteByte('\n')
}

// Write writes the table to w.
func (t *Table) Write(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(columns, t.text.String()); err != nil {
		return err
	}
	return columns.Flush()
}

// String returns the table. Each row ends with a line feed.
func (t *Table) String() string {
	var b strings.Builder
	_ = t.Write(&b) // a builder takes everything
	return b.String()
}
