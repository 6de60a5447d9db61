package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/redact"
)

// SecretPrefix begins every signing secret, as Standard Webhooks requires.
const SecretPrefix = "whsec_"

// Secret is a subscription's signing secret. The zero value is no secret.
type Secret struct{ redact.Text }

// NewSecret makes a secret: the prefix, and 32 random bytes in padded standard base64. The libraries of both signature
// schemes accept this form.
func NewSecret() Secret {
	var random [32]byte
	rand.Read(random[:])
	return KnownSecret(SecretPrefix + base64.StdEncoding.EncodeToString(random[:]))
}

// KnownSecret wraps a stored secret.
func KnownSecret(text string) Secret { return Secret{redact.New(text)} }

// The length of an imported secret, in characters.
const (
	MinSecret = 24
	MaxSecret = 256
)

// ValidSecret reports whether a text of MinSecret to MaxSecret characters can be an imported secret: visible ASCII and, behind
// SecretPrefix, padded standard base64. The libraries of Standard Webhooks decode that part.
func ValidSecret(text string) bool {
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	encoded, found := strings.CutPrefix(text, SecretPrefix)
	if !found {
		return true
	}
	_, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return err == nil
}

// OrNew returns the secret, or a new one for the zero value.
func (s Secret) OrNew() Secret {
	if s.IsZero() {
		return NewSecret()
	}
	return s
}

// Rotation says how to replace a signing secret.
type Rotation struct {
	Secret  Secret        // an imported secret; the zero value makes one
	Overlap time.Duration // how long the old secret also signs; may be 0
	Force   bool          // ends the overlap of the previous rotation, if it has not ended
}
