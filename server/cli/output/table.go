package output

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table aligns cells in columns. It escapes each cell, so cells may contain text from anybody.
type Table struct {
	Heads   []string                             // the first row, in bold; nil prints none
	Right   []int                                // the columns that are aligned to the right
	Widest  int                                  // cells are shortened to this many characters; 0 shortens none
	Style   func(row []string, column int) Style // how to paint a cell; nil paints none
	Palette Palette

	rows [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Escape(cell)
		if t.Widest > 0 {
			row[i] = Shorten(row[i], t.Widest)
		}
	}
	t.rows = append(t.rows, row)
}

// Write writes the table to w.
func (t *Table) Write(w io.Writer) error {
	_, err := io.WriteString(w, t.String())
	return err
}

// String returns the table. Each row ends with a line feed, and no row ends with spaces.
func (t *Table) String() string {
	var b strings.Builder
	widths := t.widths()
	if t.Heads != nil {
		t.row(&b, t.Heads, widths, func([]string, int) Style { return Bold })
	}
	for _, row := range t.rows {
		t.row(&b, row, widths, t.Style)
	}
	return b.String()
}

// widths returns the width of each column. The last cell of a row needs no width.
func (t *Table) widths() []int {
	var widths []int
	for _, row := range append([][]string{t.Heads}, t.rows...) {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// row writes one row. Padding is counted before there are colours.
func (t *Table) row(b *strings.Builder, cells []string, widths []int, style func([]string, int) Style) {
	var line strings.Builder
	for i, cell := range cells {
		padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if style != nil {
			cell = t.Palette.Paint(style(cells, i), cell)
		}
		if slices.Contains(t.Right, i) {
			line.WriteString(padding + cell + "  ")
		} else {
			line.WriteString(cell + padding + "  ")
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// StateStyle returns the style of a word for a state: green for good, yellow for a warning, red for bad.
func StateStyle(word string) Style {
	switch word {
	case "active", "healthy", "succeeded", "delivered", "passed", "ok":
		return Green
	case "failing", "pending", "sending", "interrupted", "warning", "scheduled", "waiting_for_probe", "waiting_for_pace":
		return Yellow
	case "disabled", "revoked", "expired", "failed", "exhausted", "dropped", "problem", "held_disabled", "held_paused", "held_queue", "blocked_by_plan", "plan_lacked_webhooks":
		return Red
	}
	return Plain
}
