package storage_test

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestRetentionWaitsForAttemptsOfEndedDeliveries has events grow old while their only attempt is on the wire. The record of that attempt
// must exist when it ends, in any state of the delivery.
func TestRetentionWaitsForAttemptsOfEndedDeliveries(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, x fixture) (webhook.Job, int64){
		"of a test": func(t *testing.T, x fixture) (webhook.Job, int64) {
			_, job, attempt, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
			if err != nil {
				t.Fatal(err)
			}
			return job, attempt
		},
		"of a delivery that was dropped": func(t *testing.T, x fixture) (webhook.Job, int64) {
			x.Publish(t, 1, "user.created")
			job := x.Jobs(t)[0]
			attempt := x.Begin(t, job)
			if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0); err != nil || n != 1 {
				t.Fatalf("%d discarded, error %v", n, err)
			}
			return job, attempt
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			job, attempt := begin(t, x)
			future := time.Now().Add(time.Hour).UnixMilli()
			if _, err := x.DeleteEvents(t.Context(), future); err != nil {
				t.Fatal(err)
			}
			if _, _, err := x.History.Event(t.Context(), x.Org(), job.EventID); err != nil {
				t.Errorf("while the attempt is on the wire: %v", err)
			}
			x.End(t, job, attempt, true)
			if _, err := x.DeleteEvents(t.Context(), future); err != nil {
				t.Fatal(err)
			}
			if _, _, err := x.History.Event(t.Context(), x.Org(), job.EventID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("after its end: %v", err)
			}
		})
	}
}
