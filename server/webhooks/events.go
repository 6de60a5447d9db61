package webhooks

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// replayed is the header that marks the response to a repeated request: it is the first response again.
const replayed = "Idempotent-Replayed"

// Publish stores one event and its deliveries.
func (h Endpoints) Publish(x *exchange.Exchange) error {
	event, err := x.Form().Event(x.Request.Header["Idempotency-Key"])
	return h.publish(x, []webhook.NewEvent{event}, err, "", "\n")
}

// PublishBatch stores several events, all or nothing. It responds with one item per event, in the same order.
func (h Endpoints) PublishBatch(x *exchange.Exchange) error {
	batch, err := x.Form().Events(x.Request.Header["Idempotency-Key"])
	return h.publish(x, batch, err, `{"data":[`, "]}\n")
}

// publish stores the events of a body, unless it was refused, and responds with their items between two texts.
func (h Endpoints) publish(x *exchange.Exchange, events []webhook.NewEvent, refused error, start, end string) error {
	if refused != nil {
		return refused
	}
	published, err := h.Store.PublishEvents(x.Request.Context(), x.Organization(), events)
	if err != nil {
		return err
	}
	body := append(make([]byte, 0, 190*len(published)+66), start...)
	for i, p := range published {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendPublished(body, p)
	}
	if !slices.ContainsFunc(published, func(p webhook.Published) bool { return !p.Repeated }) {
		x.SetHeader(replayed, "true")
	}
	x.Send(http.StatusAccepted, "application/json", append(body, end...))
	return nil
}

// appendPublished writes the response without an encoder: it is on the path of every event, and no value needs escaping.
func appendPublished(dst []byte, p webhook.Published) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, p.ID...)
	dst = append(dst, `","type":"`...)
	dst = append(dst, p.Type...)
	dst = append(dst, `","timestamp":"`...)
	dst = webhook.AppendTime(dst, p.At)
	dst = append(dst, `","deliveries":`...)
	dst = strconv.AppendInt(dst, int64(p.Deliveries), 10)
	dst = append(dst, `,"held":`...)
	dst = strconv.AppendInt(dst, int64(p.Held), 10)
	if p.Notice == "" {
		return append(dst, `,"notice":null}`...)
	}
	dst = append(dst, `,"notice":"`...)
	dst = append(dst, p.Notice...)
	return append(dst, `"}`...)
}

// eventBody is an event in a list. It has no data: 200 events could have 50 MB of it.
type eventBody struct {
	ID                     string        `json:"id"`
	Type                   string        `json:"type"`
	Timestamp              exchange.Time `json:"timestamp"`
	OrganizationID         string        `json:"organization_id"`
	OrganizationExternalID *string       `json:"organization_external_id"`
	OrganizationName       string        `json:"organization_name"`
	Test                   bool          `json:"test"` // it was made to test one subscription
	Deliveries             int           `json:"deliveries"`
	States                 states        `json:"states"`
}

type states struct {
	Delivered int `json:"delivered"`
	Pending   int `json:"pending"`
	Exhausted int `json:"exhausted"`
	Dropped   int `json:"dropped"`
	Held      int `json:"held"`
}

func newEventBody(e webhook.Event) eventBody {
	return eventBody{e.ID, e.Type, exchange.Time(e.At), e.OrganizationID, e.OrganizationExternalID, e.OrganizationName, e.Test, e.Deliveries, states(e.States)}
}

type eventWithDeliveries struct {
	ID                     string          `json:"id"`
	Type                   string          `json:"type"`
	Timestamp              exchange.Time   `json:"timestamp"`
	OrganizationID         string          `json:"organization_id"`
	OrganizationExternalID *string         `json:"organization_external_id"`
	IdempotencyKey         *string         `json:"idempotency_key"`
	Test                   bool            `json:"test"`
	Data                   json.RawMessage `json:"data"`
	Deliveries             []deliveryBody  `json:"deliveries"`
	Body                   string          `json:"body"` // the exact bytes that are sent and signed
}

type deliveryBody struct {
	SubscriptionID string         `json:"subscription_id"`
	State          string         `json:"state"`
	Attempts       int            `json:"attempts"`
	NextAttemptAt  *exchange.Time `json:"next_attempt_at"` // null if it waits for anything but a time
}

// ListEvents lists events, newest first.
func (h Endpoints) ListEvents(x *exchange.Exchange) error {
	q := &x.Query
	var filter webhook.EventFilter
	filter.Type = q.Matching("type", "must be an event type such as user.created, or a prefix such as user.*", webhook.ValidPattern)
	filter.IdempotencyKey = q.Matching("idempotency_key", "must be the idempotency_key of an event", form.ValidIdempotencyKey)
	filter.State = webhook.EventState(q.Choice("state", "", string(webhook.AnyDelivered), string(webhook.AnyPending), string(webhook.AnyExhausted),
		string(webhook.AnyDropped), string(webhook.AnyExpired), string(webhook.ForNobody)))
	filter.Subscription = readSubscription(q)
	filter.WithoutAudit = q.Choice("audit_events", "true", "true", "false") == "false" || !x.Principal.Can(access.AuditRead)
	filter.Since, filter.Until = q.Period()
	x.RefuseForAll("subscription_id")
	organization := x.ListOrganization()
	if q.Valid() {
		var err error
		filter.Subscription, err = h.resolveSubscription(x, filter.Subscription)
		q.Fail(err)
	}
	list := func(ctx context.Context, before int64, limit int) (access.Page[webhook.Event], error) {
		filter.Before, filter.Limit = before, limit
		return h.Store.EventPage(ctx, organization, filter)
	}
	return exchange.SearchRows(x, list, newEventBody, func(e webhook.Event) int64 { return e.RowID })
}

// mayRead reports whether the caller may read events of a type. Audit events need one more permission.
func mayRead(x *exchange.Exchange, eventType string) bool {
	return !access.IsAuditType(eventType) || x.Principal.Can(access.AuditRead)
}

// FindEvent returns the event in the path, its data and its deliveries. For a caller without audit:read, audit events do not exist.
func (h Endpoints) FindEvent(x *exchange.Exchange) (body eventWithDeliveries, err error) {
	event, sent, err := h.Store.Event(x.Request.Context(), x.Organization(), x.Path.Value("id"))
	if err == nil && !mayRead(x, event.Type) {
		err = fault.Missing(access.EventID.Noun())
	}
	if err != nil {
		return body, err
	}
	data, err := form.EventData(event.Body)
	if err != nil {
		return body, err
	}
	var waiting []string
	for _, d := range sent {
		if d.State == webhook.Pending {
			waiting = append(waiting, d.SubscriptionID)
		}
	}
	schedules, err := h.Store.Schedules(x.Request.Context(), x.Organization(), waiting)
	if err != nil {
		return body, err
	}
	body = eventWithDeliveries{
		ID: event.ID, Type: event.Type, Timestamp: exchange.Time(event.At),
		OrganizationID: event.OrganizationID, OrganizationExternalID: event.OrganizationExternalID,
		IdempotencyKey: event.IdempotencyKey, Test: event.Test, Data: data, Body: string(event.Body),
	}
	now := time.Now().UnixMilli()
	body.Deliveries = exchange.Each(sent, func(d webhook.Delivery) deliveryBody {
		item := deliveryBody{SubscriptionID: d.SubscriptionID, State: d.State.String(), Attempts: d.Attempts}
		if schedule, found := schedules[d.SubscriptionID]; found && d.State == webhook.Pending {
			item.NextAttemptAt = (*exchange.Time)(schedule.NextAttempt(d.RowID, &d.DueAt, now))
		}
		return item
	})
	return body, nil
}

type explainedDeliveryBody struct {
	SubscriptionID string         `json:"subscription_id"`
	URLHost        string         `json:"url_host"`
	Verdict        string         `json:"verdict"`
	Detail         string         `json:"detail"`
	Parts          []explain.Part `json:"parts"`
	LastError      *string        `json:"last_error"`
	Hint           *string        `json:"hint"`
	Action         *string        `json:"action"`
	Advice         *string        `json:"advice"`
	NextAttemptAt  *exchange.Time `json:"next_attempt_at"`
	Attempts       int            `json:"attempts"`
}

type explanationBody struct {
	exchange.List[explainedDeliveryBody]
	Notice *webhook.Notice `json:"notice"` // null unless the organization has no subscription
}

// ExplainEvent explains, for each subscription, whether an event arrived, and why not: newest subscription first. It changes nothing.
func (h Endpoints) ExplainEvent(x *exchange.Exchange) error {
	named := readSubscription(&x.Query)
	p, err := x.Page()
	if err != nil {
		return err
	}
	subscription, err := h.resolveSubscription(x, named)
	if err != nil {
		return err
	}
	ctx := x.Request.Context()
	event, err := h.Store.EventFacts(ctx, x.Organization(), x.Path.Value("id"))
	if err != nil {
		return err
	}
	if !mayRead(x, event.Type) {
		return fault.Missing(access.EventID.Noun())
	}
	page, err := h.Store.ReceiverPage(ctx, x.Organization(), event, webhook.ReceiverFilter{Before: p.After.Row, Limit: p.More(), ID: subscription})
	if err != nil {
		return err
	}
	p.Ended = form.Position{Row: page.Next}
	now, actFor := time.Now().UnixMilli(), ""
	if x.Principal.Organization.ID != x.Principal.Home.ID {
		actFor = x.Principal.Organization.ID
	}
	body := func(f webhook.ReceiverFacts) explainedDeliveryBody {
		r := explain.Receiver{Event: event, ReceiverFacts: f, Now: now, ActFor: actFor}
		d := r.Explain()
		return explainedDeliveryBody{
			SubscriptionID: r.ID, URLHost: r.Host(), Verdict: string(d.Verdict), Detail: d.Text(), Parts: d.Detail,
			LastError: access.NullIfEmpty(d.LastError), Hint: access.NullIfEmpty(string(d.Hint)),
			Action: access.NullIfEmpty(string(d.Mend.Action)), Advice: access.NullIfEmpty(explain.Command(d.Mend)),
			NextAttemptAt: (*exchange.Time)(d.NextAttemptAt), Attempts: d.Attempts,
		}
	}
	var notice *webhook.Notice
	if p.After == (form.Position{}) && subscription == "" && len(page.Rows) == 0 && page.Next == 0 {
		notice = new(webhook.NoSubscription)
	}
	list := exchange.NewList(p, page.Rows, body, func(f webhook.ReceiverFacts) form.Position { return form.Position{Row: f.RowID} })
	return x.OK(explanationBody{list, notice})
}
