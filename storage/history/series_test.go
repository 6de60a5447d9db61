package history_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestSeriesOfManyMinutes has one attempt in each minute of two weeks, which several reads count in steps of a day.
func TestSeriesOfManyMinutes(t *testing.T) {
	t.Parallel()
	x := storagetest.CustomerOf(t, storagetest.Open(t))
	const first, days, day = 20_000, 14, 24 * 60
	for _, subscription := range []int64{0, x.Sub.RowID} { // 0 is the whole organization
		storagetest.Exec(t, x.Store, `
			WITH RECURSIVE m (minute) AS (SELECT ?1 UNION ALL SELECT minute + 1 FROM m WHERE minute < ?1 + ?2)
			INSERT INTO attempt_minutes SELECT ?3, ?4, minute, 1, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM m`,
			first*day, days*day-1, x.Org(), subscription)
	}
	of := storagetest.Must[[]webhook.MinuteCounts](t)(x.History.Series(t.Context(), x.Org(), x.Sub.ID, first*day, (first+days)*day, day))
	all := storagetest.Must[[]webhook.MinuteCounts](t)(x.History.Series(t.Context(), x.Org(), "", first*day, (first+days)*day, day))
	if len(of) != days || len(all) != days {
		t.Fatalf("%+v\n%+v", of, all)
	}
	for i := range days {
		if all[i].Succeeded != day || all[i].Failed != 2*day || of[i].Succeeded != day || of[i].Failed != 2*day {
			t.Errorf("day %d: %+v, of the subscription %+v", i, all[i], of[i])
		}
	}
}

func TestSeries(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := storagetest.CustomerOf(t, store)
		other, _ := storagetest.Subscription(t, store, x.Owner, "https://example.com/other", "b")
		attempt := func(s webhook.Subscription, eventType string, succeeded bool, took int64) {
			t.Helper()
			storagetest.Publish(t, store, x.Owner, eventType)
			jobs, err := store.Queue.PendingJobs(t.Context(), s.RowID, 0, 1000, nil)
			if err != nil {
				t.Fatal(err)
			}
			job := jobs[len(jobs)-1]
			r := webhook.Result{
				Attempt: x.Begin(t, job), Delivery: job.Delivery, Subscription: s.RowID, Epoch: 1, Number: job.Number(),
				Succeeded: succeeded, DurationMS: took, RetryAt: time.Now().Add(24 * time.Hour).UnixMilli(),
			}
			if !succeeded {
				r.Failure = webhook.Failure{Class: webhook.HTTPStatus, Text: "500"}
			}
			if _, err := store.Queue.Record(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		first := time.Now().Unix() / 60
		attempt(x.Sub, "a", true, 10)
		attempt(x.Sub, "a", true, 11)
		attempt(x.Sub, "a", false, 10_001)
		time.Sleep(2 * time.Minute)
		attempt(other, "b", true, 0)
		_, job, row, err := store.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Queue.Record(t.Context(), webhook.Result{
			Attempt: row, Delivery: job.Delivery, Subscription: x.Sub.RowID, Epoch: 1, Number: 1, Trigger: webhook.ByTest, Succeeded: true,
		}); err != nil {
			t.Fatal(err)
		}

		one := webhook.MinuteCounts{Minute: first, AttemptCounts: webhook.AttemptCounts{Succeeded: 2, Failed: 1, Took: webhook.Durations{0: 1, 1: 1, 10: 1}}}
		two := webhook.MinuteCounts{Minute: first + 2, AttemptCounts: webhook.AttemptCounts{Succeeded: 1, Took: webhook.Durations{0: 1}}}
		both := one
		both.Merge(two.AttemptCounts)
		hour := first - first%60
		both.Minute = hour
		for _, test := range []struct {
			name               string
			subscription       string
			since, until, step int64
			want               []webhook.MinuteCounts
		}{
			{"by the minute", "", first, first + 3, 1, []webhook.MinuteCounts{one, two}},
			{"of one subscription", x.Sub.ID, first, first + 3, 1, []webhook.MinuteCounts{one}},
			{"in larger steps", "", hour, hour + 60, 60, []webhook.MinuteCounts{both}},
			{"until excludes, since includes", "", first, first + 2, 1, []webhook.MinuteCounts{one}},
			{"of nothing", "", first + 3, first + 10, 1, []webhook.MinuteCounts{}},
		} {
			got, err := store.History.Series(t.Context(), x.Org(), test.subscription, test.since, test.until, test.step)
			if d := cmp.Diff(test.want, got); err != nil || d != "" {
				t.Errorf("%s: %v (-want +got):\n%s", test.name, err, d)
			}
		}

		stranger, _ := storagetest.Organization(t, store, "other", "growth", access.RoleOwner)
		if all, err := store.History.Series(t.Context(), access.AllOrganizations, "", first, first+3, 1); err != nil || !cmp.Equal(all, []webhook.MinuteCounts{one, two}) {
			t.Errorf("all organizations: %v, %v", all, err)
		}
		if got, err := store.History.Series(t.Context(), stranger.Organization.RowID, "", first, first+10, 1); err != nil || len(got) != 0 {
			t.Errorf("another organization sees %v, %v", got, err)
		}
		if _, err := store.History.Series(t.Context(), stranger.Organization.RowID, x.Sub.ID, first, first+10, 1); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another organization's subscription: %v", err)
		}

		time.Sleep(45 * time.Minute)
		if got, err := store.History.Series(t.Context(), x.Org(), "", first, first+10, 1); err != nil || len(got) != 2 {
			t.Errorf("after 47 minutes: %v, %v", got, err)
		}
		time.Sleep(30 * time.Minute) // retention reads minutes every ten minutes
		for _, organization := range []int64{x.Org(), access.AllOrganizations} {
			if got, err := store.History.Series(t.Context(), organization, "", first, first+10, 1); err != nil || len(got) != 0 {
				t.Errorf("organization %d after 77 minutes: %v, %v", organization, got, err)
			}
		}
	})
}
