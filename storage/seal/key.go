package seal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

const keySize = 32

// ErrKey says that a text is not an encryption key. The error of ParseKey wraps it, and its fault.Advice says how to make one.
var ErrKey = errors.New("not an encryption key")

// Key is an encryption key of 32 bytes. Reveal returns it as padded base64, the form that ParseKey reads and
// the key file contains. Keys are compared by ID. The zero value is no key.
type Key struct{ redact.Text }

func newKey(b []byte) Key { return Key{redact.New(base64.StdEncoding.EncodeToString(b))} }

// NewKey makes a key from crypto/rand, which cannot fail.
func NewKey() Key {
	b := make([]byte, keySize)
	rand.Read(b)
	return newKey(b)
}

// ParseKey reads 32 bytes in base64, in the standard or the URL alphabet, with or without padding, or as 64 hex digits. It
// ignores white space around them. Any other text gives ErrKey, and the error does not repeat the text.
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
		if !bytes.Equal(b, make([]byte, keySize)) { // zeros come from a variable that was never set
			return newKey(b), nil
		}
	}
	return Key{}, fault.Advise(fmt.Errorf("%w: it must be 32 random bytes in base64, or as 64 hex digits", ErrKey),
		"make one with: openssl rand -base64 32")
}

// ID returns the name of the key: 8 hex digits of a hash of it. Every text that the key has sealed carries the ID, which
// tells nothing about the key. ID panics for the zero value.
func (k Key) ID() string {
	sum := sha256.Sum256(append([]byte("keyhook key id v1\x00"), k.bytes()...))
	return hex.EncodeToString(sum[:idSize/2])
}

func (k Key) bytes() []byte {
	b, err := base64.StdEncoding.DecodeString(k.Reveal())
	if err != nil || len(b) != keySize {
		panic("seal: the zero key")
	}
	return b
}
