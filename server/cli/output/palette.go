package output

import (
	"io"
	"os"
)

// Style is how a word looks on a terminal.
type Style string

// The styles. Their values are the codes of ANSI terminals.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Palette paints text for a terminal. The zero value leaves text as it is.
type Palette struct{ on bool }

// NewPalette returns the palette for text that is written to w. It paints if w is a terminal and the environment allows
// colours (no-color.org).
func NewPalette(w io.Writer) Palette {
	return Palette{on: IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Paint returns text in a style.
func (p Palette) Paint(style Style, text string) string {
	if !p.on || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// IsTerminal reports whether a reader or a writer is a terminal. /dev/null is a character device too, but none.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
