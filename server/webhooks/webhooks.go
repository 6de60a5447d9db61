// Package webhooks owns the endpoints of webhooks: events, the subscriptions that receive them, the deliveries with their attempts,
// and their counts. It has no routes and no SQL. It does not check callers: the server decides who may call an endpoint.
package webhooks

import (
	"context"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Endpoints are the endpoints. All fields are required.
type Endpoints struct {
	Store        Store
	Tester       Tester
	TestTimeout  time.Duration                                  // how long the attempt of a test may take
	SentHeaders  func(webhook.Attempt) http.Header              // of an attempt's request, with masked signatures
	HeaderPrefix string                                         // of Keyhook's headers in deliveries, without the hyphen that follows it
	CheckURL     func(raw string) (canonical string, err error) // of egress.Policy; returns an *egress.URLError
	Stopping     <-chan struct{}                                // closed when the server stops
}

// Store is everything that the endpoints ask of the store, by resource. A page has the newest first. Where it says so, the organization may
// be access.AllOrganizations, for those of all organizations.
type Store interface {
	SubscriptionID(ctx context.Context, organization int64, externalID string) (string, error)

	CreateSubscription(ctx context.Context, actor access.Actor, organization int64, c webhook.SubscriptionChange) (webhook.Subscription, webhook.Secret, error)
	// SubscriptionPage may list those of all organizations.
	SubscriptionPage(ctx context.Context, organization int64, f webhook.SubscriptionFilter) (access.Page[webhook.Subscription], error)
	Subscription(ctx context.Context, organization int64, id string) (webhook.Subscription, error)
	UpdateSubscription(ctx context.Context, actor access.Actor, organization int64, id string, c webhook.SubscriptionChange) (webhook.Subscription, error)
	DeleteSubscription(ctx context.Context, actor access.Actor, organization int64, id string) error
	// RotateSecret returns the new secret. The old one signs too during the overlap. Conflict during the overlap of an earlier
	// rotation, unless forced.
	RotateSecret(ctx context.Context, actor access.Actor, organization int64, id string, r webhook.Rotation) (webhook.Subscription, webhook.Secret, error)

	// LoggedSubscription returns the row id of a subscription, which may be deleted.
	LoggedSubscription(ctx context.Context, organization int64, id string) (int64, error)
	AttemptPage(ctx context.Context, organization int64, id string, f webhook.AttemptFilter) (webhook.AttemptPage, error)
	SentAttempt(ctx context.Context, organization int64, id, attempt string) (webhook.SentAttempt, error)
	Redeliver(ctx context.Context, actor access.Actor, organization int64, id, attempt string) error

	// EventRetention is how long events are kept; 0 means for ever.
	EventRetention() time.Duration
	Replay(ctx context.Context, actor access.Actor, organization int64, id string, r webhook.Replay) (webhook.Replayed, error)

	PreviewFilter(ctx context.Context, organization int64, types webhook.Types, f filter.Filter, withoutAudit bool) (webhook.Preview, error)

	Feed(ctx context.Context, organization int64, id string, r webhook.FeedRequest) (webhook.FeedPage, error)
	// AwaitEvents returns a channel that gets a token after an event of the organization was published, and is closed if the wait must end.
	AwaitEvents(organization int64) (published <-chan struct{}, leave func(), err error)

	// Recover activates a subscription and creates new deliveries of what ended exhausted since a time.
	Recover(ctx context.Context, actor access.Actor, organization int64, id string, r webhook.RecoveryRequest) (webhook.Recovery, error)
	// Discard drops pending deliveries of events from before a time; 0 drops all.
	Discard(ctx context.Context, actor access.Actor, organization int64, id string, before int64) (int64, error)
	SendListed(ctx context.Context, actor access.Actor, organization int64, r webhook.BulkRequest) (webhook.BulkResult, error)

	// PublishEvents stores events and their deliveries in one transaction, all or nothing. After it returned the error of
	// ctx, it may still read the events, so callers must not reuse their bytes.
	PublishEvents(ctx context.Context, organization int64, events []webhook.NewEvent) ([]webhook.Published, error)
	// EventPage may list those of all organizations.
	EventPage(ctx context.Context, organization int64, f webhook.EventFilter) (access.Page[webhook.Event], error)
	Event(ctx context.Context, organization int64, id string) (webhook.Event, []webhook.Delivery, error)
	// Schedules returns when the deliveries of subscriptions are sent, by public id, without deleted subscriptions.
	Schedules(ctx context.Context, organization int64, ids []string) (map[string]webhook.Schedule, error)

	// EventTypes lists the types of the newest events of an organization, and the types of the catalogue; only this one if it is not empty.
	EventTypes(ctx context.Context, organization int64, only string, withoutAudit bool) ([]webhook.EventType, error)
	CataloguedType(ctx context.Context, eventType string) (webhook.EventType, error)
	PutEventType(ctx context.Context, actor access.Actor, eventType string, c webhook.EventTypeChange) (access.Put[webhook.EventType], error)
	DeleteEventType(ctx context.Context, actor access.Actor, eventType string) error

	EventFacts(ctx context.Context, organization int64, id string) (webhook.EventFacts, error)
	ReceiverPage(ctx context.Context, organization int64, e webhook.EventFacts, f webhook.ReceiverFilter) (access.Page[webhook.ReceiverFacts], error)

	// Series returns the counts of attempts, perhaps of all organizations: one point for each step with attempts. Times are in minutes.
	Series(ctx context.Context, organization int64, subscription string, since, until, step int64) ([]webhook.MinuteCounts, error)

	// PendingSummary counts subscriptions and pending deliveries, perhaps of all organizations.
	PendingSummary(ctx context.Context, organization int64) (webhook.PendingSummary, error)
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
