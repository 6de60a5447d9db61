package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"

	"github.com/keyhook/keyhook/storage/redact"
)

// TokenPrefix begins every access token: "kat_…", and LinkPrefix the secret of every sign-in link. The prefix of API keys is a
// setting; DefaultKeyPrefix is its default.
const (
	TokenPrefix      = "kat"
	LinkPrefix       = "ksl"
	DefaultKeyPrefix = "svc"
)

// The form of a minted credential: prefix, underscore, 30 random characters, 6 characters of checksum. 30 characters of
// base62 are 178 bits, so the store can look a credential up by a plain SHA-256 of it.
const (
	randomChars   = 30
	checksumChars = 6
	shownChars    = 6  // of the random part, in a display prefix
	maxPrefix     = 16 // characters
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Digest is the SHA-256 of a whole credential. Only digests are stored.
type Digest [sha256.Size]byte

// Credential is a raw API key, access token, secret of a sign-in link or session cookie. Credentials are compared by their digests, not with ==. The
// zero value is no credential.
type Credential struct{ redact.Text }

func credential(raw string) Credential { return Credential{redact.New(raw)} }

// Mint makes a credential with the given prefix from crypto/rand, which cannot fail.
func Mint(prefix string) Credential {
	body := make([]byte, 0, len(prefix)+1+randomChars+checksumChars)
	body = append(append(body, prefix...), '_')
	for len(body) < len(prefix)+1+randomChars {
		var pool [64]byte
		rand.Read(pool[:])
		for _, b := range pool {
			// 248 is the largest multiple of 62 in a byte: larger bytes would favour the first characters.
			if b < 248 && len(body) < len(prefix)+1+randomChars {
				body = append(body, base62[b%62])
			}
		}
	}
	sum := checksum(string(body))
	return credential(string(append(body, sum[:]...)))
}

// ValidKeyPrefix reports whether s can be the prefix of a credential: a lower-case letter, and up to 15 lower-case letters and digits.
func ValidKeyPrefix(s string) bool {
	return s != "" && len(s) <= maxPrefix && s[0] >= 'a' &&
		!strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// LooksMinted reports whether raw has the form that Mint makes, and returns the prefix. It does not check the checksum.
func LooksMinted(raw string) (prefix string, ok bool) {
	under := len(raw) - checksumChars - randomChars - 1
	if under < 1 || raw[under] != '_' || !ValidKeyPrefix(raw[:under]) || strings.Trim(raw[under+1:], base62) != "" {
		return "", false
	}
	return raw[:under], true
}

// Pattern returns a regular expression for the credentials that Mint makes with these prefixes. It uses only what all secret scanners
// understand, and checks neither the checksum nor what stands around a credential.
func Pattern(prefixes ...string) string {
	return fmt.Sprintf("(?:%s)_[0-9A-Za-z]{%d}", strings.Join(prefixes, "|"), randomChars+checksumChars)
}

var word = regexp.MustCompile(`\w{36,}`)

// ShortenMinted returns a text in which every word that LooksMinted is cut to what Display shows.
func ShortenMinted(text string) string {
	return word.ReplaceAllStringFunc(text, func(w string) string {
		prefix, ok := LooksMinted(w)
		if !ok {
			return w
		}
		return shorten(prefix, w)
	})
}

// shorten cuts a credential behind its prefix and six more characters.
func shorten(prefix, raw string) string { return raw[:len(prefix)+1+shownChars] + "…" }

// Parse reads a credential of the form that Mint makes. It accepts any prefix, so keys stay valid when the setting changes.
// ok is false if the form or the checksum is wrong. Keyhook never minted such a text, so no lookup is needed.
func Parse(raw string) (c Credential, ok bool) {
	if _, ok := LooksMinted(raw); !ok {
		return Credential{}, false
	}
	cut := len(raw) - checksumChars
	if sum := checksum(raw[:cut]); string(sum[:]) != raw[cut:] {
		return Credential{}, false
	}
	return credential(raw), true
}

// Opaque wraps a token of any form, such as bootstrap.token. ok is false unless it is 20 to 200 visible ASCII characters.
func Opaque(raw string) (c Credential, ok bool) {
	if len(raw) < 20 || len(raw) > 200 || !IsVisible(raw) {
		return Credential{}, false
	}
	return credential(raw), true
}

// Prefix returns the text before the first underscore; empty if there is none.
func (c Credential) Prefix() string {
	raw := c.Reveal()
	return raw[:max(0, strings.IndexByte(raw, '_'))]
}

// Digest returns the SHA-256 of the whole credential.
func (c Credential) Digest() Digest {
	var buffer [64]byte // a longer token, which only an operator can choose, goes to the heap
	return sha256.Sum256(append(buffer[:0], c.Reveal()...))
}

// Display returns enough of the credential to recognize it and too little to rebuild it: the prefix, six characters and
// an ellipsis. It shows no character of an opaque token.
func (c Credential) Display() string {
	if _, minted := Parse(c.Reveal()); !minted {
		return "…"
	}
	return shorten(c.Prefix(), c.Reveal())
}

// ParseDisplay reads what Display returns for an API key. The ellipsis may be missing.
func ParseDisplay(text string) (display string, ok bool) {
	shown := strings.TrimSuffix(text, "…")
	prefix, random, _ := strings.Cut(shown, "_")
	return shown + "…", ValidKeyPrefix(prefix) && len(random) == shownChars && strings.Trim(random, base62) == ""
}

// checksum is the CRC-32 (IEEE) of body as six base62 digits, most significant first.
func checksum(body string) (digits [checksumChars]byte) {
	var buffer [maxPrefix + 1 + randomChars]byte
	sum := crc32.ChecksumIEEE(append(buffer[:0], body...))
	for i := range digits {
		digits[checksumChars-1-i] = base62[sum%62]
		sum /= 62
	}
	return digits
}

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
	if len(raw) > maxForeign || strings.Trim(raw, base62+"-_.") != "" {
		return Credential{}, false
	}
	return credential(raw), true
}
