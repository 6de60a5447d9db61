// Package webhooks owns the endpoints of webhooks: events, the subscriptions that receive them, the deliveries with their attempts,
// and their counts. It has no routes and no SQL. It does not check callers: the server decides who may call an endpoint.
package webhooks

import (
	"net/http"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Store is everything that the endpoints ask of the store. Each file declares its own part.
type Store interface {
	subscriptionStore
	deliveryStore
	replayStore
	recoveryStore
	eventStore
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
}

// Handlers has the handlers of every resource. Each one has only what it needs.
type Handlers struct {
	Subscriptions Subscriptions
	Deliveries    Deliveries
	Replays       Replays
	Recoveries    Recoveries
	Stats         Stats
	Backlog       Backlog
	Events        Events
	Explanations  Explanations
}

// New returns the handlers.
func New(o Options) Handlers {
	return Handlers{
		Subscriptions: Subscriptions{o.Store, o.CheckURL, o.HeaderPrefix},
		Deliveries:    Deliveries{o.Store, o.SentHeaders, o.Tester, o.TestTimeout},
		Replays:       Replays{o.Store},
		Recoveries:    Recoveries{o.Store},
		Stats:         Stats{o.Store},
		Backlog:       Backlog{o.Store},
		Events:        Events{o.Store},
		Explanations:  Explanations{o.Store},
	}
}
