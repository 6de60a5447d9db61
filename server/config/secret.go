package config

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a setting that nobody may read back. It redacts itself wherever it is printed, logged or marshalled; the
// text leaves through Reveal alone. The zero value is no secret.
type Secret struct {
	text string
}

// NewSecret wraps a text. It checks nothing: Config.Validate does.
func NewSecret(text string) Secret { return Secret{text} }

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == "" }

// Reveal returns the text, for the one place that uses it.
func (s Secret) Reveal() string { return s.text }

// Format redacts for every verb, those that would go past String included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String redacts.
func (s Secret) String() string { return redacted }

// LogValue redacts.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText redacts, and with it JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
