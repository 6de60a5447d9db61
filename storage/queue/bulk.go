package queue

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	maxBulk         = 10_000 // events of a bulk request, and their deliveries
	eventsPerLookup = 10     // events whose deliveries one read finds; each may have thousands
)

var endOf = map[webhook.EventState]webhook.DeliveryState{
	webhook.AnyDelivered: webhook.Delivered, webhook.AnyExhausted: webhook.Exhausted, webhook.AnyDropped: webhook.Dropped,
	webhook.AnyExpired: webhook.Pending,
}

// SendListed sends again what a list of events shows: it makes a new delivery of each event to each subscription for which the event
// has a delivery in the state of the list. It skips what is pending, deleted subscriptions, and subscriptions without a URL.
//
// A recovery also skips what has arrived, and what the subscription does not want any more. Then it makes the subscriptions for which
// something waits healthy, as Recover does, except those that a person has paused. Expired deliveries are pending, so their recovery only
// does that. As with a replay, what was made before an error stays. Faults: NotFound, and Conflict without a URL, for the subscription of
// the filter; Forbidden if the plan has no webhooks; Invalid if there are more than maxBulk events or deliveries; Unavailable if the
// context ends first.
func (q *Queue) SendListed(ctx context.Context, by access.Actor, organization int64, r webhook.BulkRequest) (sent webhook.BulkResult, err error) {
	if err := q.change(ctx, sqlite.Work{Payer: organization}, func(t *tx) error {
		if id := r.Events.Subscription; id != "" {
			if _, err := q.receiver(t, organization, id); err != nil {
				return err
			}
		}
		return t.Quotas.RequireWebhooks(t.Tx, organization)
	}); err != nil {
		return sent, err
	}
	r.Events.Limit = maxBulk + 1
	events, err := q.o.History.EventRows(ctx, organization, r.Events)
	if err != nil {
		return sent, err
	}
	listed, err := q.listedDeliveries(ctx, organization, r.Events, events)
	if err != nil {
		return sent, err
	}
	sent.Events, sent.Subscriptions = int64(len(events)), int64(len(listed))
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		err := q.sendListedTo(ctx, by, organization, r, id, listed[id], &sent)
		switch {
		case fault.KindOf(err) == fault.NotFound: // it was deleted meanwhile
		case err != nil && sent.Deliveries > 0 && !r.DryRun:
			return sent, unfinishedReplay(ctx, sent.Deliveries, err)
		case err != nil:
			return sent, err
		}
	}
	return sent, nil
}

// listedDeliveries finds the deliveries of events in the state of a list: the rows of the events, by the subscription.
func (q *Queue) listedDeliveries(ctx context.Context, organization int64, f webhook.EventFilter, events []int64) (map[string][]int64, error) {
	listed, left := map[string][]int64{}, maxBulk
	err := scan.Batches(ctx, 0, func() (more bool, err error) {
		batch := events[:min(len(events), eventsPerLookup)]
		var found []struct {
			Subscription string `db:"public_id"`
			Event        int64  `db:"event_id"`
		}
		err = q.o.Replays.InTurn(ctx, organization).List(&found, `
			SELECT DISTINCT s.public_id, d.event_id
			FROM json_each(?) listed CROSS JOIN deliveries d INDEXED BY deliveries_by_event ON d.event_id = listed.value
			CROSS JOIN subscriptions s ON s.id = d.subscription_id
			WHERE d.state = ? AND ? IN ('', s.public_id) AND s.deleted_at IS NULL AND s.url <> '' LIMIT ?`,
			sqlite.RowList(slices.Values(batch)), endOf[f.State], f.Subscription, left+1)
		for _, d := range found {
			listed[d.Subscription] = append(listed[d.Subscription], d.Event)
		}
		if left -= len(found); left < 0 || len(events) > maxBulk { // also in a dry run: nobody pays for counting all of it
			return false, fault.New(fault.Invalid, "too_many_deliveries",
				"These are more than %d events or deliveries, and one request sends at most as many. Narrow the period, or name one subscription.", maxBulk)
		}
		events = events[len(batch):]
		return len(events) > 0, err
	})
	return listed, err
}

// sendListedTo is SendListed for one subscription, with the rows of the events. It adds to sent what it sends, also if it fails.
func (q *Queue) sendListedTo(
	ctx context.Context, by access.Actor, organization int64, r webhook.BulkRequest, id string, events []int64, sent *webhook.BulkResult,
) error {
	found, err := q.prepareRecovery(ctx, organization, id, webhook.RecoveryRequest{Since: r.Events.Since, Activate: true, DryRun: r.DryRun})
	if err != nil {
		return err
	}
	p, made := &found.query, &found.sent
	p.by, p.ended = by.Authority, endOf[r.Events.State]
	if !r.Recover { // as a redelivery
		p.unless, p.filter = webhook.Pending, ""
		p.exact, p.prefix = fanout.PatternLists([]string{webhook.AnyType})
	}
	slices.Sort(events)
	err = q.inSlices(ctx, *p, func(most int) (c chunk, err error) {
		batch := events[:min(len(events), most)]
		events, c.Seen = events[len(batch):], int64(len(batch))
		err = q.o.Replays.Pool.Get(ctx, &c, replayableRows, q.args(*p, p.now, sql.Named("rows", sqlite.RowList(slices.Values(batch))))...)
		return c, err
	}, func(_ chunk, replayed webhook.Replayed) { made.Deliveries += replayed.Total() })
	sent.Deliveries, sent.Pending, sent.BlockedBy = sent.Deliveries+made.Deliveries, sent.Pending+made.Pending, made.BlockedBy
	switch {
	case r.DryRun, made.Deliveries == 0 && (!r.Recover || made.Pending == 0), r.Recover && err != nil:
		return err
	case r.Recover:
		return q.finishRecovery(ctx, by, found, func(t *tx, sub *webhook.Subscription) error {
			if sub.ByPerson() {
				return nil
			}
			return q.makeHealthy(t, sub)
		})
	}
	what := webhook.Replay{Since: r.Events.Since, Until: r.Events.Until, Only: webhook.Only(r.Events.State)}
	if r.Events.Type != "" {
		what.EventTypes = webhook.Types{r.Events.Type}
	}
	return errors.Join(err, q.auditReplay(ctx, by, *p, what, made.Deliveries, err == nil))
}
