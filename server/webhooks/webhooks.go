// Package webhooks owns the endpoints of webhooks: events, the subscriptions that receive them, the deliveries with their attempts,
// and their counts. It has no routes and no SQL. It does not check callers: the server decides who may call an endpoint.
package webhooks

import (
	"context"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Store is everything that the endpoints ask of the store. Each file declares its own part.
type Store interface {
	subscriptionStore
	deliveryStore
	replayStore
	previewStore
	feedStore
	recoveryStore
	eventStore
	eventTypeStore
	explanationStore
	statsStore
	backlogStore
}

// Options configure the endpoints. All are required.
type Options struct {
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

// Handlers has the handlers of every resource. Each one has only what it needs.
type Handlers struct {
	Subscriptions Subscriptions
	Deliveries    Deliveries
	Replays       Replays
	Previews      Previews
	Feeds         Feeds
	Recoveries    Recoveries
	Stats         Stats
	Backlog       Backlog
	Events        Events
	EventTypes    EventTypes
	Explanations  Explanations
}

// New returns the handlers.
func New(o Options) Handlers {
	return Handlers{
		Subscriptions: Subscriptions{o.Store, o.CheckURL, o.HeaderPrefix},
		Deliveries:    Deliveries{o.Store, o.SentHeaders, o.Tester, o.TestTimeout},
		Replays:       Replays{o.Store},
		Previews:      Previews{o.Store},
		Feeds:         Feeds{o.Store, sender.New(sender.Options{HeaderPrefix: o.HeaderPrefix}), o.Stopping},
		Recoveries:    Recoveries{o.Store},
		Stats:         Stats{o.Store},
		Backlog:       Backlog{o.Store},
		Events:        Events{o.Store},
		EventTypes:    EventTypes{o.Store},
		Explanations:  Explanations{o.Store},
	}
}

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

// pathAttempt returns the ids of the subscription and of the attempt in the path.
func pathAttempt(x *exchange.Exchange, store subscriptionNames) (subscription, attempt string, err error) {
	if subscription, err = pathSubscription(x, store); err != nil {
		return "", "", err
	}
	attempt, err = x.Path.ID("attempt_id", access.AttemptID, anAttempt)
	return subscription, attempt, err
}
