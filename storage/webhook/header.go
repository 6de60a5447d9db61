package webhook

import (
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/redact"
)

// Limits of the own headers of a subscription.
const (
	MaxHeaders     = 10
	MaxHeaderName  = 100  // characters
	MaxHeaderValue = 4096 // characters
)

// Header is a request header that a subscription adds to its deliveries, for example to authenticate at the receiver. The name
// is sent as its owner wrote it. A zero value keeps the stored value in a change.
type Header struct {
	Name  string
	Value redact.Text
}

// HeaderNames are the names of the own headers of a subscription, in their order.
type HeaderNames []string

// ReservedHeader reports whether Keyhook, HTTP or a proxy sets a header, so that no subscription may. prefix is the prefix of
// Keyhook's own headers. An underscore counts as a hyphen, because some receivers (CGI, WSGI, Rack) do not tell them apart.
func ReservedHeader(name, prefix string) bool {
	name = hyphenated(name)
	return slices.Contains(reservedHeaders, name) ||
		slices.ContainsFunc(append(reservedPrefixes, hyphenated(prefix)+"-"), func(p string) bool { return strings.HasPrefix(name, p) })
}

func hyphenated(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

var (
	// reservedHeaders are set by Keyhook, describe the connection or the form of the request (RFC 9110, RFC 9112), or tell a
	// receiver through which proxies the request came.
	reservedHeaders = []string{
		"accept-encoding", "connection", "expect", "forwarded", "host", "http2-settings", "keep-alive", "max-forwards", "te", "trailer",
		"transfer-encoding", "upgrade", "user-agent", "via", "x-real-ip",
	}
	reservedPrefixes = slices.Clip([]string{"content-", "proxy-", "webhook-", "x-forwarded-"})
)

// ValidHeaderName reports whether name is a token of RFC 9110, section 5.6.2.
func ValidHeaderName(name string) bool {
	return name != "" && len(name) <= MaxHeaderName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// ValidHeaderValue reports whether a text can be sent: printable ASCII, without a space at its ends. RFC 9110 allows other bytes
// too, but receivers read them in different ways.
func ValidHeaderValue(value string) bool {
	return strings.Trim(value, " ") == value && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// maskedShortest is the length from which a word of a header is a secret worth masking. A shorter word would occur by chance.
const maskedShortest = 8

// Masked stands for a text that must not be shown.
const Masked = "***"

// MaskHeaders replaces the values of headers in a text of the receiver, so that a receiver that returns the request does not
// reveal them. It replaces each word of at least 8 characters, because a receiver may return the token without its scheme. It also
// replaces each run of letters and digits of that length, because JSON and HTML may write the other characters in another way.
// If isCut, the text may end within a word.
func MaskHeaders(text []byte, headers []Header, isCut bool) []byte {
	if len(headers) == 0 {
		return text
	}
	found := string(text)
	for _, secret := range secretWords(headers) {
		found = strings.ReplaceAll(found, secret, Masked)
	}
	if isCut {
		found = maskEnd(found, headers)
	}
	return []byte(found)
}

// secretWords returns the words and runs of the values that MaskHeaders replaces, the longest first, because one may contain another.
func secretWords(headers []Header) (list []string) {
	for _, h := range headers {
		value := h.Value.Reveal()
		for _, word := range append(strings.Fields(value), strings.FieldsFunc(value, isEscapable)...) {
			if len(word) >= maskedShortest {
				list = append(list, word)
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// isEscapable reports whether a character of a header may stand in JSON, HTML or a URL as an escape.
func isEscapable(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_' && r != '.' && r != '~'
}

// maskEnd masks the beginning of a secret word at the end of a text.
func maskEnd(text string, headers []Header) string {
	for _, secret := range secretWords(headers) {
		for n := min(len(secret)-1, len(text)); n >= maskedShortest; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				return text[:len(text)-n] + Masked
			}
		}
	}
	return text
}

// Value stores the names as a space-delimited list, because no name has a space.
func (n HeaderNames) Value() (driver.Value, error) { return strings.Join(n, " "), nil }

// Scan reads what Value stored. NULL has no names.
func (n *HeaderNames) Scan(src any) error {
	if src == nil {
		src = ""
	}
	return (*Types)(n).Scan(src)
}
