// Package redact owns the one text type that never prints itself. It does not know which secrets its texts are.
package redact

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Text is a secret. Every way to print, log or marshal it gives "[redacted]"; the text leaves only through Reveal. The zero value is no
// text. Types of secrets embed Text. Two Texts are equal under == only if one is a copy of the other. So == does not compare secrets.
type Text struct {
	// fmt calls no method of a value in an unexported field, nor for the verb %p. It prints the fields then: an address here.
	raw *string
}

// New hides a text. An empty text gives the zero value.
func New(text string) Text {
	if text == "" {
		return Text{}
	}
	return Text{&text}
}

// IsZero reports whether there is no text.
func (t Text) IsZero() bool { return t.raw == nil }

// Reveal returns the text, empty for the zero value. Call it only where the secret is used, stored or shown once.
func (t Text) Reveal() string {
	if t.raw == nil {
		return ""
	}
	return *t.raw
}

// Format redacts for every verb, also for those that do not call String.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String redacts.
func (t Text) String() string { return redacted }

// GoString redacts.
func (t Text) GoString() string { return redacted }

// LogValue redacts.
func (t Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText redacts, also in JSON.
func (t Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }
