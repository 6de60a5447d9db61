// Package webhooks owns the endpoints of webhooks: events, the subscriptions that receive them, the deliveries with their attempts,
// and their counts. It has no routes and no SQL. It does not check callers: the server decides who may call an endpoint.
package webhooks

import (
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Endpoints are the endpoints. All fields are required.
type Endpoints struct {
	Store  Store
	Tester Tester
	// TestTimeout is how long the attempt of a test may take.
	TestTimeout time.Duration
	// SentHeaders returns the headers of an attempt's request, with masked signatures.
	SentHeaders func(webhook.Attempt) http.Header
	// HeaderPrefix is the prefix of Keyhook's headers in deliveries, without the hyphen that follows it.
	HeaderPrefix string
	CheckURL     func(raw string) (canonical string, err error) // of egress.Policy; returns an *egress.URLError
	// Stopping is closed when the server stops.
	Stopping <-chan struct{}
}

// OfSubscription returns the handler of a path with a subscription, which may have the external id instead of the id. do gets the id.
func (h Endpoints) OfSubscription(do func(x *exchange.Exchange, id string) error) func(*exchange.Exchange) error {
	return func(x *exchange.Exchange) error {
		id, err := h.pathSubscription(x)
		if err != nil {
			return err
		}
		return do(x, id)
	}
}

func (h Endpoints) pathSubscription(x *exchange.Exchange) (string, error) {
	return x.ResolveID(x.Path.Value("id"), access.SubscriptionID, h.Store.SubscriptionID)
}

// readSubscription reads the id or the external id of the subscription that the query names; empty if it names none.
func readSubscription(q *form.Query) string {
	return q.Matching("subscription_id", "must be the id or the external id of a subscription", access.SubscriptionID.MayName)
}

func (h Endpoints) resolveSubscription(x *exchange.Exchange, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return x.ResolveID(text, access.SubscriptionID, h.Store.SubscriptionID)
}
