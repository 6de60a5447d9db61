package history_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestAttemptFilters compares every combination of filters with the list of all attempts. Some of them are in progress.
func TestAttemptFilters(t *testing.T) {
	t.Parallel()
	x := storagetest.CustomerOf(t, storagetest.Open(t))
	events := []string{""}
	for _, eventType := range []string{"a", "b"} {
		for range 3 {
			events = append(events, x.Publish(t, 1, eventType)...)
		}
	}
	for _, job := range x.Jobs(t) {
		attempt := x.Begin(t, job)
		switch job.EventID {
		case events[1], events[4]:
			x.End(t, job, attempt, true)
		case events[2]:
			x.End(t, job, attempt, false)
		}
	}
	list := func(f webhook.AttemptFilter) []webhook.Attempt {
		t.Helper()
		f.Limit = 100
		return storagetest.Must[webhook.AttemptPage](t)(x.History.AttemptPage(t.Context(), x.Org(), x.Sub.ID, f)).Attempts
	}
	all := list(webhook.AttemptFilter{})
	if len(all) < len(events)-1 {
		t.Fatalf("the list has only %d attempts", len(all))
	}
	for _, outcome := range []*webhook.Outcome{nil, new(webhook.Succeeded), new(webhook.Failed), new(webhook.Interrupted), new(webhook.Sending)} {
		for _, eventType := range []string{"", "a", "b", "c"} {
			for _, event := range events {
				f := webhook.AttemptFilter{Outcome: outcome, EventType: eventType, EventID: event}
				want := []webhook.Attempt{}
				for _, a := range all {
					if (outcome == nil || a.Outcome == *outcome) && (eventType == "" || a.EventType == eventType) && (event == "" || a.EventID == event) {
						want = append(want, a)
					}
				}
				if d := cmp.Diff(want, list(f)); d != "" {
					t.Errorf("%+v (-want +got):\n%s", f, d)
				}
			}
		}
	}
}
