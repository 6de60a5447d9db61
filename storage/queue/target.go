package queue

import (
	"context"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// SubscriptionIn returns a subscription as a transaction sees it. Faults: NotFound.
func (q *Queue) SubscriptionIn(now *sqlite.Tx, organization int64, id string) (webhook.Subscription, error) {
	hold, err := q.o.Memory.with(now).hold()
	if err != nil {
		return webhook.Subscription{}, err
	}
	return q.o.History.ReadSubscription(now, organization, id, hold)
}

// receiver is SubscriptionIn for what only deliveries have. Faults: Conflict if the subscription has no URL.
func (q *Queue) receiver(t *tx, organization int64, id string) (webhook.Subscription, error) {
	sub, err := q.SubscriptionIn(t.Tx, organization, id)
	if err == nil && sub.URL == "" {
		err = fault.New(fault.Conflict, "no_url", "The subscription has no URL, so nothing is sent to it. A program reads its events from its feed.")
	}
	return sub, err
}

// Target returns where and how to send the deliveries of a subscription now. If the secret or the own headers cannot be
// decrypted, Unusable says so. Then the attempts of that subscription fail, and the others continue. Faults: NotFound.
func (q *Queue) Target(ctx context.Context, subscription int64) (webhook.Target, error) {
	return q.target(q.o.Reads.In(ctx), subscription)
}

type targetRow struct {
	webhook.Subscription
	Organization  int64  `db:"organization_id"`
	Sealed        []byte `db:"secret"`
	Previous      []byte `db:"previous_secret"`
	PreviousUntil int64  `db:"previous_until"`
	Headers       []byte `db:"headers"`
}

func (q *Queue) target(from sqlite.Reader, subscription int64) (webhook.Target, error) {
	row, err := sqlite.One[targetRow](from, "subscription", `
		SELECT `+history.SubscriptionColumns+`, s.organization_id, s.secret, s.previous_secret, s.previous_until,
		       `+delivery.Deleted+` AS deleted, (SELECT sealed FROM subscription_headers WHERE subscription_id = s.id) AS headers
		FROM subscriptions s`+history.SubscriptionJoins+`
		WHERE s.id = ?`, subscription)
	if err != nil {
		return webhook.Target{}, err
	}
	row.QueueHeld, row.ProbedEvery = q.Hold() != nil, q.policy.ProbeDisabled
	target := webhook.Target{
		Subscription: row.RowID, ID: row.ID, Organization: row.Organization, OrganizationID: row.OrganizationID, URL: row.URL,
		PreviousUntil: row.PreviousUntil, RateLimitPerSecond: row.RateLimitPerSecond, Ordered: row.Ordered, Gate: row.Gate,
	}
	if row.Deleted {
		return target, nil // it has no secret
	}
	text, err := q.o.Keys.Open(row.Sealed, row.ID)
	if err != nil {
		target.Unusable = "the signing secret cannot be decrypted; rotate the secret"
		q.log.Error("a signing secret cannot be decrypted; rotate it, or restore the earlier encryption key", "subscription", row.ID, "error", err)
		return target, nil
	}
	target.Secret = webhook.KnownSecret(string(text))
	if len(row.Previous) > 0 {
		if text, err := q.o.Keys.Open(row.Previous, row.ID); err == nil {
			target.Previous = webhook.KnownSecret(string(text))
		}
	}
	if target.Headers, err = (encryption.SealedHeaders{Names: row.HeaderNames, Sealed: row.Headers}).Open(q.o.Keys, row.ID); err != nil {
		target.Unusable = "the request headers of the subscription cannot be decrypted; set them again"
		q.log.Error("request headers cannot be decrypted; set them again, or restore the earlier encryption key", "subscription", row.ID, "error", err)
	}
	return target, nil
}
