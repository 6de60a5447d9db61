package access

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"

	"github.com/keyhook/keyhook/storage/redact"
)

// TokenPrefix begins every access token, as "kat_…"; the prefix of API keys is a setting.
const TokenPrefix = "kat"

// The form of a credential: prefix, underscore, 30 random characters, 6 of checksum. 30 characters of base62 are 178
// bits, so a plain SHA-256 is enough to store it by.
const (
	randomChars   = 30
	checksumChars = 6
	shownChars    = 6  // of the random part, in a display prefix
	maxPrefix     = 16 // characters
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Digest is the SHA-256 of a whole credential: all that is stored of one.
type Digest [sha256.Size]byte

// Credential is a raw API key, access token or session cookie. Credentials are compared by their digests, not with ==. The
// zero value is no credential.
type Credential struct{ redact.Text }

func credential(raw string) Credential { return Credential{redact.New(raw)} }

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
	sum := checksum(string(body))
	return credential(string(append(body, sum[:]...)))
}

// Parse reads a credential of the form that Mint gives, whatever its prefix, so that keys outlive a change of the
// setting. ok is false where the form or the checksum is wrong: such a text was never minted and needs no look-up.
func Parse(raw string) (c Credential, ok bool) {
	under := len(raw) - checksumChars - randomChars - 1
	if under < 1 || under > maxPrefix || raw[under] != '_' || !lowerWord(raw[:under]) || !isBase62(raw[under+1:]) {
		return Credential{}, false
	}
	cut := len(raw) - checksumChars
	if sum := checksum(raw[:cut]); string(sum[:]) != raw[cut:] {
		return Credential{}, false
	}
	return credential(raw), true
}

// lowerWord reports whether s is lower-case letters and digits, beginning with a letter.
func lowerWord(s string) bool {
	for i, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func isBase62(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
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
	return credential(raw), true
}

// Prefix returns what stands before the first underscore; empty where there is none.
func (c Credential) Prefix() string {
	prefix, _, found := strings.Cut(c.Reveal(), "_")
	if !found {
		return ""
	}
	return prefix
}

// Digest returns the SHA-256 of the whole credential.
func (c Credential) Digest() Digest {
	var buffer [64]byte // a longer one, that an operator has chosen, goes to the heap
	return sha256.Sum256(append(buffer[:0], c.Reveal()...))
}

// Display returns enough of the credential to recognize it and too little to rebuild it: the prefix, six characters and
// an ellipsis. Of an opaque token it shows no character.
func (c Credential) Display() string {
	raw := c.Reveal()
	if _, minted := Parse(raw); !minted {
		return "…"
	}
	return raw[:strings.IndexByte(raw, '_')+1+shownChars] + "…"
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
