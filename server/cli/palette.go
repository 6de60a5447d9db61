package cli

import "io"

// palette colours text on a terminal, and leaves it alone elsewhere.
type palette struct{ on bool }

// newPalette colours what is written to w where that may be in colour.
func newPalette(w io.Writer) palette {
	return palette{on: coloured(w)}
}

func (p palette) paint(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p palette) good(text string) string   { return p.paint("32", text) }
func (p palette) bad(text string) string    { return p.paint("31", text) }
func (p palette) strong(text string) string { return p.paint("1", text) }
func (p palette) faint(text string) string  { return p.paint("2", text) }
