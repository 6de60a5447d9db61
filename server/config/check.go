package config

import (
	"errors"
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
)

const maxText = 4096 // bytes of any one value

// isLine accepts text that fits into a line: whatever is more than that came about by mistake.
func isLine(s string) error {
	if len(s) > maxText {
		return fmt.Errorf("is longer than %d bytes", maxText)
	}
	if !utf8.ValidString(s) {
		return errors.New("is not valid UTF-8")
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("holds a line break or another control character; write it in one line")
	}
	if s != strings.TrimSpace(s) {
		return errors.New("begins or ends with a space; remove it")
	}
	return nil
}

func isPath(s string) error { return isLine(s) }

func isDatabase(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; write the path of a file")
	case strings.HasPrefix(s, "file:") || strings.HasPrefix(s, ":"):
		return fmt.Errorf("%s is no path; write the path of a file, as ./keyhook.db", shown(s))
	case strings.HasSuffix(s, "/"):
		return fmt.Errorf("%s is a directory; write the path of a file in it", shown(s))
	}
	return isLine(s)
}

func isKeyPrefix(s string) error {
	if s == access.TokenPrefix {
		return errors.New(`"` + access.TokenPrefix + `" is the prefix of access tokens; write another`)
	}
	if !access.ValidKeyPrefix(s) {
		return fmt.Errorf("%s cannot begin a key; write 1 to 16 of a-z and 0-9, a letter first", shown(s))
	}
	return nil
}

// headerPrefixForm is narrower than RFC 9110 section 5.6.2 has it: what every receiver and proxy lets through.
var headerPrefixForm = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,38}[0-9A-Za-z])?$`)

func isHeaderPrefix(s string) error {
	if strings.EqualFold(s, "webhook") {
		return errors.New("would give webhook-timestamp and webhook-signature, which Standard Webhooks has taken; write another")
	}
	if !headerPrefixForm.MatchString(s) {
		return fmt.Errorf("%s cannot begin a header's name; write 1 to 40 letters, digits and inner hyphens, as X-Service", shown(s))
	}
	return nil
}

// encryptionKeyForm is 32 bytes in hex, or in base64 of either alphabet, padded or not.
var encryptionKeyForm = regexp.MustCompile(`^([0-9A-Fa-f]{64}|[0-9A-Za-z+/]{43}=?|[0-9A-Za-z_-]{43}=?)$`)

// isEncryptionKey looks at the form alone, to name the place of a wrong one; what seals decodes it.
func isEncryptionKey(s string) error {
	if !encryptionKeyForm.MatchString(s) {
		return errors.New("must be 32 random bytes in base64, or as 64 hex digits; make one with: openssl rand -base64 32")
	}
	return nil
}

func isToken(s string) error {
	if _, ok := access.Opaque(s); !ok {
		return errors.New("must be 20 to 200 visible ASCII characters; make one with: openssl rand -hex 24")
	}
	return nil
}

func isBaseURL(s string) error {
	if s == "" {
		return nil
	}
	if _, err := absolute(s); err != nil {
		return err
	}
	if strings.HasSuffix(s, "/") {
		return fmt.Errorf("%s ends in a slash; write %s", shown(s), shown(strings.TrimRight(s, "/")))
	}
	return nil
}

func isIssuer(s string) error {
	if s == "" {
		return nil
	}
	u, err := absolute(s)
	if err != nil {
		return err
	}
	// The issuer's keys decide who comes in: read over plain HTTP they could be anyone's.
	if addr, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !addr.IsLoopback()) {
		return fmt.Errorf("%s is plain HTTP; write an https:// URL", shown(s))
	}
	return nil
}

// absolute parses a URL of http or https with a host and no more than a path.
func absolute(s string) (*url.URL, error) {
	if err := isLine(s); err != nil {
		return nil, err
	}
	if strings.Contains(s, "@") { // not shown: there may be a password in it
		return nil, errors.New("holds a user name or password; remove it, up to the @")
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%s is no URL of http or https; write one like https://keys.example.com", shown(s))
	}
	if strings.ContainsAny(s, "?#") {
		return nil, fmt.Errorf("%s has a query or fragment; remove it", shown(s))
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if !isPort(port, 1) {
			return nil, fmt.Errorf("%s has no valid port; write one from 1 to 65535", shown(s))
		}
	}
	return u, nil
}

// hostForm is a DNS name, as far as a typing mistake is concerned.
var hostForm = regexp.MustCompile(`^[0-9A-Za-z_]([-0-9A-Za-z_.]{0,251}[0-9A-Za-z_])?$`)

func isAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%s is no host:port; write one like 127.0.0.1:8080 or [::1]:8080", shown(s))
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !hostForm.MatchString(host) {
		return fmt.Errorf("%s has no valid host; write an address or a name", shown(s))
	}
	if !isPort(port, 0) {
		return fmt.Errorf("%s has no valid port; write a number from 0 to 65535", shown(s))
	}
	return nil
}

func isPort(s string, least int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= least && n <= 65535 && strconv.Itoa(n) == s
}

const maxNetworks = 1000

// parseNetworks reads addresses and networks separated by commas. A single address is a network of its own.
func parseNetworks(s string) ([]netip.Prefix, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var all []netip.Prefix
	var wrong []string
	for item := range strings.SplitSeq(s, ",") {
		one, err := parseNetwork(strings.TrimSpace(item))
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		all = append(all, one)
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return all, nil
}

func parseNetwork(s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, errors.New("has an empty item; remove the comma")
	}
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s is no address or network; write one like 10.0.0.0/8 or fd00::1", shown(s))
	}
	return p, nil
}

// checkNetworks refuses what is written otherwise than it is matched: 10.1.2.3/8 would let in all of 10, and a
// mapped form would let in nobody, since addresses are unmapped before they are compared.
func checkNetworks(all []netip.Prefix) error {
	if len(all) > maxNetworks {
		return fmt.Errorf("has more than %d items", maxNetworks)
	}
	var wrong []string
	for _, p := range all {
		switch {
		case !p.IsValid():
			wrong = append(wrong, "has an invalid network")
		case p.Addr().Is4In6():
			wrong = append(wrong, fmt.Sprintf("%s is an IPv4 network in IPv6 form; write it as IPv4", shown(p.String())))
		case p != p.Masked():
			wrong = append(wrong, fmt.Sprintf("%s has bits beyond its length; write %s or %s", shown(p.String()),
				shown(p.Masked().String()), shown(p.Addr().String())))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}
