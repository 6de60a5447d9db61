package storage

import (
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	// maxDeliveries is how many deliveries one request may make. That takes the writer about a tenth of a second, for which
	// all others wait.
	maxDeliveries = 10_000
	// pageSize is the size of a database page in bytes. To write one takes about as long as to write a row.
	pageSize = 4096
)

// publishCost returns about how many rows events will write.
func publishCost(t *tx, organization int64, events []webhook.NewEvent) (int, error) {
	cost, err := mostDeliveries(t, organization, events)
	for _, e := range events {
		cost += 1 + len(e.Data)/pageSize
	}
	return cost, err
}

// mostDeliveries returns how many deliveries events make at most. It stops counting where they are too many.
func mostDeliveries(t *tx, organization int64, events []webhook.NewEvent) (most int, err error) {
	for i := 0; i < len(events) && most <= maxDeliveries; i++ {
		wanting, err := t.wanting(organization, events[i].Type)
		if err != nil {
			return 0, err
		}
		most += len(wanting)
	}
	return most, nil
}

// boundDeliveries refuses events that would make too many deliveries. It stops at the event that makes the one too many,
// so a refusal costs no more than an acceptance.
func boundDeliveries(t *tx, organization int64, events []webhook.NewEvent, published []webhook.Published) error {
	if most, err := mostDeliveries(t, organization, events); err != nil || most <= maxDeliveries {
		return err
	}
	total := 0
	for i, e := range events {
		if published[i].Replayed {
			continue
		}
		to, err := receivers(t, organization, 0, e.Type)
		if err != nil {
			return err
		}
		if total += len(to); total > maxDeliveries {
			return tooManyDeliveries(i, total, len(events))
		}
	}
	return nil
}

// tooManyDeliveries says that the events up to the i-th of n make so many deliveries.
func tooManyDeliveries(i, deliveries, n int) error {
	if n == 1 {
		return fault.New(fault.Invalid, "too_many_deliveries",
			"This event would make %d deliveries; one request may make at most %d. Narrow the event_types of your subscriptions.",
			deliveries, maxDeliveries)
	}
	return fault.New(fault.Invalid, "too_many_deliveries",
		"The first %d of these %d events would make %d deliveries; one request may make at most %d. "+
			"Nothing was published. Split the batch: send at most %d of these events in a request.",
		i+1, n, deliveries, maxDeliveries, max(i, 1))
}
