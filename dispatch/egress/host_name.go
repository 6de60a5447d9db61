package egress

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Limits of a DNS name (RFC 1035, section 2.3.4), in characters.
const (
	maxName  = 253
	maxLabel = 63
)

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
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if !validLabel(label) {
			return "", refuse(CodeInvalidHost,
				"Use 1 to %d letters, digits and hyphens for each part of the host name, without a hyphen at its ends.", maxLabel)
		}
		last = label
	}
	if _, err := netip.ParseAddr(name); err != nil && looksNumeric(last) {
		return "", refuse(CodeInvalidHost, "Write an IPv4 address as four decimal numbers from 0 to 255, without leading zeros.")
	}
	return name, nil
}

func validLabel(label string) bool {
	return label != "" && len(label) <= maxLabel && label[0] != '-' && label[len(label)-1] != '-' &&
		strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
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
