package server

import (
	"sync/atomic"

	"github.com/keyhook/keyhook/server/form"
)

// handlers has the handlers of every resource. Each one has only what it needs.
type handlers struct {
	health        health
	metrics       func(*exchange) error // nil if there are none
	description   description
	documents     documents
	whoami        whoami
	sessions      sessions
	forwardAuth   forwardAuth
	verification  verification
	explanation   explanation
	keys          keys
	subscriptions subscriptions
	deliveries    deliveries
	replays       replays
	stats         stats
	events        events
	audit         audit
	queue         queue
	backups       backups
	clock         clocks
	plans         plans
	permissions   permissions
	roles         roles
	organizations organizations
	members       members
	users         users
	tokens        tokens
}

// newHandlers makes the handlers. base is the path before every path that a response shows.
func newHandlers(o Options, base string, auth *authenticator, router *router, draining *atomic.Bool) *handlers {
	lookup := form.Lookup{Store: o.Store}
	h := &handlers{
		health:        health{o.Store, o.Deliveries, o.Checks, draining, &cachedReadiness{lock: make(chan struct{}, 1)}},
		description:   newDescription(o.BaseURL),
		documents:     newDocuments(base),
		whoami:        whoami{o.Store},
		sessions:      sessions{o.Store, auth, whoami{o.Store}},
		forwardAuth:   forwardAuth{auth, o.Store},
		verification:  verification{auth.checker, lookup},
		explanation:   explanation{auth.checker, router, o.Store, lookup},
		keys:          keys{o.Store, lookup, o.KeyPrefix},
		subscriptions: subscriptions{o.Store, o.CheckURL},
		deliveries:    deliveries{o.Store, o.Tester, o.TestTimeout, draining},
		replays:       replays{o.Store},
		stats:         stats{o.Store},
		events:        events{o.Store},
		audit:         audit{o.Store},
		queue:         queue{o.Store},
		backups:       backups{o.Store},
		clock:         clocks{o.Store},
		plans:         plans{o.Store},
		permissions:   permissions{o.Store},
		roles:         roles{o.Store, lookup},
		organizations: organizations{o.Store, lookup},
		members:       members{o.Store, lookup},
		users:         users{o.Store},
		tokens:        tokens{o.Store, lookup},
	}
	if o.Metrics != nil {
		h.metrics = func(x *exchange) error {
			o.Metrics.ServeHTTP(x, x.request)
			return nil
		}
	}
	return h
}
