package access

import (
	"encoding/base64"
	"strings"
)

// maxForeign bounds a token of another issuer, in bytes: some name every group of their user, and all have to fit into a
// request's header.
const maxForeign = 8 << 10

// Identity is what an issuer that is trusted says of whoever holds its token.
type Identity struct {
	Subject      string // whom the issuer means, for good
	Email        string // empty unless the issuer has verified it
	Organization string // the id or the external id of one; empty where the issuer names none
}

// LooksForeign reports whether raw has the form of a token that another issuer has signed (a JWT, RFC 7519): three parts
// in base64 with dots between, of which the first is a JSON object. A token that an operator chose has none of it.
func LooksForeign(raw string) bool {
	if strings.Count(raw, ".") != 2 {
		return false
	}
	head, _, _ := strings.Cut(raw, ".")
	// 16 characters are 12 bytes: enough to see the brace behind some white space.
	b, err := base64.RawURLEncoding.DecodeString(head[:min(len(head), 16)])
	return err == nil && strings.HasPrefix(strings.TrimLeft(string(b), " \t\r\n"), "{")
}

// Foreign wraps a token that LooksForeign. ok is false where it is too long, or holds what such a token cannot.
func Foreign(raw string) (c Credential, ok bool) {
	if len(raw) > maxForeign || strings.IndexFunc(raw, func(r rune) bool {
		return !('0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || r == '-' || r == '_' || r == '.')
	}) >= 0 {
		return Credential{}, false
	}
	return credential(raw), true
}
