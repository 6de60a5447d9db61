package config

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a setting that nobody may read back. It redacts itself wherever it is printed, logged or marshalled; the
// text leaves through Reveal alone. The zero value is no secret.
//
// The text is behind a pointer because fmt calls no method of ours for an unexported field of somebody's struct: of a
// pointer it shows the address.
type Secret struct {
	text *string
}

// NewSecret wraps a text; an empty one is no secret. It checks nothing: Config.Validate does.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Reveal returns the text, empty where there is none, for the one place that uses it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format redacts for every verb, those that would go past String included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String redacts.
func (s Secret) String() string { return redacted }

// LogValue redacts.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText redacts, and with it JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
