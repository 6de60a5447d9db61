package history

import (
	"context"
	"slices"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// schedulesPerRead limits how long one read of Schedules takes.
const schedulesPerRead = 500

// Schedules returns when the deliveries of subscriptions of an organization are sent, by public id. It leaves out deleted
// subscriptions, because nothing is sent to them.
func (h *History) Schedules(ctx context.Context, organization int64, ids []string) (map[string]webhook.Schedule, error) {
	found := make(map[string]webhook.Schedule, len(ids))
	hold := h.hold()
	for some := range slices.Chunk(ids, schedulesPerRead) {
		var schedules []webhook.Schedule
		if err := h.reads.List(ctx, &schedules, `
			SELECT `+SubscriptionColumns+`, `+firstDueColumn+`
			FROM json_each(?) j CROSS JOIN subscriptions s ON s.public_id = j.value`+SubscriptionJoins+`
			WHERE s.organization_id = ? AND s.deleted_at IS NULL`, sqlite.TextList(some), organization); err != nil {
			return nil, err
		}
		for _, schedule := range schedules {
			h.Complete(&schedule.Subscription, hold)
			found[schedule.ID] = schedule
		}
	}
	return found, nil
}

// firstDueColumn is Schedule.FirstDue of a subscription s.
var firstDueColumn = "(SELECT first.due_at FROM deliveries first WHERE first.id = " + firstSent("s.ordered", "s.id") + ") AS first_due"

// firstSent returns an SQL expression of the pending delivery that is sent first. ordered and subscription are SQL expressions.
func firstSent(ordered, subscription string) string {
	return `iif(` + ordered + `, coalesce((` + delivery.FirstInOrder(subscription) + `), (` + delivery.FirstPending(subscription) + `)), (` + delivery.FirstPending(subscription) + `))`
}
