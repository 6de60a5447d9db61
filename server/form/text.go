package form

import (
	"fmt"
	"math"
	"net/mail"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keyhook/keyhook/dispatch/egress"
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
func (f *Form) Line(name string, max int) *string { return f.line(name, f.Text(name, max)) }

func (f *Form) line(name string, text *string) *string {
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
	text := f.Text(name, math.MaxInt) // the white space does not count
	if text == nil {
		return nil
	}
	*text = strings.TrimSpace(*text)
	if utf8.RuneCountInString(*text) > MaxName {
		f.Refuse(name, "too_long", "This may have at most %d characters.", MaxName)
		return nil
	}
	return f.line(name, text)
}

// Matching returns the text of a field that must be valid. must completes "This must ….".
func (f *Form) Matching(name string, text *string, must string, valid func(string) bool) *string {
	if text != nil && !valid(*text) {
		f.Refuse(name, "invalid", "This must %s.", must)
		return nil
	}
	return text
}

// OneOf returns one of some texts.
func (f *Form) OneOf(name string, values ...string) *string {
	return f.Matching(name, f.Text(name, MaxName), "be one of "+strings.Join(values, ", "), func(text string) bool { return slices.Contains(values, text) })
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
func (f *Form) EmailOrNull(name string) *string { return nullable(f, name, f.Email) }

// nullable reads a field that may be absent. Null removes it: the result is the zero value.
func nullable[T any](f *Form, name string, read func(string) *T) *T {
	if f.Null(name) {
		return new(T)
	}
	return read(name)
}

// ExternalID returns an id of the host product. Null removes the id: the result is the empty string.
func (f *Form) ExternalID(name string) *string {
	return nullable(f, name, func(name string) *string { return f.CheckExternalID(name, f.Text(name, access.MaxExternalID)) })
}

var externalIDForm = fmt.Sprintf("be 1 to %d visible ASCII characters, because headers and paths contain it, and not be . or .. or have the form of an id of Keyhook", access.MaxExternalID)

// CheckExternalID returns a text that is an external id. The text is a field of the body, or a decoded part of the path.
func (f *Form) CheckExternalID(name string, text *string) *string {
	return f.Matching(name, text, externalIDForm, access.ValidExternalID)
}

const maxWebURL = 2048

// pages are the addresses that a browser may open, also inside the operator's network.
var pages = egress.Policy{AllowHTTP: true, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}

// WebURL returns the absolute URL of a web page, which a browser may open. url.Parse takes https://1.2.3.4.5, and browsers do not.
func (f *Form) WebURL(name string) *string {
	const must = "be an absolute URL with http or https that a browser opens, such as https://shop.example/settings, with spaces as %20 and without an empty port"
	return f.Matching(name, f.Line(name, maxWebURL), must, func(text string) bool {
		page, _, _ := strings.Cut(text, "#") // a page may have a fragment, but a subscription may not
		_, err := pages.CheckURL(page)
		return err == nil
	})
}

func truncate(text string, max int) string {
	n := 0
	for i := range text {
		if n == max {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

// Printable returns a part of a request for use in a message: at most max characters, all of them printable.
func Printable(text string, max int) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, truncate(text, max))
}

// isInvisible reports whether nobody sees a character, such as a filler, or a mark that reverses the order of others. With one, two names
// look the same, or a name looks like something else. Emoji and some scripts need the joiners.
func isInvisible(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point) && r != '\u200c' && r != '\u200d'
}

// refuseInvisible adds a problem if a text has an invisible character. It allows the control characters in allowed.
func (f *Form) refuseInvisible(name, text, allowed string) (isRefused bool) {
	for _, r := range text {
		if isInvisible(r) && !strings.ContainsRune(allowed, r) {
			f.Refuse(name, "invalid", "This has the invisible character %U; remove it.", r)
			return true
		}
	}
	return false
}
