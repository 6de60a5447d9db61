package history

import (
	"context"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// SubscriptionColumns are the columns of webhook.Subscription, without what Complete sets. Their tables are SubscriptionJoins.
const SubscriptionColumns = `
	s.id, s.public_id, o.public_id AS organization_public_id, o.external_id AS organization_external_id, o.name AS organization_name, s.url, s.event_types, s.audit_events, s.description,
	` + delivery.GateColumns + `, s.rate_limit_per_second, s.ordered, s.filter, s.filter_changed_at, s.created_at, s.updated_at, s.disabled_at,
	s.last_success_at, s.last_failure_at, s.external_id,
	(SELECT names FROM subscription_headers WHERE subscription_id = s.id) AS header_names`

// SubscriptionJoins are the tables of SubscriptionColumns, for a subscription s.
const SubscriptionJoins = `
	CROSS JOIN organizations o ON o.id = s.organization_id CROSS JOIN plans p ON p.id = o.plan_id`

// Subscription returns one subscription with its number of pending deliveries. Faults: NotFound.
func (h *History) Subscription(ctx context.Context, organization int64, id string) (webhook.Subscription, error) {
	return h.ReadSubscription(h.o.Reads.In(ctx), organization, id, h.o.Hold())
}

// ReadSubscription is Subscription for a transaction and the hold that it sees.
func (h *History) ReadSubscription(from sqlite.Reader, organization int64, id string, hold *webhook.Hold) (webhook.Subscription, error) {
	sub, err := sqlite.One[webhook.Subscription](from, "subscription", `
		SELECT `+SubscriptionColumns+` FROM subscriptions s`+SubscriptionJoins+`
		WHERE s.public_id = ? AND s.organization_id = ? AND s.deleted_at IS NULL`, id, organization)
	h.Complete(&sub, hold)
	return sub, err
}

// Complete sets what the table does not have.
func (h *History) Complete(sub *webhook.Subscription, hold *webhook.Hold) {
	sub.PendingDeliveries, sub.QueueHeld, sub.ProbedEvery = h.o.Pending.Of(sub.RowID), hold != nil, h.o.Policy.ProbeDisabled
}

// SubscriptionPage lists the subscriptions of an organization, or of access.AllOrganizations, newest first. Faults: Unavailable
// if too many reads of the organization's logs are running.
func (h *History) SubscriptionPage(ctx context.Context, organization int64, f webhook.SubscriptionFilter) (page access.Page[webhook.Subscription], err error) {
	list := scan.List[webhook.Subscription]{
		Logs: h.o.Logs, Table: "subscriptions s", Index: "subscriptions_by_organization",
		Columns: SubscriptionColumns, Joins: SubscriptionJoins,
		Where: "s.deleted_at IS NULL AND (?5 = '[]' OR s.status IN (SELECT value FROM json_each(?5))) AND (?6 IS NULL OR " + delivery.PausedByPerson + ` = ?6)
			AND (?7 = '' OR instr(lower(s.url), lower(?7)) OR instr(lower(s.description), lower(?7)))
			AND (?8 IS NULL OR (` + delivery.FirstDue("s.id") + ` IS NOT NULL) = ?8)`,
	}
	page, err = list.Page(ctx, scan.Query{
		Organization: organization, Before: f.Before, Limit: f.Limit, Args: []any{sqlite.TextList(f.Statuses), f.Paused, f.Text, f.Pending},
		Filtered: true, // deleted subscriptions add up, as a log does
	})
	hold := h.o.Hold()
	for i := range page.Rows {
		h.Complete(&page.Rows[i], hold)
	}
	return page, err
}

// SubscriptionRow returns the row id of a subscription. Faults: NotFound.
func (h *History) SubscriptionRow(ctx context.Context, organization int64, id string) (int64, error) {
	return ReadSubscriptionRow(h.o.Reads.In(ctx), organization, id)
}

// ReadSubscriptionRow is SubscriptionRow for a transaction.
func ReadSubscriptionRow(from sqlite.Reader, organization int64, id string) (int64, error) {
	return sqlite.One[int64](from, "subscription",
		"SELECT id FROM subscriptions WHERE public_id = ? AND organization_id = ? AND deleted_at IS NULL", id, organization)
}

// CountLiveSubscriptions selects the number of subscriptions of an organization that count against its plan.
const CountLiveSubscriptions = "SELECT count(*) FROM subscriptions INDEXED BY subscriptions_live WHERE organization_id = ? AND deleted_at IS NULL"

// LiveSubscriptions counts the subscriptions of an organization that count against its plan.
func (h *History) LiveSubscriptions(ctx context.Context, organization int64) (int64, error) {
	return sqlite.One[int64](h.o.Reads.In(ctx), "organization", CountLiveSubscriptions, organization)
}

// SubscriptionOrganization returns the id of the organization that has a subscription. Faults: NotFound.
func (h *History) SubscriptionOrganization(ctx context.Context, id string) (organization string, err error) {
	return sqlite.One[string](h.o.Reads.In(ctx), "subscription", `
		SELECT o.public_id FROM subscriptions s CROSS JOIN organizations o ON o.id = s.organization_id
		WHERE s.public_id = ? AND s.deleted_at IS NULL`, id)
}

// SubscriptionID returns the id of the subscription with an external id. Faults: NotFound.
func (h *History) SubscriptionID(ctx context.Context, organization int64, externalID string) (id string, err error) {
	return sqlite.One[string](h.o.Reads.In(ctx), "subscription", `
		SELECT public_id FROM subscriptions INDEXED BY subscriptions_by_external_id
		WHERE organization_id = ? AND external_id = ? AND external_id IS NOT NULL AND deleted_at IS NULL`, organization, externalID)
}

// schedulesPerRead limits how long one read of Schedules takes.
const schedulesPerRead = 500

// Schedules returns when the deliveries of subscriptions of an organization are sent, by public id. It leaves out deleted subscriptions,
// because nothing is sent to them. Faults: Unavailable for several subscriptions, if too many reads of the organization's logs are running.
func (h *History) Schedules(ctx context.Context, organization int64, ids []string) (map[string]webhook.Schedule, error) {
	found := make(map[string]webhook.Schedule, len(ids))
	hold, from := h.o.Hold(), h.o.Reads.In(ctx)
	if len(ids) > 1 { // those of an event may be thousands, and requests of others wait for Reads
		from = h.o.Logs.InTurn(ctx, organization)
	}
	for some := range slices.Chunk(ids, schedulesPerRead) {
		var schedules []webhook.Schedule
		if err := from.List(&schedules, `
			SELECT `+SubscriptionColumns+`, `+firstColumn+`
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

// firstColumn is Schedule.First of a subscription s.
var firstColumn = "coalesce(iif(s.ordered, (" + delivery.FirstInOrder("s.id") + "), NULL), (" + delivery.FirstPending("s.id") + ")) AS first"
