package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// advise returns an error that says what is wrong and what to do about it.
func advise(what, mend string) error { return &fault.Advice{What: what, Mend: mend} }

const maxText = 4096 // bytes of a value

func checkLine(s string) error {
	if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || s != strings.TrimSpace(s) {
		return advise("the value is not one line", fmt.Sprintf("write at most %d bytes of UTF-8, without control characters, and without spaces at the ends", maxText))
	}
	return nil
}

func checkDatabasePath(s string) error {
	if s == "" || strings.HasPrefix(s, "file:") || strings.HasPrefix(s, ":") || strings.HasSuffix(s, "/") {
		return advise(quote(s)+" is not the path of a file", "write a path such as ./keyhook.db")
	}
	return checkLine(s)
}

// formed returns a check of the form of a value. what is wrong with any other value, which %s shows.
func formed(valid func(string) bool, what, mend string) func(string) error {
	return func(s string) error {
		if valid(s) {
			return nil
		}
		return advise(strings.Replace(what, "%s", quote(s), 1), mend)
	}
}

var checkKeyPrefix = formed(func(s string) bool {
	return s != access.TokenPrefix && s != access.LinkPrefix && s+"_" != webhook.SecretPrefix && access.ValidKeyPrefix(s)
}, "%s cannot be the prefix of keys", "write 1 to 16 of a-z and 0-9, beginning with a letter, and not the prefix of other secrets of Keyhook")

// headerPrefixForm allows less than RFC 9110 section 5.6.2: only names that every receiver and proxy passes on.
var headerPrefixForm = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,38}[0-9A-Za-z])?$`)

var checkHeaderPrefix = formed(func(s string) bool {
	return headerPrefixForm.MatchString(s) && !strings.EqualFold(s, "webhook") // Standard Webhooks has the second
}, "%s cannot begin a header name", "write 1 to 40 letters, digits and inner hyphens, such as X-Service, but not webhook")

const maxName = 40 // characters of console.name

func checkName(s string) error {
	if s == "" || utf8.RuneCountInString(s) > maxName {
		return advise(fmt.Sprintf("the name must have 1 to %d characters", maxName), "write a name such as Acme")
	}
	return checkLine(s)
}

var checkColor = formed(regexp.MustCompile(`^#[0-9A-Fa-f]{6}$`).MatchString,
	"%s is not a colour", `write # and six hex digits in quotes, such as "#3b5bdb"`)

// parseOrigin reads the origin of a page: a scheme, a host, and a port if it is not the usual one. Nothing else may reach the
// Content-Security-Policy.
func parseOrigin(s string) (string, error) {
	u, err := parseURL(s)
	if err != nil {
		return "", err
	}
	if addr, _ := netip.ParseAddr(u.Hostname()); !addr.IsValid() && !hostForm.MatchString(u.Hostname()) {
		return "", advise(quote(s)+" has no valid host", "write an origin such as https://app.example.com")
	}
	if origin := u.Scheme + "://" + u.Host; s != origin {
		return "", advise(quote(s)+" is not an origin", "write "+quote(origin))
	}
	return s, nil
}

// encryptionKeyForm is 32 bytes as hexadecimal digits, or in either alphabet of base64, with or without padding.
var encryptionKeyForm = regexp.MustCompile(`^([0-9A-Fa-f]{64}|[0-9A-Za-z+/]{43}=?|[0-9A-Za-z_-]{43}=?)$`)

// checkEncryptionKey checks only the form, so that the problem names the setting. Storage decodes the key.
var checkEncryptionKey = formed(encryptionKeyForm.MatchString, "the key must be 32 random bytes in base64, or as 64 hex digits",
	"restore the key of the database, because no other opens its signing secrets; for a new database, make one with: openssl rand -base64 32")

var checkToken = formed(func(s string) bool {
	_, ok := access.Opaque(s)
	return ok
}, "the token must be 20 to 200 visible ASCII characters", "make one with: openssl rand -hex 24")

func checkBaseURL(s string) error {
	u, err := parseURL(s)
	if err != nil {
		return err
	}
	if end := u.Host + strings.TrimRight(u.EscapedPath(), "/"); !strings.HasSuffix(s, end) {
		return advise(quote(s)+" ends with a slash, or has characters that a URL must escape", "write "+quote(u.Scheme+"://"+end))
	}
	return nil
}

// checkIssuer refuses plain HTTP, except on this machine. An attacker on the network could replace the issuer's keys, and so sign in.
func checkIssuer(s string) error {
	u, err := parseURL(s)
	if err != nil {
		return err
	}
	if addr, _ := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && !addr.IsLoopback() {
		return advise(quote(s)+" is plain HTTP", "write an https:// URL")
	}
	return nil
}

func parseURL(s string) (*url.URL, error) {
	if err := checkLine(s); err != nil {
		return nil, err
	}
	if strings.Contains(s, "@") { // not shown: it may have a password
		return nil, advise("the URL has a user name or a password", "remove everything up to the @")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, advise(quote(s)+" is not an http or https URL", "write a URL such as https://keys.example.com")
	case strings.ContainsAny(s, "?#") || strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isPort(u.Port(), 1):
		return nil, advise(quote(s)+" has a query, a fragment, or no valid port", "remove that part")
	}
	return u, nil
}

// hostForm is a DNS name, as far as needed to find typing mistakes.
var hostForm = regexp.MustCompile(`^[0-9A-Za-z_]([-0-9A-Za-z_.]{0,251}[0-9A-Za-z_])?$`)

func checkAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if _, wrong := netip.ParseAddr(host); err != nil || wrong != nil && host != "" && !hostForm.MatchString(host) || !isPort(port, 0) {
		return advise(quote(s)+" is not host:port", "write an address such as 127.0.0.1:8080 or [::1]:8080; 0.0.0.0 lets other machines connect")
	}
	return nil
}

func isPort(s string, least int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= least && n <= 65535 && strconv.Itoa(n) == s
}
