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

// pathSubscription returns the id of the subscription in the path, which may have the external id instead. An id is not looked up
// here; the handler does that.
func pathSubscription(x *exchange.Exchange, store subscriptionNames) (string, error) {
	text := x.Path.Value("id")
	switch {
	case access.SubscriptionID.Valid(text):
		return text, nil
	case access.LooksLikeID(text):
		return "", exchange.Missing(aSubscription, text)
	}
	return store.SubscriptionID(x.Request.Context(), x.Organization(), text)
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
