package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keyhook/keyhook/storage/access"
)

// text is what a caller looks for.
type text struct {
	text   string
	lower  string        // without the scheme of a URL
	id     access.IDType // if it has the form of a public id
	prefix string        // if it begins like an API key or an access token: the prefix as lists show it
}

// parse reads what a caller wrote. ok is false if nothing can have this text: it is empty, longer than every name, or not valid
// UTF-8, or it has a control character.
func parse(written string) (t text, ok bool) {
	if len(written) > utf8.UTFMax*longest || !utf8.ValidString(written) {
		return t, false
	}
	// A text that was copied may have spaces or direction marks at its ends.
	t.text = strings.TrimFunc(written, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
	if t.text == "" || utf8.RuneCountInString(t.text) > longest || strings.ContainsFunc(t.text, unicode.IsControl) {
		return t, false
	}
	t.lower = strings.ToLower(t.text)
	for _, scheme := range []string{"https://", "http://"} {
		if address, found := strings.CutPrefix(t.lower, scheme); found && address != "" {
			t.lower = address
		}
	}
	if access.LooksLikeID(t.text) {
		t.id, _ = access.IDTypeOf(t.text)
	}
	if c, minted := access.Parse(t.text); minted {
		t.prefix = c.Display()
	} else if display, ok := access.ParseDisplay(t.text); ok {
		t.prefix = display
	}
	return t, true
}

// longest is the most characters of a text that a lookup compares: those of an external id, and of an idempotency key.
const longest = access.MaxExternalID
