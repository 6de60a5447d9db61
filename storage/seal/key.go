package seal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

const (
	keySize  = 32
	redacted = "[redacted]"
)

// ErrKey says that a text is no encryption key. The error of ParseKey wraps it and says how to make one.
var ErrKey = errors.New("not an encryption key")

// Key is an encryption key of 32 bytes. It redacts itself however it is printed, logged or marshalled; the text leaves
// through Reveal alone. The zero value is no key. Keys are compared by ID.
//
// The bytes are behind a function because fmt calls no method of ours for an unexported field of somebody's struct, nor
// for the verb p, and would follow a pointer: of a function it has nothing to show but the address.
type Key struct {
	bytes func() []byte
}

// NewKey makes a key out of crypto/rand, which cannot fail.
func NewKey() Key {
	b := make([]byte, keySize)
	rand.Read(b)
	return Key{func() []byte { return b }}
}

// ParseKey reads 32 bytes written as base64, in the standard or the URL alphabet, padded or not, or as 64 hex digits;
// white space around them is ignored. Any other text gives ErrKey, which never repeats it.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	encodings := []func(string) ([]byte, error){hex.DecodeString}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		encodings = append(encodings, e.Strict().DecodeString)
	}
	for _, decode := range encodings {
		b, err := decode(text)
		if err != nil || len(b) != keySize || strings.ContainsAny(text, "\r\n") {
			continue
		}
		if !bytes.Equal(b, make([]byte, keySize)) { // zeros are a variable that nobody set, not a key
			return Key{func() []byte { return b }}, nil
		}
	}
	return Key{}, fmt.Errorf("%w: it must be 32 random bytes in base64, or as 64 hex digits; make one with: openssl rand -base64 32", ErrKey)
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.bytes == nil }

// ID returns the name of the key: 8 hex digits of a hash of it. It is in every text that the key has sealed and says
// nothing about the key. It panics for the zero value, as Reveal does.
func (k Key) ID() string {
	sum := sha256.Sum256(append([]byte("keyhook key id v1\x00"), k.bytes()...))
	return hex.EncodeToString(sum[:idSize/2])
}

// Reveal returns the key as padded base64, as ParseKey reads it. It is meant for the key file.
func (k Key) Reveal() string { return base64.StdEncoding.EncodeToString(k.bytes()) }

// Format redacts whatever the verb, those that look past String included.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// String redacts.
func (k Key) String() string { return redacted }

// GoString redacts.
func (k Key) GoString() string { return redacted }

// LogValue redacts.
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText redacts, and with it JSON.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }
