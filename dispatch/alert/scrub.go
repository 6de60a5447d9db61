package alert

import (
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const (
	hidden    = "…"
	maxReason = 200 // characters of an error of a service
	leastPart = 3   // characters of a part of a URL that is removed
	leastRun  = 4   // letters and digits in a row, in a part of a URL
)

var (
	quotedText = regexp.MustCompile(`"(\\.|[^"\\])*"?`)
	urlText    = regexp.MustCompile(`\S*://\S*`)
	runs       = regexp.MustCompile(`[0-9A-Za-z]+`)
	repeated   = regexp.MustCompile(hidden + `[^\s:]*` + hidden)
)

// scrub returns the text of an error without any part of the URL that may be a secret. The errors of net/http and net/smtp contain URLs,
// tokens and addresses. So scrub removes everything in quotes, everything like a URL, and each part of this URL.
func (c Channel) scrub(err error) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, plainText(err))
	text = urlText.ReplaceAllString(quotedText.ReplaceAllString(text, hidden), hidden)
	for _, secret := range secretParts(c.url.Reveal()) {
		text = regexp.MustCompile(`(?i)`+regexp.QuoteMeta(secret)).ReplaceAllLiteralString(text, hidden)
	}
	text = strings.Join(strings.Fields(repeated.ReplaceAllString(text, hidden)), " ")
	return shorten(text, maxReason)
}

// plainText returns the text of an error. The reply of a mail server is not in quotes then, because it says what to mend.
func plainText(err error) string {
	if reply, is := errors.AsType[*textproto.Error](err); is {
		return fmt.Sprintf("the mail server answered %d %s", reply.Code, reply.Msg)
	}
	return err.Error()
}

// secretParts lists the parts of a URL that may be secrets, the longest first: everything but the scheme, and the host of the
// services whose host is a name.
func secretParts(raw string) []string {
	parts := []string{raw}
	u, err := url.Parse(raw)
	if err != nil {
		parts = append(parts, strings.FieldsFunc(raw, func(r rune) bool { return strings.ContainsRune(":/?#@&=", r) })...)
		u = &url.URL{}
	}
	password, _ := u.User.Password()
	parts = append(parts, u.User.Username(), password, u.User.String(), u.Opaque, u.Fragment, u.Path, u.EscapedPath())
	if s := u.Scheme; s == "discord" || s == "teams" || strings.HasPrefix(s, "teams+") || s == "slack" && u.Host != "webhook" {
		parts = append(parts, u.Host, u.Hostname())
	}
	parts = append(parts, strings.Split(u.Path, "/")...)
	parts = append(parts, strings.Split(u.EscapedPath(), "/")...)
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		parts = append(parts, pair[strings.Index(pair, "=")+1:])
	}
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	secrets := []string{}
	for _, part := range parts {
		if len(part) >= leastPart {
			secrets = append(secrets, part)
		}
		for _, run := range runs.FindAllString(part, -1) {
			if len(run) >= leastRun && part != raw {
				secrets = append(secrets, run)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(secrets)
}

// shorten cuts a text to most characters.
func shorten(text string, most int) string {
	if characters := []rune(text); len(characters) > most {
		return string(characters[:most-1]) + "…"
	}
	return text
}
