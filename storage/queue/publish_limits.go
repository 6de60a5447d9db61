package queue

import (
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	// maxDeliveries limits the deliveries of one request. They take the writer about a tenth of a second, and all
	// other writes wait for it.
	maxDeliveries = 10_000
	// pageSize is the size of a database page in bytes. Writing a page takes about as long as writing a row.
	pageSize = 4096
	// parsedPerRow and filtersPerRow are how many bytes of an event can be read, and how many filters be evaluated, while a row is written.
	parsedPerRow, filtersPerRow = 256, 4
	// maxFilters and maxFiltered limit the filters that one request may evaluate, and the bytes of the events that they look into. Each
	// takes the writer about a tenth of a second.
	maxFilters  = 100_000
	maxFiltered = 4 << 20
)

// publishCost returns about how many rows the events will write. To look into an event for a filter takes as long as some rows.
func publishCost(t *tx, organization int64, events []webhook.NewEvent) (int, error) {
	cost, err := estimateDeliveries(t, organization, events)
	for i := 0; i < len(events) && err == nil; i++ {
		var receivers []*fanout.Subscription
		receivers, err = t.Fanout.Receivers(t.Tx, organization, 0, events[i].Type)
		cost += 1 + len(events[i].Data)/pageSize
		if filters := fanout.Filters(receivers); filters > 0 {
			cost += len(events[i].Data)/parsedPerRow + filters/filtersPerRow
		}
	}
	return cost, err
}

// estimateDeliveries returns an upper bound of the deliveries of events. It stops counting above maxDeliveries.
func estimateDeliveries(t *tx, organization int64, events []webhook.NewEvent) (count int, err error) {
	for i := 0; i < len(events) && count <= maxDeliveries; i++ {
		matching, err := t.Fanout.Matching(t.Tx, organization, events[i].Type)
		if err != nil {
			return 0, err
		}
		count += len(matching)
	}
	return count, nil
}

// checkPublishLimits refuses events with too many deliveries, or with more bytes than the plan allows today. It stops at the first
// delivery too many, so a refusal costs no more than an acceptance. Faults: Invalid, Limited; Conflict for a closed organization.
func checkPublishLimits(t *tx, organization int64, events []webhook.NewEvent, published []webhook.Published) error {
	estimate, err := estimateDeliveries(t, organization, events)
	if err != nil {
		return err
	}
	size := 0
	for _, e := range events {
		size += len(e.Data)
	}
	q, err := t.Quotas.OfOpen(t.Tx, organization)
	if err != nil || estimate <= maxDeliveries && size <= maxFiltered && q.Limit == nil {
		return err
	}
	deliveries, filters, filtered, bytes := 0, 0, 0, 0
	for i, e := range events {
		if published[i].Repeated {
			continue
		}
		subscriptions, err := t.Fanout.Receivers(t.Tx, organization, 0, e.Type)
		if err != nil {
			return err
		}
		if n := fanout.Filters(subscriptions); n > 0 {
			filters, filtered = filters+n, filtered+len(e.Data)
		}
		if filters > maxFilters || filtered > maxFiltered {
			return fault.New(fault.Invalid, "too_many_filters", "Subscriptions with filters want these events, and one request may evaluate at most %d filters "+
				"on %d MiB of events. Nothing was published. Split the batch: send at most %d of these events in a request.", maxFilters, maxFiltered>>20, max(i, 1))
		}
		subscriptions, _ = fanout.Passing(subscriptions, e.Data)
		if deliveries += len(subscriptions); deliveries > maxDeliveries {
			return tooManyDeliveries(i, deliveries, len(events))
		}
		bytes += quota.Size(e, len(subscriptions))
	}
	if bytes == 0 {
		return nil
	}
	return t.Quotas.Require(t.Tx, organization, bytes)
}

// tooManyDeliveries says how many deliveries the first events of n need, up to the i-th.
func tooManyDeliveries(i, deliveries, n int) error {
	if n == 1 {
		return fault.New(fault.Invalid, "too_many_deliveries",
			"This event needs %d deliveries; one request may create at most %d. Narrow the event_types of your subscriptions.",
			deliveries, maxDeliveries)
	}
	return fault.New(fault.Invalid, "too_many_deliveries",
		"The first %d of these %d events need %d deliveries; one request may create at most %d. "+
			"Nothing was published. Split the batch: send at most %d of these events in a request.",
		i+1, n, deliveries, maxDeliveries, max(i, 1))
}
