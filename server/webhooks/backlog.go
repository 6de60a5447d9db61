package webhooks

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/webhook"
)

// backlogStore is the part of the store that the backlog endpoint uses.
type backlogStore interface {
	// PendingSummary counts subscriptions and pending deliveries; organization access.AllOrganizations counts those of all
	// organizations.
	PendingSummary(ctx context.Context, organization int64) (webhook.PendingSummary, error)
}

// Backlog is the endpoint that says how many deliveries wait, and why.
type Backlog struct{ store backlogStore }

type backlogBody struct {
	Pending     int64          `json:"pending"`
	OldestDueAt *exchange.Time `json:"oldest_due_at"` // null if nothing is pending
	Statuses    statusesBody   `json:"statuses"`
	Blocked     []blockedBody  `json:"blocked"`
}

// statusesBody counts subscriptions.
type statusesBody struct {
	Healthy  int64 `json:"healthy"`
	Failing  int64 `json:"failing"`
	Disabled int64 `json:"disabled"`
	Paused   int64 `json:"paused"` // of the disabled ones: a person stopped them
}

type blockedBody struct {
	BlockedBy     *string        `json:"blocked_by"` // null: they are sent when they are due
	Subscriptions int64          `json:"subscriptions"`
	Pending       int64          `json:"pending"`
	OldestDueAt   *exchange.Time `json:"oldest_due_at"`
}

func newBacklogBody(sum webhook.PendingSummary) backlogBody {
	body := backlogBody{Blocked: []blockedBody{}, Statuses: statusesBody(sum.Statuses)}
	var oldest int64
	for _, b := range sum.Blocked {
		body.Pending += b.Deliveries
		if b.OldestDue != 0 && (oldest == 0 || b.OldestDue < oldest) {
			oldest = b.OldestDue
		}
		body.Blocked = append(body.Blocked, blockedBody{exchange.NullIfEmpty(string(b.By)), b.Subscriptions, b.Deliveries, timeOrNull(b.OldestDue)})
	}
	body.OldestDueAt = timeOrNull(oldest)
	return body
}

// Read responds with these counts.
func (h Backlog) Read(x *exchange.Exchange) error {
	organization, err := x.ListOrganization()
	if err != nil {
		return err
	}
	if err := x.Query.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newBacklogBody)(h.store.PendingSummary(x.Request.Context(), organization))
}
