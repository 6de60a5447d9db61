package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Target returns where and how a subscription's deliveries are sent at present. A secret that cannot be unsealed is told
// in Unusable: the attempts fail with that, and the other subscriptions go on. Faults: NotFound.
func (s *Store) Target(ctx context.Context, subscription int64) (webhook.Target, error) {
	return s.target(func(dest any, text string, args ...any) error { return s.get(ctx, dest, text, args...) }, subscription)
}

// target is Target by whichever connection get reads from.
func (s *Store) target(get func(dest any, text string, args ...any) error, subscription int64) (webhook.Target, error) {
	var row struct {
		webhook.Subscription
		Organization  int64  `db:"organization_id"`
		Sealed        []byte `db:"secret"`
		Previous      []byte `db:"previous_secret"`
		PreviousUntil int64  `db:"previous_until"`
		Webhooks      bool   `db:"webhooks"`
		Deleted       bool   `db:"deleted"`
	}
	if err := get(&row, `
		SELECT `+subscriptionColumns+`, s.organization_id, s.secret, s.previous_secret, s.previous_until, p.webhooks, s.deleted_at IS NOT NULL AS deleted
		FROM subscriptions s JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id
		WHERE s.id = ?`, subscription); err != nil {
		return webhook.Target{}, missing(err, "subscription")
	}
	at := webhook.Target{
		Subscription: row.RowID, ID: row.ID, Organization: row.Organization, OrganizationID: row.OrganizationID, URL: row.URL,
		PreviousUntil: row.PreviousUntil, RateLimitPerSecond: row.RateLimitPerSecond, Health: row.Health,
		Open: row.Active() && row.Webhooks && !row.Deleted && s.Held() == nil,
	}
	text, err := s.keyRing.Open(row.Sealed, row.ID)
	if err != nil {
		at.Unusable = "the signing secret cannot be unsealed; rotate the secret"
		s.log.Error("signing secret cannot be unsealed; rotate it, or set encryption.key as it was", "subscription", row.ID, "error", err)
		return at, nil
	}
	at.Secret = webhook.KnownSecret(string(text))
	if len(row.Previous) > 0 {
		if text, err := s.keyRing.Open(row.Previous, row.ID); err == nil {
			at.Previous = webhook.KnownSecret(string(text))
		}
	}
	return at, nil
}
