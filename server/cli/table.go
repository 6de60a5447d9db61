package cli

import (
	"strings"
	"unicode/utf8"
)

// widest is how many characters a column of a list may have.
const widest = 60

// colours of words that say how something stands.
var colours = map[string]string{
	"active": green, "healthy": green, "succeeded": green, "delivered": green, "passed": green,
	"failing": yellow, "pending": yellow, "sending": yellow, "interrupted": yellow,
	"disabled": red, "revoked": red, "expired": red, "failed": red, "exhausted": red, "dropped": red,
}

const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// isState names the members whose words have a colour.
func isState(name string) bool {
	return name == "status" || name == "outcome" || name == "state" || name == "verdict"
}

// table writes rows under their heads, each column as wide as it must be, and as most at the most. Widths are counted
// before there are colours.
func (o output) table(columns []string, rows [][]string, most int) string {
	widths := make([]int, len(columns))
	heads := make([]string, len(columns))
	for i, name := range columns {
		heads[i] = strings.ToUpper(strings.NewReplacer("_", " ", ".", " ").Replace(name))
		widths[i] = utf8.RuneCountInString(heads[i])
	}
	for _, row := range rows {
		for i := range row {
			row[i] = cut(row[i], most)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	o.row(&b, heads, widths, func(int, string) string { return bold })
	for _, row := range rows {
		o.row(&b, row, widths, func(i int, word string) string {
			if isState(columns[i]) {
				return colours[word]
			}
			return ""
		})
	}
	return b.String()
}

// row writes one line; nothing is padded at its end.
func (o output) row(b *strings.Builder, cells []string, widths []int, colour func(i int, word string) string) {
	for i, word := range cells {
		b.WriteString(o.paint(word, colour(i, word)))
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(word)+2))
		}
	}
	b.WriteByte('\n')
}

func (o output) paint(word, colour string) string {
	if !o.colour || colour == "" {
		return word
	}
	return colour + word + plain
}

// details writes the members of one thing, a line for each.
func (o output) details(r record, except string) string {
	width := 0
	for _, m := range r {
		if m.name != except {
			width = max(width, utf8.RuneCountInString(visible(m.name)))
		}
	}
	var b strings.Builder
	for _, m := range r {
		if m.name == except {
			continue
		}
		name, word, colour := visible(m.name), m.text(), ""
		if isState(m.name) {
			colour = colours[word]
		}
		b.WriteString(name + strings.Repeat(" ", width-utf8.RuneCountInString(name)+2) + o.paint(word, colour) + "\n")
	}
	return b.String()
}
