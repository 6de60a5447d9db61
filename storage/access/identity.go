package access

import (
	"encoding/base64"
	"strings"
)

// maxForeign limits a token of another issuer, in bytes. Some tokens name every group of their user, but the token
// must fit into a request header.
const maxForeign = 8 << 10

// Identity is what a trusted issuer says about the holder of its token.
type Identity struct {
	Subject      string // the issuer's permanent id of the holder
	Email        string // empty unless the issuer has verified it
	Organization string // its id or external id; empty if the issuer names none
}

// LooksForeign reports whether raw has the form of a token that another issuer has signed (a JWT, RFC 7519): three parts in
// base64 with dots between them, of which the first is a JSON object. Tokens of Keyhook do not look like this.
func LooksForeign(raw string) bool {
	if strings.Count(raw, ".") != 2 {
		return false
	}
	head, _, _ := strings.Cut(raw, ".")
	// 16 characters are 12 bytes: enough to see the brace after some white space.
	b, err := base64.RawURLEncoding.DecodeString(head[:min(len(head), 16)])
	return err == nil && strings.HasPrefix(strings.TrimLeft(string(b), " \t\r\n"), "{")
}

// Foreign wraps a token that LooksForeign. ok is false if it is too long or has a character that no such token has.
func Foreign(raw string) (c Credential, ok bool) {
	if len(raw) > maxForeign || strings.IndexFunc(raw, func(r rune) bool {
		return !('0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || r == '-' || r == '_' || r == '.')
	}) >= 0 {
		return Credential{}, false
	}
	return credential(raw), true
}
