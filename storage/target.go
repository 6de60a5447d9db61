package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Target returns where and how to send the deliveries of a subscription now. If the secret or the own headers cannot be
// decrypted, Unusable says so. Then the attempts of that subscription fail, and the others continue. Faults: NotFound.
func (q *Queue) Target(ctx context.Context, subscription int64) (webhook.Target, error) {
	return q.target(func(dest any, text string, args ...any) error { return q.reads.Get(ctx, dest, text, args...) }, subscription)
}

// target is Target with the connection of get.
func (q *Queue) target(get func(dest any, text string, args ...any) error, subscription int64) (webhook.Target, error) {
	var row struct {
		webhook.Subscription
		Organization  int64  `db:"organization_id"`
		Sealed        []byte `db:"secret"`
		Previous      []byte `db:"previous_secret"`
		PreviousUntil int64  `db:"previous_until"`
		Headers       []byte `db:"headers"`
	}
	if err := get(&row, `
		SELECT `+history.SubscriptionColumns+`, s.organization_id, s.secret, s.previous_secret, s.previous_until,
		       s.deleted_at IS NOT NULL OR o.closed_at IS NOT NULL AS deleted,
		       (SELECT sealed FROM subscription_headers WHERE subscription_id = s.id) AS headers
		FROM subscriptions s`+history.SubscriptionJoins+`
		WHERE s.id = ?`, subscription); err != nil {
		return webhook.Target{}, sqlite.Missing(err, "subscription")
	}
	row.QueueHeld, row.ProbedEvery = q.Hold() != nil, q.policy.ProbeDisabled
	target := webhook.Target{
		Subscription: row.RowID, ID: row.ID, Organization: row.Organization, OrganizationID: row.OrganizationID, URL: row.URL,
		PreviousUntil: row.PreviousUntil, RateLimitPerSecond: row.RateLimitPerSecond, Ordered: row.Ordered, Gate: row.Gate,
	}
	if row.Deleted {
		return target, nil // it has no secret
	}
	text, err := q.keyRing.Open(row.Sealed, row.ID)
	if err != nil {
		target.Unusable = "the signing secret cannot be decrypted; rotate the secret"
		q.log.Error("a signing secret cannot be decrypted; rotate it, or restore the earlier encryption key", "subscription", row.ID, "error", err)
		return target, nil
	}
	target.Secret = webhook.KnownSecret(string(text))
	if target.Headers, err = (encryption.SealedHeaders{Names: row.HeaderNames, Sealed: row.Headers}).Open(q.keyRing, row.ID); err != nil {
		target.Unusable = "the request headers of the subscription cannot be decrypted; set them again"
		q.log.Error("request headers cannot be decrypted; set them again, or restore the earlier encryption key", "subscription", row.ID, "error", err)
		return target, nil
	}
	if len(row.Previous) > 0 {
		if text, err := q.keyRing.Open(row.Previous, row.ID); err == nil {
			target.Previous = webhook.KnownSecret(string(text))
		}
	}
	return target, nil
}
