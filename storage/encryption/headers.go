package encryption

import (
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/webhook"
)

// headersOwner is the associated data of sealed headers: the subscription, and that the text is its headers. So nobody who can
// write the file can make a header out of a signing secret.
func headersOwner(subscription string) string { return subscription + ".headers" }

// SealHeaders seals the values of the own headers of a subscription.
func SealHeaders(ring *seal.Ring, subscription string, headers []webhook.Header) ([]byte, error) {
	values := make([]string, len(headers))
	for i, h := range headers {
		values[i] = h.Value.Reveal()
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	return ring.Seal(text, headersOwner(subscription)), nil
}

// SealedHeaders are the own headers of a subscription as they are stored.
type SealedHeaders struct {
	Names  webhook.HeaderNames `db:"header_names"`
	Sealed []byte              `db:"headers"` // empty: the subscription has none
}

// Open returns the headers of a subscription.
func (h SealedHeaders) Open(ring *seal.Ring, subscription string) ([]webhook.Header, error) {
	if len(h.Sealed) == 0 {
		return nil, nil
	}
	text, err := ring.Open(h.Sealed, headersOwner(subscription))
	if err != nil {
		return nil, err
	}
	var values []string
	if err := json.Unmarshal(text, &values); err != nil || len(values) != len(h.Names) {
		return nil, fmt.Errorf("%w: %d values for %d headers", seal.ErrDamaged, len(values), len(h.Names))
	}
	headers := make([]webhook.Header, len(values))
	for i, value := range values {
		headers[i] = webhook.Header{Name: h.Names[i], Value: redact.New(value)}
	}
	return headers, nil
}
