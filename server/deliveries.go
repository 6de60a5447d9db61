package server

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// deliveryStore is the part of the store that the endpoints of delivery attempts use.
type deliveryStore interface {
	// AttemptPage lists attempts, newest first.
	AttemptPage(ctx context.Context, organization int64, id string, f webhook.AttemptFilter) (webhook.AttemptPage, error)
	// Redeliver creates a new delivery of the event of an attempt.
	Redeliver(ctx context.Context, actor access.Actor, organization int64, id, attempt string) error
}

// Tester sends a test event to a subscription now. It returns the record of the attempt, whether it failed or not.
type Tester interface {
	Test(ctx context.Context, organization int64, subscriptionID string) (webhook.Attempt, error)
}

// testMargin is how much longer a test may take than its attempt, which waits for a free slot and a commit.
const testMargin = 15 * time.Second

// deliveries are the endpoints of delivery attempts.
type deliveries struct {
	store    deliveryStore
	tester   Tester
	limit    time.Duration // of one attempt
	draining *atomic.Bool
}

type attemptBody struct {
	ID             string     `json:"id"`
	SubscriptionID string     `json:"subscription_id"`
	EventID        string     `json:"event_id"`
	EventType      string     `json:"event_type"`
	AttemptNumber  int        `json:"attempt_number"`
	Trigger        string     `json:"trigger"`
	Outcome        string     `json:"outcome"`
	ResponseStatus *int       `json:"response_status"`
	ResponseBody   string     `json:"response_body"`
	DurationMS     int64      `json:"duration_ms"`
	Error          *string    `json:"error"`
	AttemptedAt    timestamp  `json:"attempted_at"`
	NextAttemptAt  *timestamp `json:"next_attempt_at"`
}

func newAttemptBody(a webhook.Attempt) attemptBody {
	return attemptBody{
		ID: a.ID, SubscriptionID: a.SubscriptionID, EventID: a.EventID, EventType: a.EventType,
		AttemptNumber: a.Number, Trigger: a.Trigger.String(), Outcome: a.Outcome.String(),
		ResponseStatus: a.ResponseStatus, ResponseBody: a.ResponseBody, DurationMS: a.DurationMS, Error: nullIfEmpty(a.Error),
		AttemptedAt: timestamp(a.AttemptedAt), NextAttemptAt: (*timestamp)(a.NextAttemptAt),
	}
}

func (h deliveries) test(x *exchange) error {
	id, err := x.pathID("id", subscriptionID, aSubscription)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.request.Context(), h.limit+testMargin)
	defer cancel()
	x.extendDeadlines(h.limit + 2*testMargin)
	attempt, err := h.tester.Test(ctx, x.organization(), id)
	if err != nil && h.draining.Load() && fault.KindOf(err) == fault.Internal {
		return fmt.Errorf("test delivery: %w: %w", errStopped, err) // the dispatcher stops when the server does
	}
	if err != nil {
		return err
	}
	return x.ok(newAttemptBody(attempt))
}

func (h deliveries) list(x *exchange) error {
	id, err := x.pathID("id", subscriptionID, aSubscription)
	if err != nil {
		return err
	}
	filter := readAttemptFilter(&x.query)
	p, err := x.page()
	if err != nil {
		return err
	}
	filter.Before, filter.BeforeAt, filter.Limit = p.After.Row, p.After.At, p.More()
	found, err := h.store.AttemptPage(x.request.Context(), x.organization(), id, filter)
	if err != nil {
		return err
	}
	p.Ended = form.Position{Row: found.Next, At: found.NextAt}
	return writePage(x, p, found.Attempts, newAttemptBody, func(a webhook.Attempt) form.Position { return form.Position{Row: a.RowID, At: a.AttemptedAt} })
}

// findLog checks that the subscription in the path has a log. The log of a deleted subscription exists until retention removes
// it.
func (h deliveries) findLog(x *exchange) error {
	id, err := x.pathID("id", subscriptionID, aSubscription)
	if err != nil {
		return err
	}
	_, err = h.store.AttemptPage(x.request.Context(), x.organization(), id, webhook.AttemptFilter{Limit: 1})
	return err
}

// readAttemptFilter reads the filters of the list.
func readAttemptFilter(q *form.Query) (f webhook.AttemptFilter) {
	if o, given := webhook.ParseOutcome(q.Choice("outcome", "", webhook.Succeeded.String(), webhook.Failed.String(),
		webhook.Sending.String(), webhook.Interrupted.String())); given {
		f.Outcome = &o
	}
	isEvent := eventID.Valid
	f.EventType = q.Matching("event_type", "must be an event type", webhook.ValidType)
	f.EventID = q.Matching("event_id", "must be the id of an event", isEvent)
	f.Since, f.Until = q.Period()
	return f
}

// redeliveryBody says how many deliveries were created.
type redeliveryBody struct {
	Deliveries int `json:"deliveries"`
}

func (h deliveries) redeliver(x *exchange) error {
	id, err := x.pathID("id", subscriptionID, aSubscription)
	if err != nil {
		return err
	}
	attempt, err := x.pathID("attempt_id", attemptID, anAttempt)
	if err != nil {
		return err
	}
	if err := h.store.Redeliver(x.request.Context(), x.actor(), x.organization(), id, attempt); err != nil {
		return err
	}
	return x.write(http.StatusAccepted, "application/json", redeliveryBody{1})
}
