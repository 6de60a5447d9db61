package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escaped returns a stranger's text with escapes in place of what a terminal might obey or nobody can see: control
// characters, marks of direction, bytes that are no UTF-8. Line feeds stay.
func escaped(text string) string {
	if !strings.ContainsFunc(text, isHidden) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[0])+0x100, 16)[1:])
		case isHidden(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// escapedJSON does so for JSON, where the same characters can stand in strings alone.
func escapedJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		if high, low := utf16.EncodeRune(r); !isHidden(r) {
			b.WriteRune(r)
		} else if high != utf8.RuneError {
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func isHidden(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }

// shortened returns a text of at most so many characters.
func shortened(text string, most int) string {
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i] + "…"
		}
	}
	return text
}
