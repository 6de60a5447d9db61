package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/keyhook/keyhook/storage/redact"
)

// SecretPrefix begins every signing secret, as Standard Webhooks has it.
const SecretPrefix = "whsec_"

// Secret is a subscription's signing secret. The zero value is no secret.
type Secret struct{ redact.Text }

// NewSecret makes a secret: the prefix and the padded standard base64 of 32 random bytes, so that the libraries of both
// signature schemes take it as it is.
func NewSecret() Secret {
	var random [32]byte
	rand.Read(random[:])
	return KnownSecret(SecretPrefix + base64.StdEncoding.EncodeToString(random[:]))
}

// KnownSecret wraps a stored secret.
func KnownSecret(text string) Secret { return Secret{redact.New(text)} }

// Rotation is how a signing secret is replaced.
type Rotation struct {
	Overlap time.Duration // how long the old secret signs beside the new one; 0 is not at all
	Force   bool          // ends the overlap of the rotation before, if it still lasts
}
