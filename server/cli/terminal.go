package cli

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/keyhook/keyhook/storage/access"
)

// isTerminal reports whether somebody looks at what is written to w.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// coloured reports whether w is a terminal that may be written to in colour (no-color.org).
func coloured(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// visible returns text with whatever a terminal would obey, or not show, written as an escape: what comes from a server
// may have been written by anybody.
func visible(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// shown is text in a message: quoted, and cut where it is long. Messages end up in logs, so of a credential that was given
// where none belongs only the beginning is in them.
func shown(text string) string {
	return "\"" + visible(cut(access.ShortenMinted(text), 80)) + "\""
}

// cut shortens a text to so many characters.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
