package webhooks

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Tester sends a test event to a subscription now. It returns the record of the attempt, whether it failed or not.
type Tester interface {
	// The event is the example of eventType in the catalogue; if that is empty, it is a webhook_test.
	Test(ctx context.Context, organization int64, subscriptionID, eventType string) (webhook.Attempt, error)
}

// testMargin is how much longer a test may take than its attempt, which waits for a free slot and a commit.
const testMargin = 15 * time.Second

type attemptBody struct {
	ID             string         `json:"id"`
	SubscriptionID string         `json:"subscription_id"`
	EventID        string         `json:"event_id"`
	EventType      string         `json:"event_type"`
	AttemptNumber  int            `json:"attempt_number"`
	Trigger        string         `json:"trigger"`
	Outcome        string         `json:"outcome"`
	ResponseStatus *int           `json:"response_status"`
	ResponseBody   string         `json:"response_body"`
	DurationMS     int64          `json:"duration_ms"`
	Error          *string        `json:"error"`
	Hint           *string        `json:"hint"`
	AttemptedAt    exchange.Time  `json:"attempted_at"`
	NextAttemptAt  *exchange.Time `json:"next_attempt_at"`

	// Not in a list.
	ResponseHeaders map[string]string `json:"response_headers,omitzero"`
	Request         *requestBody      `json:"request,omitzero"` // nil also for a test
}

// newAttemptBody shows an attempt. s says when its delivery is sent again.
func newAttemptBody(a webhook.Attempt, s webhook.Schedule) attemptBody {
	return attemptBody{
		ID: a.ID, SubscriptionID: a.SubscriptionID, EventID: a.EventID, EventType: a.EventType,
		AttemptNumber: a.Number, Trigger: a.Trigger.String(), Outcome: a.Outcome.String(),
		ResponseStatus: a.ResponseStatus, ResponseBody: a.ResponseBody, DurationMS: a.DurationMS, Error: access.NullIfEmpty(a.Error), Hint: hintOf(a.Error),
		AttemptedAt: exchange.Time(a.AttemptedAt), NextAttemptAt: (*exchange.Time)(s.NextAttempt(webhook.DeliveryRow(a.RowID), a.NextAttemptAt, time.Now().UnixMilli())),
	}
}

func hintOf(failure string) *string { return access.NullIfEmpty(string(explain.HintOf(failure))) }

// Test sends a test event to a subscription, and responds with the attempt.
func (h Endpoints) Test(x *exchange.Exchange, id string) error {
	f := x.OptionalForm()
	eventType := f.EventType("event_type")
	if err := f.Err(); err != nil {
		return err
	}
	ctx, cancel := x.LongContext(h.TestTimeout + testMargin)
	defer cancel()
	attempt, err := h.Tester.Test(ctx, x.Organization(), id, form.Or(eventType, ""))
	if err != nil {
		return err
	}
	body := newAttemptBody(attempt, webhook.Schedule{}) // a test is not repeated
	body.ResponseHeaders = headersOf(attempt)
	return x.OK(body)
}

// ListAttempts lists the attempts of a subscription, newest first.
func (h Endpoints) ListAttempts(x *exchange.Exchange, id string) error {
	q := &x.Query
	var filter webhook.AttemptFilter
	if o, present := webhook.ParseOutcome(q.Choice("outcome", "", webhook.Succeeded.String(), webhook.Failed.String(),
		webhook.Sending.String(), webhook.Interrupted.String())); present {
		filter.Outcome = &o
	}
	filter.EventType = q.Matching("event_type", "must be an event type", webhook.ValidType)
	filter.EventID = q.Matching("event_id", "must be the id of an event", access.EventID.Valid)
	filter.Since, filter.Until = q.Period()
	var schedules map[string]webhook.Schedule
	list := func(ctx context.Context, after form.Position, limit int) ([]webhook.Attempt, form.Position, error) {
		filter.Before, filter.BeforeAt, filter.Limit = after.Row, after.At, limit
		found, err := h.Store.AttemptPage(ctx, x.Organization(), id, filter)
		if err == nil {
			schedules, err = h.Store.Schedules(ctx, x.Organization(), []string{id})
		}
		return found.Attempts, form.Position{Row: found.Next, At: found.NextAt}, err
	}
	body := func(a webhook.Attempt) attemptBody { return newAttemptBody(readable(x, a), schedules[id]) }
	return exchange.ListPositions(x, list, body, func(a webhook.Attempt) form.Position {
		return form.Position{Row: a.RowID, At: a.AttemptedAt}
	})
}

// readable removes the response to an event that the caller may not read, because the receiver may have repeated the event in it.
func readable(x *exchange.Exchange, a webhook.Attempt) webhook.Attempt {
	if !mayRead(x, a.EventType) {
		a.ResponseBody, a.ResponseHeader = "", ""
	}
	return a
}

// headersOf reads what webhook.CutHeader made.
func headersOf(a webhook.Attempt) map[string]string {
	headers := map[string]string{}
	for line := range strings.Lines(a.ResponseHeader) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		headers[name] = value
	}
	return headers
}

// requestBody is the request of an attempt, as far as the caller may know it.
type requestBody struct {
	Method  string            `json:"method"`
	URL     *string           `json:"url"`     // without its query; null if the subscription has got another URL since
	Headers map[string]string `json:"headers"` // own headers of the subscription only if they have not changed since
	Body    *string           `json:"body"`    // null without the permission to read the event
}

// FindAttempt returns the attempt in the path and its request.
func (h Endpoints) FindAttempt(x *exchange.Exchange) (body attemptBody, err error) {
	id, err := h.pathSubscription(x)
	if err != nil {
		return body, err
	}
	sent, err := h.Store.SentAttempt(x.Request.Context(), x.Organization(), id, x.Path.Value("attempt_id"))
	if err != nil {
		return body, err
	}
	schedules, err := h.Store.Schedules(x.Request.Context(), x.Organization(), []string{id})
	if err != nil {
		return body, err
	}
	request := &requestBody{Method: http.MethodPost, Headers: map[string]string{}}
	if sent.HeadersAt <= sent.AttemptedAt {
		for _, name := range sent.HeaderNames {
			request.Headers[name] = webhook.Masked
		}
	}
	for name, values := range h.SentHeaders(sent.Attempt) {
		request.Headers[name] = strings.Join(values, ", ")
	}
	if sent.URLAt <= sent.AttemptedAt && sent.URL != "" {
		url, _, _ := strings.Cut(sent.URL, "?")
		request.URL = &url
	}
	if x.Principal.Can(access.EventsRead) && mayRead(x, sent.EventType) {
		request.Body = new(string(sent.Body))
	}
	attempt := readable(x, sent.Attempt)
	body = newAttemptBody(attempt, schedules[id])
	body.ResponseHeaders, body.Request = headersOf(attempt), request
	return body, nil
}

// LogExists checks that the subscription in the path has a log. The log of a deleted subscription exists until retention removes it.
func (h Endpoints) LogExists(x *exchange.Exchange, id string) error {
	_, err := h.Store.LoggedSubscription(x.Request.Context(), x.Organization(), id)
	return err
}

type deliveriesBody struct {
	Deliveries int64 `json:"deliveries"`
}

// Redeliver sends the event of the attempt in the path again.
func (h Endpoints) Redeliver(x *exchange.Exchange, id string) error {
	if err := h.Store.Redeliver(x.Request.Context(), x.Actor(), x.Organization(), id, x.Path.Value("attempt_id")); err != nil {
		return err
	}
	return x.Respond(http.StatusAccepted, deliveriesBody{1})
}
