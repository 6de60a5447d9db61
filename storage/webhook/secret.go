package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// SecretPrefix begins every signing secret, as Standard Webhooks has it.
const SecretPrefix = "whsec_"

const redacted = "[redacted]"

// Secret is a subscription's signing secret. It redacts itself wherever it is printed, logged or marshalled; the text
// leaves through Reveal alone. The zero value is no secret.
//
// The text is behind a pointer because fmt calls no method of a value in an unexported field, but prints what is in it.
type Secret struct {
	text *string
}

// NewSecret makes a secret: the prefix and the padded standard base64 of 32 random bytes, so that the libraries of both
// signature schemes take it as it is.
func NewSecret() Secret {
	var random [32]byte
	rand.Read(random[:])
	return KnownSecret(SecretPrefix + base64.StdEncoding.EncodeToString(random[:]))
}

// KnownSecret wraps a secret that was kept.
func KnownSecret(text string) Secret { return Secret{&text} }

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Reveal returns the text, for signing, sealing, and the one response that shows it; empty for no secret.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format redacts for every verb, those that pass by String included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String redacts.
func (s Secret) String() string { return redacted }

// GoString redacts.
func (s Secret) GoString() string { return redacted }

// LogValue redacts.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText redacts, and with it JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Rotation is how a signing secret is replaced.
type Rotation struct {
	Overlap time.Duration // how long the old secret signs beside the new one; 0 is not at all
	Force   bool          // ends the overlap of the rotation before, if it still lasts
}
