package webhook

import (
	"crypto/rand"
	"encoding/base64"
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

// Rotation says how to replace a signing secret.
type Rotation struct {
	Overlap time.Duration // how long the old secret also signs; may be 0
	Force   bool          // ends the overlap of the previous rotation, if it has not ended
}
