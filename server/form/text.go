package form

import (
	"math"
	"net/mail"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keyhook/keyhook/storage/access"
)

// Limits of text fields, in characters.
const (
	MaxName        = 100
	maxEmail       = 254
	maxDescription = 500
)

// Multiline returns a text that may be empty and may have several lines.
func (f *Form) Multiline(name string) *string {
	text := f.Text(name, maxDescription)
	if text != nil && f.refuseInvisible(name, *text, "\n\t") {
		return nil
	}
	return text
}

// Line returns a text of one line that is not blank.
func (f *Form) Line(name string, max int) *string {
	text := f.Text(name, max)
	switch {
	case text == nil:
	case f.refuseInvisible(name, *text, ""):
		return nil
	case strings.TrimSpace(*text) == "":
		f.Refuse(name, "blank", "This may not be empty.")
		return nil
	}
	return text
}

// Label returns a name that people read: one line, without white space around it.
func (f *Form) Label(name string) *string {
	// White space around a name does not count, so it is removed before the length is checked.
	text := f.Text(name, math.MaxInt)
	if text == nil {
		return nil
	}
	trimmed := strings.TrimSpace(*text)
	switch {
	case f.refuseInvisible(name, trimmed, ""):
	case trimmed == "":
		f.Refuse(name, "blank", "This may not be empty.")
	case utf8.RuneCountInString(trimmed) > MaxName:
		f.Refuse(name, "too_long", "This may have at most %d characters.", MaxName)
	default:
		return &trimmed
	}
	return nil
}

// Matching returns the text of a field that must be valid. must completes "This must ….".
func (f *Form) Matching(name string, text *string, must string, valid func(string) bool) *string {
	if text != nil && !valid(*text) {
		f.Refuse(name, "invalid", "This must %s.", must)
		return nil
	}
	return text
}

// Slug returns a name that is used in paths, as of a plan or a role.
func (f *Form) Slug(name string) *string {
	return f.Matching(name, f.Text(name, MaxName),
		"start with a lower-case letter, followed by at most 62 lower-case letters, digits, _ and -", access.ValidName)
}

// Email returns an e-mail address without a display name.
func (f *Form) Email(name string) *string {
	return f.Matching(name, f.Line(name, maxEmail), "be an e-mail address, such as ada@example.com", func(text string) bool {
		parsed, err := mail.ParseAddress(text)
		return err == nil && parsed.Address == text
	})
}

// EmailOrNull is Email for an address that may be absent. Null removes it: the result is the empty string.
func (f *Form) EmailOrNull(name string) *string {
	return nullable(f, name, f.Email)
}

// nullable reads a field that may be absent. Null removes it: the result is the zero value.
func nullable[T any](f *Form, name string, read func(string) *T) *T {
	if f.Null(name) {
		return new(T)
	}
	return read(name)
}

// ExternalID returns an id of the host product. Null removes the id: the result is the empty string.
func (f *Form) ExternalID(name string) *string {
	if f.Null(name) {
		return new(string)
	}
	text := f.text(name, access.MaxExternalID, aString+orNull)
	if text == nil || f.RefuseExternalID(name, *text) {
		return nil
	}
	return text
}

// RefuseExternalID adds a problem if a text cannot be an external id. The text is a field of the body, or a decoded part of the path.
func (f *Form) RefuseExternalID(name, text string) (isRefused bool) {
	switch {
	case access.ValidExternalID(text):
		return false
	case access.LooksLikeID(text):
		f.Refuse(name, "invalid", "This has the form of an id of Keyhook, such as %s_ and 26 characters; choose another external id.", text[:3])
	case text == "":
		f.Refuse(name, "blank", "This may not be empty.")
	case text == "." || text == "..":
		f.Refuse(name, "invalid", "This may not be . or .., because paths contain it.")
	case !access.IsVisible(text):
		f.Refuse(name, "invalid", "This may have only visible ASCII characters: letters from A to Z, digits and signs, but no space. Headers and paths contain it.")
	default:
		f.Refuse(name, "too_long", "This may have at most %d characters.", access.MaxExternalID)
	}
	return true
}

// maxWebURL limits the URL of a web page, in characters.
const maxWebURL = 2048

// WebURL returns the absolute URL of a web page, which a browser may open.
func (f *Form) WebURL(name string) *string {
	const must = "be an absolute URL with http or https, such as https://shop.example/settings"
	return f.Matching(name, f.Line(name, maxWebURL), must, func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil
	})
}

// truncate returns at most max characters of a text.
func truncate(text []byte, max int) string {
	end := 0
	for range max {
		_, size := utf8.DecodeRune(text[end:])
		if end += size; end == len(text) {
			return string(text)
		}
	}
	return string(text[:end]) + "…"
}

// Printable returns a part of a request for use in a message: at most max characters, all of them printable.
func Printable(text string, max int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n == max {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

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
