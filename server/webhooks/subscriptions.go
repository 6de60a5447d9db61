package webhooks

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/webhook"
)

// How long the old secret also signs after a rotation, in seconds.
const (
	defaultOverlap = 86_400
	longestOverlap = 604_800
)

type subscriptionBody struct {
	ID                     string             `json:"id"`
	URL                    *string            `json:"url"` // null: a feed
	EventTypes             []string           `json:"event_types"`
	AuditEvents            bool               `json:"audit_events"`
	IsActive               bool               `json:"is_active"`
	Status                 string             `json:"status"`
	ConsecutiveFailures    int                `json:"consecutive_failures"`
	FailingSince           *exchange.Time     `json:"failing_since"` // the first of these failures; null if there is none
	LastError              *string            `json:"last_error"`
	Hint                   *string            `json:"hint"`
	BlockedBy              *string            `json:"blocked_by"` // why nothing is sent; null if something is
	Description            string             `json:"description"`
	ExternalID             *string            `json:"external_id"`           // the organization's own id
	RateLimitPerSecond     *int64             `json:"rate_limit_per_second"` // null means unlimited
	Ordered                bool               `json:"ordered"`
	Filter                 filter.Filter      `json:"filter"` // null if every event passes
	FilterChangedAt        *exchange.Time     `json:"filter_changed_at"`
	Headers                map[string]*string `json:"headers"` // the names; every value is null
	PendingDeliveries      int64              `json:"pending_deliveries"`
	OrganizationID         string             `json:"organization_id"`
	OrganizationExternalID *string            `json:"organization_external_id"`
	OrganizationName       string             `json:"organization_name"`
	CreatedAt              exchange.Time      `json:"created_at"`
	UpdatedAt              exchange.Time      `json:"updated_at"`
	DisabledAt             *exchange.Time     `json:"disabled_at"`
	LastSuccessAt          *exchange.Time     `json:"last_success_at"`
	LastFailureAt          *exchange.Time     `json:"last_failure_at"`
}

// secretBody is the response to create and rotate-secret. No other response shows a secret.
type secretBody struct {
	subscriptionBody
	Secret string `json:"secret"`
}

func newSubscriptionBody(s webhook.Subscription) subscriptionBody {
	headers := make(map[string]*string, len(s.HeaderNames))
	for _, name := range s.HeaderNames {
		headers[name] = nil // no response shows a value
	}
	return subscriptionBody{
		ID: s.ID, URL: access.NullIfEmpty(s.URL), EventTypes: s.EventTypes.Unique(), AuditEvents: s.AuditEvents, IsActive: s.Active(), Status: string(s.Status),
		ConsecutiveFailures: s.ConsecutiveFailures, FailingSince: access.NullIfEmpty(exchange.Time(s.FailingSince)),
		LastError: access.NullIfEmpty(s.LastError), Hint: hintOf(s.LastError),
		BlockedBy: access.NullIfEmpty(string(s.Why())), Description: s.Description, ExternalID: s.ExternalID,
		RateLimitPerSecond: s.RateLimitPerSecond, Ordered: s.Ordered, Filter: s.Filter, FilterChangedAt: (*exchange.Time)(s.FilterChangedAt), Headers: headers, PendingDeliveries: s.PendingDeliveries,
		OrganizationID: s.OrganizationID, OrganizationExternalID: s.OrganizationExternalID, OrganizationName: s.OrganizationName,
		CreatedAt: exchange.Time(s.CreatedAt), UpdatedAt: exchange.Time(s.UpdatedAt), DisabledAt: (*exchange.Time)(s.DisabledAt),
		LastSuccessAt: (*exchange.Time)(s.LastSuccessAt), LastFailureAt: (*exchange.Time)(s.LastFailureAt),
	}
}

// CreateSubscription creates a subscription. The response shows its secret.
func (h Endpoints) CreateSubscription(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("url")
	secret := f.Secret("secret")
	change, err := h.readChange(f)
	if err != nil {
		return err
	}
	change.Secret = secret
	sub, created, err := h.Store.CreateSubscription(x.Request.Context(), x.Actor(), x.Organization(), change)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.Created("/api/v1/webhooks/subscriptions/"+sub.ID+"/", secretBody{newSubscriptionBody(sub), created.Reveal()})
}

func (h Endpoints) readChange(f *form.Form) (webhook.SubscriptionChange, error) {
	change := f.Subscription(h.CheckURL, h.HeaderPrefix)
	change.IsActive = f.Bool("is_active")
	return change, f.Err()
}

// ListSubscriptions lists subscriptions, newest first.
func (h Endpoints) ListSubscriptions(x *exchange.Exchange) error {
	var statuses []webhook.Status
	for _, s := range x.Query.Choices("status", string(webhook.Healthy), string(webhook.Failing), string(webhook.Disabled)) {
		statuses = append(statuses, webhook.Status(s))
	}
	maybe := func(name string) (value *bool) {
		if text := x.Query.Choice(name, "", "true", "false"); text != "" {
			value = new(text == "true")
		}
		return value
	}
	paused, pending := maybe("paused"), maybe("pending")
	text := x.Query.Search()
	organization := x.ListOrganization()
	list := func(ctx context.Context, before int64, limit int) (access.Page[webhook.Subscription], error) {
		return h.Store.SubscriptionPage(ctx, organization, webhook.SubscriptionFilter{Statuses: statuses, Paused: paused, Pending: pending, Text: text, Before: before, Limit: limit})
	}
	return exchange.SearchRows(x, list, newSubscriptionBody, func(s webhook.Subscription) int64 { return s.RowID })
}

// FindSubscription returns the subscription in the path.
func (h Endpoints) FindSubscription(x *exchange.Exchange) (body subscriptionBody, err error) {
	id, err := h.pathSubscription(x)
	if err != nil {
		return body, err
	}
	found, err := h.Store.Subscription(x.Request.Context(), x.Organization(), id)
	return newSubscriptionBody(found), err
}

// UpdateSubscription changes a subscription.
func (h Endpoints) UpdateSubscription(x *exchange.Exchange, id string) error {
	f := x.Form()
	change, err := h.readChange(f)
	if err != nil {
		return err
	}
	return exchange.Reply(x, newSubscriptionBody)(h.Store.UpdateSubscription(x.Request.Context(), x.Actor(), x.Organization(), id, change))
}

// RemoveSubscription deletes a subscription.
func (h Endpoints) RemoveSubscription(x *exchange.Exchange, id string) error {
	return x.Done(h.Store.DeleteSubscription(x.Request.Context(), x.Actor(), x.Organization(), id))
}

// RotateSecret gives a subscription a new secret, which the response shows. The old secret also signs during the overlap.
func (h Endpoints) RotateSecret(x *exchange.Exchange, id string) error {
	f := x.OptionalForm()
	overlap, force, imported := f.Integer("overlap_seconds", 0, longestOverlap), f.Bool("force"), f.Secret("secret")
	if err := f.Err(); err != nil {
		return err
	}
	rotation := webhook.Rotation{
		Overlap: time.Duration(form.Or(overlap, defaultOverlap)) * time.Second, Force: form.Or(force, false), Secret: imported,
	}
	sub, secret, err := h.Store.RotateSecret(x.Request.Context(), x.Actor(), x.Organization(), id, rotation)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.OK(secretBody{newSubscriptionBody(sub), secret.Reveal()})
}

type previewBody struct {
	Examined int      `json:"examined"` // recent events of a wanted type
	Matched  int      `json:"matched"`
	Sample   []string `json:"sample"`
}

// PreviewFilter tries a filter on recent events. It changes nothing.
func (h Endpoints) PreviewFilter(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("filter")
	types, conditions := form.Or(f.EventTypes("event_types"), webhook.Types{}), form.Or(f.Filter("filter"), nil)
	if err := f.Err(); err != nil {
		return err
	}
	withoutAudit := len(types) == 0 || !x.Principal.Can(access.AuditRead)
	p, err := h.Store.PreviewFilter(x.Request.Context(), x.Organization(), types, conditions, withoutAudit)
	if err != nil {
		return err
	}
	return x.OK(previewBody{p.Examined, p.Matched, append([]string{}, p.Sample...)})
}
