package subscription

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// sealHeaders encrypts the new own headers of a subscription. A header without a value keeps the stored one. Faults: Invalid if there
// is none, or if it cannot be decrypted; Limited if the plan allows no more bytes today; Conflict if the headers of all subscriptions
// of the organization take too many bytes.
func (s *Subscriptions) sealHeaders(t *sqlite.Tx, organization int64, sub webhook.Subscription, headers []webhook.Header) ([]byte, error) {
	headers, err := s.keepHeaders(t, sub, headers)
	if err != nil || len(headers) == 0 {
		return nil, err
	}
	sealed, err := encryption.SealHeaders(s.keys, sub.ID, headers)
	if err != nil {
		return nil, err
	}
	if err := s.memory.Quotas.Require(t, organization, quota.PerChange+len(sealed)); err != nil {
		return nil, err
	}
	return sealed, requireHeaderBytes(t, organization, sub.RowID, len(sealed))
}

// setHeaders replaces the own headers of a subscription. sealed is from sealHeaders.
func (s *Subscriptions) setHeaders(t *sqlite.Tx, organization int64, sub *webhook.Subscription, headers []webhook.Header, sealed []byte) error {
	sub.HeaderNames, sub.Health = webhook.HeaderNames{}, sub.Renew()
	if len(headers) == 0 {
		return dropHeaders(t, sub.RowID)
	}
	for _, h := range headers {
		sub.HeaderNames = append(sub.HeaderNames, h.Name)
	}
	s.memory.Quotas.Count(t, organization, len(sealed))
	return t.Exec(`
		INSERT INTO subscription_headers (subscription_id, names, changed_at, sealed) VALUES (?, ?, ?, ?)
		ON CONFLICT (subscription_id) DO UPDATE SET names = excluded.names, changed_at = excluded.changed_at, sealed = excluded.sealed`,
		sub.RowID, sub.HeaderNames, t.Now(), sealed)
}

// maxHeaderBytes is what the sealed headers of all subscriptions of an organization may take. The dispatcher keeps the headers of a
// subscription in memory while it has deliveries.
const maxHeaderBytes = 4 << 20

// requireHeaderBytes refuses headers that need too many bytes together with those of the organization's other subscriptions.
// Faults: Conflict limit_reached.
func requireHeaderBytes(t *sqlite.Tx, organization, subscription int64, bytes int) error {
	var others int
	if err := t.Get(&others, `
		SELECT coalesce(sum(length(h.sealed)), 0)
		FROM subscriptions s INDEXED BY subscriptions_live CROSS JOIN subscription_headers h ON h.subscription_id = s.id
		WHERE s.organization_id = ? AND s.deleted_at IS NULL AND s.id != ?`, organization, subscription); err != nil {
		return fmt.Errorf("add up the headers of the organization: %w", err)
	}
	if others+bytes <= maxHeaderBytes {
		return nil
	}
	return fault.New(fault.Conflict, "limit_reached",
		"The headers of all subscriptions of the organization may take %d bytes together, encrypted, and these would make %d. Send shorter values, or remove headers of other subscriptions.",
		maxHeaderBytes, others+bytes)
}

// keepHeaders returns the headers with the stored values of those that have none.
func (s *Subscriptions) keepHeaders(t *sqlite.Tx, sub webhook.Subscription, headers []webhook.Header) ([]webhook.Header, error) {
	keeps := func(h webhook.Header) bool { return h.Value.IsZero() }
	if !slices.ContainsFunc(headers, keeps) {
		return headers, nil
	}
	row, err := sqlite.One[encryption.SealedHeaders](t, "headers",
		"SELECT names AS header_names, sealed AS headers FROM subscription_headers WHERE subscription_id = ?", sub.RowID)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, fmt.Errorf("read headers: %w", err)
	}
	stored, err := row.Open(s.keys, sub.ID)
	problem := "This header has no value to keep; send its value."
	if err != nil {
		s.log.Error("the request headers of a subscription cannot be decrypted; set them again, or restore the earlier encryption key", "subscription", sub.ID, "error", err)
		problem = "The value of this header cannot be decrypted; send it again."
	}
	headers = slices.Clone(headers)
	var problems []fault.Field
	for i, h := range headers {
		if !keeps(h) {
			continue
		}
		at := slices.IndexFunc(stored, func(o webhook.Header) bool { return strings.EqualFold(o.Name, h.Name) })
		if at < 0 {
			problems = append(problems, fault.Field{Field: "headers." + h.Name, Code: "missing", Message: problem})
			continue
		}
		headers[i].Value = stored[at].Value
	}
	return headers, fault.Fields(problems)
}

func dropHeaders(t *sqlite.Tx, subscription int64) error {
	return t.Exec("DELETE FROM subscription_headers WHERE subscription_id = ?", subscription)
}
