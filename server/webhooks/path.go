package webhooks

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// The nouns in the text of a 404, as in the store.
const (
	aSubscription = "subscription"
	anEvent       = "event"
	anAttempt     = "attempt"
)

// subscriptionNames is the part of the store that finds a subscription by its external id.
type subscriptionNames interface {
	SubscriptionID(ctx context.Context, organization int64, externalID string) (string, error)
}

// pathSubscription returns the id of the subscription in the path, which may have the external id instead.
func pathSubscription(x *exchange.Exchange, store subscriptionNames) (string, error) {
	return x.ResolveID(x.Path.Value("id"), access.SubscriptionID, aSubscription, store.SubscriptionID)
}

// readSubscription reads the id or the external id of the subscription that the query names; empty if it names none.
func readSubscription(q *form.Query) string {
	return q.Matching("subscription_id", "must be the id or the external id of a subscription", access.SubscriptionID.MayName)
}

// resolveSubscription returns the id of what readSubscription has read.
func resolveSubscription(x *exchange.Exchange, store subscriptionNames, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return x.ResolveID(text, access.SubscriptionID, aSubscription, store.SubscriptionID)
}

// subscriptionForm returns the id of the subscription in the path, and the body, which may be empty.
func subscriptionForm(x *exchange.Exchange, store subscriptionNames) (id string, f *form.Form, err error) {
	if id, err = pathSubscription(x, store); err != nil {
		return "", nil, err
	}
	f, err = x.OptionalForm()
	return id, f, err
}

// pathAttempt returns the ids of the subscription and of the attempt in the path.
func pathAttempt(x *exchange.Exchange, store subscriptionNames) (subscription, attempt string, err error) {
	if subscription, err = pathSubscription(x, store); err != nil {
		return "", "", err
	}
	attempt, err = x.Path.ID("attempt_id", access.AttemptID, anAttempt)
	return subscription, attempt, err
}
