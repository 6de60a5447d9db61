package form

import (
	"strings"
	"unicode"
)

// With an invisible character, two names look the same, or a name looks like something else.

// isInvisible reports whether nobody can see a character, or whether it changes the order in which others are shown. These are the
// control characters, the separators of lines and paragraphs, and the format and other ignorable characters of Unicode:
// bidirectional marks, zero-width characters, fillers and tags. Variation selectors are allowed, because emoji and Japanese names
// have them.
func isInvisible(r rune) bool {
	if r < unicode.MaxASCII {
		return r < ' '
	}
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point) ||
		unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// The joiners of Unicode.
const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
)

// joinable are the characters between which a joiner changes what people see: letters of these scripts, and the parts of emoji.
var joinable = []*unicode.RangeTable{
	unicode.Arabic, unicode.Bengali, unicode.Devanagari, unicode.Gujarati, unicode.Gurmukhi, unicode.Kannada, unicode.Malayalam,
	unicode.Oriya, unicode.Sinhala, unicode.Tamil, unicode.Telugu,
	unicode.So, unicode.Sk, unicode.Variation_Selector,
}

// findInvisible returns the first invisible character of a text.
func findInvisible(text string) (r rune, found bool) {
	if strings.IndexFunc(text, isInvisible) < 0 {
		return 0, false
	}
	runes := []rune(text)
	for i, r := range runes {
		joins := (r == joiner || r == nonJoiner) && i > 0 && i+1 < len(runes) && unicode.In(runes[i-1], joinable...) && unicode.In(runes[i+1], joinable...)
		if isInvisible(r) && !joins {
			return r, true
		}
	}
	return 0, false
}

// refuseInvisible adds a problem if a text has an invisible character. It allows the control characters in allowed.
func (f *Form) refuseInvisible(name, text, allowed string) (isRefused bool) {
	r, found := findInvisible(strings.Map(func(r rune) rune {
		if strings.ContainsRune(allowed, r) {
			return ' '
		}
		return r
	}, text))
	switch {
	case !found:
		return false
	case !unicode.IsControl(r):
		f.Refuse(name, "invalid", "This has the invisible character %U; remove it.", r)
	case allowed == "":
		f.Refuse(name, "invalid", "This may not have control characters.")
	default:
		f.Refuse(name, "invalid", "This may not have control characters other than line feed and tab.")
	}
	return true
}
