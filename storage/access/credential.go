package access

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"log/slog"
	"regexp"
	"strings"
)

// TokenPrefix begins every access token, as "kat_…"; the prefix of API keys is a setting.
const TokenPrefix = "kat"

// The form of a credential: prefix, underscore, 30 random characters, 6 of checksum. 30 characters of base62 are 178
// bits, so a plain SHA-256 is enough to store it by.
const (
	randomChars   = 30
	checksumChars = 6
	shownChars    = 6 // of the random part, in a display prefix
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	redacted      = "[redacted]"
)

// Digest is the SHA-256 of a whole credential: all that is stored of one.
type Digest [sha256.Size]byte

// Credential is a raw API key or access token. It redacts itself wherever it is printed, logged or marshalled; the raw
// text leaves through Reveal alone.
type Credential struct {
	raw string
}

// Mint makes a credential with the given prefix out of crypto/rand, which cannot fail.
func Mint(prefix string) Credential {
	body := make([]byte, 0, len(prefix)+1+randomChars+checksumChars)
	body = append(append(body, prefix...), '_')
	for len(body) < len(prefix)+1+randomChars {
		var pool [64]byte
		rand.Read(pool[:])
		for _, b := range pool {
			// 248 is the largest multiple of 62 in a byte: what lies above would favour the first characters.
			if b < 248 && len(body) < len(prefix)+1+randomChars {
				body = append(body, base62[b%62])
			}
		}
	}
	return Credential{string(appendChecksum(body, body))}
}

var credentialForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,15}_[0-9A-Za-z]{36}$`)

// Parse reads a credential of the form that Mint gives, whatever its prefix, so that keys outlive a change of the
// setting. ok is false where the form or the checksum is wrong: such a text was never minted and needs no look-up.
func Parse(raw string) (c Credential, ok bool) {
	if len(raw) > 64 || !credentialForm.MatchString(raw) {
		return Credential{}, false
	}
	cut := len(raw) - checksumChars
	if string(appendChecksum(nil, []byte(raw[:cut]))) != raw[cut:] {
		return Credential{}, false
	}
	return Credential{raw}, true
}

// Opaque wraps a token of any form, as a self-hoster may set for the first start. ok is false unless it is 20 to 200
// visible ASCII characters.
func Opaque(raw string) (c Credential, ok bool) {
	if len(raw) < 20 || len(raw) > 200 {
		return Credential{}, false
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] > '~' {
			return Credential{}, false
		}
	}
	return Credential{raw}, true
}

// Prefix returns what stands before the first underscore; empty where there is none.
func (c Credential) Prefix() string {
	prefix, _, found := strings.Cut(c.raw, "_")
	if !found {
		return ""
	}
	return prefix
}

// Digest returns the SHA-256 of the whole credential.
func (c Credential) Digest() Digest { return sha256.Sum256([]byte(c.raw)) }

// Display returns enough of the credential to recognize it and too little to rebuild it: the prefix, six characters and
// an ellipsis. Of an opaque token it shows no character.
func (c Credential) Display() string {
	if _, minted := Parse(c.raw); !minted {
		return "…"
	}
	return c.raw[:strings.IndexByte(c.raw, '_')+1+shownChars] + "…"
}

// Reveal returns the raw text. It is meant for the one response that shows it.
func (c Credential) Reveal() string { return c.raw }

// String redacts.
func (c Credential) String() string { return redacted }

// GoString redacts.
func (c Credential) GoString() string { return redacted }

// LogValue redacts.
func (c Credential) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText redacts, and with it JSON.
func (c Credential) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// appendChecksum appends the CRC-32 (IEEE) of body as six base62 digits, most significant first.
func appendChecksum(dst, body []byte) []byte {
	sum := crc32.ChecksumIEEE(body)
	var digits [checksumChars]byte
	for i := range digits {
		digits[checksumChars-1-i] = base62[sum%62]
		sum /= 62
	}
	return append(dst, digits[:]...)
}
