package egress

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxURL is the length of the longest URL that CheckURL accepts, in characters.
const MaxURL = 2048

// Codes of a URLError. They are stable, because clients branch on them.
const (
	CodeInvalidURL         = "invalid_url"
	CodeTooLong            = "too_long"
	CodeHTTPSRequired      = "https_required"
	CodeHostRequired       = "host_required"
	CodeInvalidHost        = "invalid_host"
	CodeInvalidPort        = "invalid_port"
	CodeUserinfoNotAllowed = "userinfo_not_allowed"
	CodeFragmentNotAllowed = "fragment_not_allowed"
	CodeAddressNotAllowed  = "address_not_allowed"
)

// URLError says what is wrong with a URL. Both parts are safe to show to its author. They repeat at most an address or a port of the URL.
type URLError struct {
	Code    string // stable, snake_case
	Message string // one sentence: what to do
}

// Error returns code and message.
func (e *URLError) Error() string { return e.Code + ": " + e.Message }

func refuse(code, format string, args ...any) error {
	return &URLError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CheckURL returns the canonical form of a URL to which deliveries may be sent, or a *URLError. In the canonical form,
// the host is in lower case, in ASCII and without a trailing dot. An address is in its shortest form. The rest is kept,
// with non-ASCII characters percent-encoded. CheckURL returns a canonical form unchanged.
//
// CheckURL applies the policy to written addresses and to the name localhost. It does not resolve other names. Every
// dial checks their addresses. This check only tells a customer earlier.
func (p Policy) CheckURL(raw string) (string, error) {
	if err := checkText(raw); err != nil {
		return "", err
	}
	u, err := url.Parse(raw)
	if err != nil { // its text contains the URL
		return "", refuse(CodeInvalidURL, "Write an absolute URL such as https://example.com/webhooks.")
	}
	if err := p.checkParts(u, raw); err != nil {
		return "", err
	}
	host, err := p.canonicalHost(u)
	if err != nil {
		return "", err
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	u.Host = host
	u.RawQuery = nonASCII.ReplaceAllStringFunc(u.RawQuery, url.QueryEscape)
	canonical := u.String()
	if len(canonical) > MaxURL {
		return "", refuse(CodeTooLong, "Shorten the URL to %d characters. Each byte of a character outside of ASCII counts as three.", MaxURL)
	}
	return canonical, nil
}

// checkText checks what needs no parsing. Readers of URLs disagree most about characters that do not belong there.
func checkText(raw string) error {
	switch {
	case utf8.RuneCountInString(raw) > MaxURL:
		return refuse(CodeTooLong, "Shorten the URL to %d characters.", MaxURL)
	case !utf8.ValidString(raw), strings.ContainsFunc(raw, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || r == '\\' // browsers read a backslash as a slash
	}):
		return refuse(CodeInvalidURL, `Percent-encode spaces, line breaks, control characters, backslashes and what is not UTF-8, or remove them from the URL.`)
	}
	return nil
}

func (p Policy) checkParts(u *url.URL, raw string) error {
	switch {
	case u.Scheme != "https" && p.AllowHTTP && u.Scheme != "http":
		return refuse(CodeHTTPSRequired, "Begin the URL with https:// or http://.")
	case u.Scheme != "https" && !p.AllowHTTP:
		return refuse(CodeHTTPSRequired, "Begin the URL with https://.")
	case u.Hostname() == "":
		return refuse(CodeHostRequired, "Write a host after the two slashes, as in %s://example.com/webhooks.", u.Scheme)
	case u.User != nil:
		return refuse(CodeUserinfoNotAllowed, "Remove the user name and the password from the URL. Deliveries have a signature instead.")
	case strings.Contains(raw, "#"): // an empty fragment leaves no trace in u
		return refuse(CodeFragmentNotAllowed, "Remove # and everything after it from the URL, because a fragment is not sent.")
	case !validPort(u):
		return refuse(CodeInvalidPort, "Write a port from 1 to 65535 without leading zeros, or remove the colon.")
	}
	return nil
}

// validPort reports whether the port is missing or in its only valid form. url.Parse also accepts "", "0443" and "99999".
func validPort(u *url.URL) bool {
	port := u.Port()
	if port == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

// canonicalHost returns the host for the canonical URL, with an IPv6 address in brackets.
func (p Policy) canonicalHost(u *url.URL) (string, error) {
	host := u.Hostname()
	if !strings.HasPrefix(u.Host, "[") {
		name, err := canonicalName(host)
		if err != nil {
			return "", err
		}
		host = name
	}
	address, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		if reason := p.refusal(address); reason != "" {
			return "", refuse(CodeAddressNotAllowed, "Use an address that is reachable from the internet: %s %s.", address, reason)
		}
		if address = address.Unmap(); address.Is6() {
			return "[" + address.String() + "]", nil
		}
		return address.String(), nil
	case strings.HasPrefix(u.Host, "["):
		return "", refuse(CodeInvalidHost, "Write an IPv6 address between the brackets.")
	case p.refusesLocalhost(host):
		return "", refuse(CodeAddressNotAllowed, "Use a host that is reachable from the internet: localhost is this machine (RFC 6761).")
	}
	return host, nil
}

// refusesLocalhost reports whether name must lead to loopback addresses, and the policy allows none of them.
func (p Policy) refusesLocalhost(name string) bool {
	if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
		return false
	}
	return p.refusal(netip.AddrFrom4([4]byte{127, 0, 0, 1})) != "" && p.refusal(netip.IPv6Loopback()) != ""
}

// nonASCII is what net/url percent-encodes in a path, but not in a query.
var nonASCII = regexp.MustCompile(`[^\x00-\x7f]+`)

// Limits of a DNS name (RFC 1035, section 2.3.4), in characters.
const (
	maxName  = 253
	maxLabel = 63
)

// nameForm is a DNS name in lower case: labels of at most maxLabel characters, with dots between them.
var nameForm = regexp.MustCompile(`^[0-9a-z_]([-0-9a-z_]{0,61}[0-9a-z_])?(\.[0-9a-z_]([-0-9a-z_]{0,61}[0-9a-z_])?)*$`)

// toASCII maps a name as browsers do before a lookup (UTS 46, not transitional). It allows underscores and double
// hyphens, because they occur in names that resolve.
var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false), idna.CheckHyphens(false))

// canonicalName returns a host without brackets in lower case, in ASCII and without a trailing dot. The result may
// still be an IPv4 address, even one written in digits of another script: ①②⑦.⓪.⓪.① is 127.0.0.1.
func canonicalName(host string) (string, error) {
	name, err := toASCII.ToASCII(host)
	if err != nil || !utf8.ValidString(host) { // a host may contain any escaped bytes, and mapping them is not an error
		return "", refuse(CodeInvalidHost, "Write the host as a name or an address.")
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if len(name) > maxName {
		return "", refuse(CodeInvalidHost, "Use a host of at most %d characters.", maxName)
	}
	if !nameForm.MatchString(name) {
		return "", refuse(CodeInvalidHost,
			"Use 1 to %d letters, digits and hyphens for each part of the host name, without a hyphen at its ends.", maxLabel)
	}
	if _, err := netip.ParseAddr(name); err != nil && looksNumeric(name[strings.LastIndexByte(name, '.')+1:]) {
		return "", refuse(CodeInvalidHost, "Write an IPv4 address as four decimal numbers from 0 to 255, without leading zeros.")
	}
	return name, nil
}

// looksNumeric reports whether some software reads a name with this last label as an IPv4 address. For inet_aton,
// 127.1, 2130706433 and 0x7f.1 are all 127.0.0.1. No top-level domain looks like that (https://url.spec.whatwg.org,
// "ends in a number").
func looksNumeric(label string) bool {
	if hex, found := strings.CutPrefix(label, "0x"); found {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
