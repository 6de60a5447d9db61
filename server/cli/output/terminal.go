package output

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

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

// Escape returns text on one line, with an escape for each byte or character that a terminal would obey or not show:
// control characters, marks of direction, invalid UTF-8. Text from a server or a receiver may contain any of them.
func Escape(text string) string { return escape(text, oneLine) }

// EscapeLines is Escape for text of several lines: line feeds stay.
func EscapeLines(text string) string { return escape(text, manyLines) }

// These take back what strconv escapes, and a terminal shows.
var (
	oneLine   = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
	manyLines = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
)

func escape(text string, shown *strings.Replacer) string {
	quoted := strconv.QuoteToGraphic(text)
	return shown.Replace(quoted[1 : len(quoted)-1])
}

// EscapeJSON escapes the characters of a JSON document that are not plain. Its meaning stays if each of them is within a string.
func EscapeJSON(document string, isPlain func(rune) bool) string {
	var b strings.Builder
	for _, r := range document {
		if isPlain(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// isShown reports whether a terminal shows a character of a JSON document. Escape escapes the same others, but line feeds.
func isShown(r rune) bool { return r == '\n' || unicode.IsGraphic(r) }

// Shorten cuts a text to most characters. The last character of a shortened text is "…".
func Shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// Quote returns text for an error message: in quotes, escaped, at most 80 characters, and without secrets, because logs have messages.
func Quote(text string) string { return `"` + Escape(Shorten(HideSecrets(text), 80)) + `"` }

// HideSecrets cuts an API key, an access token or a signing secret to its first characters.
func HideSecrets(text string) string {
	if strings.HasPrefix(text, webhook.SecretPrefix) {
		return Shorten(text, len(webhook.SecretPrefix)+7)
	}
	return access.ShortenMinted(text)
}

// Count returns a number with its noun: "1 event", "2 events".
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
