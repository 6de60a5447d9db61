package storage_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

const aDay = 24 * time.Hour

// hourlyRetention returns options that keep events and audit events for an hour.
func hourlyRetention(t *testing.T) storage.Options {
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.KeepEvents, o.KeepAudit = time.Hour, time.Hour
	return o
}

// isDeleted reports whether an event was deleted.
func (x fixture) isDeleted(t *testing.T, id string) bool {
	t.Helper()
	_, _, err := x.History.Event(t.Context(), x.Org(), id)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	return err != nil
}

// disable disables the subscription, so that it does not keep old events.
func (x fixture) disable(t *testing.T) {
	t.Helper()
	x.SetActive(t, false)
}

// auditLines counts the audit events.
func (x fixture) auditLines(t *testing.T) int {
	t.Helper()
	log, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(log)
}

// clockWarning returns the warning about the clock.
func (x fixture) clockWarning(t *testing.T) string {
	t.Helper()
	return x.Clock().Warning()
}

// TestClockAhead starts with a clock that is 400 days ahead. Nothing is deleted, even after restarts, until an operator
// accepts the clock.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.disable(t)
		id := storagetest.Publish(t, store, x.Owner, "old").ID
		must[access.Session](t)(x.Directory.CreateSession(t.Context(), x.Owner, x.Actor(), access.MintSession()))
		if _, _, err := x.Subscriptions.RotateSecret(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.Rotation{Overlap: time.Hour}); err != nil {
			t.Fatal(err)
		}
		x.Missed(t, 1, "missed")
		lines := x.auditLines(t)
		shortLived := func() [2]int64 {
			return [2]int64{must[map[string]int64](t)(x.Rows(t.Context()))["sessions"], int64(must[int](t)(x.PreviousSecrets(t.Context())))}
		}
		time.Sleep(2 * time.Minute)
		if warning := x.clockWarning(t); warning != "" {
			t.Errorf("warned of a good clock: %s", warning)
		}
		stop()

		time.Sleep(400 * aDay)
		for range 2 {
			x.Store, stop = storagetest.OpenWith(t, o)
			time.Sleep(2 * time.Minute)
			if x.isDeleted(t, id) || x.auditLines(t) != lines || shortLived() != [2]int64{1, 1} {
				t.Errorf("deleted while the clock is doubted; %d sessions and previous secrets are left", shortLived())
			}
			if n, err := x.CountReplay(t.Context(), webhook.Replay{Only: webhook.OnlyMissed}); err != nil || n.Plan != 1 || x.EventRetention() != 0 {
				t.Errorf("a replay finds %+v, error %v, although nothing is deleted", n, err)
			}
			if warning := x.clockWarning(t); !strings.Contains(warning, "hours ahead since") {
				t.Errorf("warning %q", warning)
			}
			if state := x.Clock(); state.Trusted() || state.Jump().Round(aDay) != 400*aDay {
				t.Errorf("%+v", state)
			}
			stop()
		}
		if n := strings.Count(log.String(), "level=WARN msg=\"The clock has jumped 9600."); n != 2 {
			t.Errorf("%d warnings:\n%s", n, log.String())
		}

		x.Store, stop = storagetest.OpenWith(t, o)
		defer stop()
		for range 2 {
			if err := x.AcceptClock(t.Context(), x.Actor()); err != nil {
				t.Fatal(err)
			}
		}
		if !x.Clock().Trusted() || x.clockWarning(t) != "" {
			t.Errorf("%+v", x.Clock())
		}
		accepted, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 10, Type: access.ClockAccepted})
		if err != nil || len(accepted) != 1 || !strings.Contains(accepted[0].Details, `"jump_seconds":34560000`) {
			t.Errorf("%+v %v", accepted, err)
		}
		time.Sleep(2 * time.Minute)
		if !x.isDeleted(t, id) || x.auditLines(t) != 1 || shortLived() != [2]int64{} {
			t.Errorf("still there once the clock was accepted: %d lines, %d sessions and previous secrets", x.auditLines(t), shortLived())
		}
		stop()
		x.Store, stop = storagetest.OpenWith(t, o)
		defer stop()
		if !x.Clock().Trusted() {
			t.Error("doubted again after a restart")
		}
	})
}

// TestClockJumps makes the clock jump under a running store.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(x fixture)
		want bool // the old event is deleted
	}{
		"a jump ahead keeps what is old":          {func(x fixture) { x.MoveClock(2 * time.Hour) }, false},
		"a jump back keeps what is old":           {func(x fixture) { x.MoveClock(-2 * time.Hour) }, false},
		"a jump of an hour does not":              {func(x fixture) { x.MoveClock(59 * time.Minute) }, true},
		"a clock that is back is trusted":         {func(x fixture) { x.MoveClock(9 * aDay); time.Sleep(2 * time.Second); x.MoveClock(-9 * aDay) }, true},
		"a clock that ran for a day is trusted":   {func(x fixture) { x.MoveClock(9 * aDay); time.Sleep(2 * time.Second); x.AgeDoubt(aDay) }, true},
		"a clock that ran for a while is not":     {func(x fixture) { x.MoveClock(9 * aDay); time.Sleep(2 * time.Second); x.AgeDoubt(20 * time.Hour) }, false},
		"a clock that was back and jumped is not": {func(x fixture) { x.MoveClock(9 * aDay); time.Sleep(2 * time.Second); x.MoveClock(-aDay) }, false},
		"a second jump ahead begins the day again": {func(x fixture) {
			x.MoveClock(9 * aDay)
			time.Sleep(2 * time.Second)
			x.AgeDoubt(aDay - time.Minute)
			x.MoveClock(2 * aDay)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := hourlyRetention(t)
			synctest.Test(t, func(t *testing.T) {
				store, stop := storagetest.OpenWith(t, o)
				defer stop()
				x := fixtureOf(t, store)
				x.disable(t)
				id := storagetest.Publish(t, store, x.Owner, "old").ID
				if err := x.MoveEvents(t.Context(), 0, 100, 50*time.Second-time.Hour); err != nil {
					t.Fatal(err)
				}
				id = x.renamed(t, id)
				tt.do(x)
				time.Sleep(2 * time.Minute)
				if got := x.isDeleted(t, id); got != tt.want {
					t.Errorf("gone: %v; %+v", got, x.Clock())
				}
			})
		})
	}
}

// renamed returns the new id of the newest event after a change of its time, which is a part of the id.
func (x fixture) renamed(t *testing.T, was string) string {
	t.Helper()
	events, err := x.Events(t.Context(), x.Org(), 0, 1)
	if err != nil || len(events) != 1 || events[0].ID == was {
		t.Fatalf("%+v %v", events, err)
	}
	return events[0].ID
}

// TestRowsFromTheFuture writes 600 events and their audit log with a clock ten days ahead. Later events are deleted in
// time, and a replay finds them.
func TestRowsFromTheFuture(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	o.KeepEvents, o.KeepAudit = 4*time.Minute, 4*time.Minute
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.disable(t)
		x.SetWebhooks(t, false) // so that the events are missed
		for range 2 {
			x.Publish(t, 300, "ahead")
		}
		events, err := store.Events(t.Context(), x.Org(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.MoveEvents(t.Context(), 0, events[0].RowID, 10*aDay); err != nil {
			t.Fatal(err)
		}
		stop()
		x.Store, stop = storagetest.OpenWith(t, o)
		defer stop()
		ahead, err := x.Events(t.Context(), x.Org(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		lines := x.auditLines(t)
		x.SetActive(t, true)
		x.SetActive(t, false)
		later := x.Publish(t, 1, "later")[0]
		time.Sleep(2 * time.Minute)
		latest := x.Publish(t, 1, "latest")[0]
		time.Sleep(2*time.Minute + 20*time.Second)
		if !x.isDeleted(t, later) || x.isDeleted(t, latest) || x.isDeleted(t, ahead[0].ID) {
			t.Errorf("after some minutes: later is gone: %v, latest: %v, ahead: %v", x.isDeleted(t, later), x.isDeleted(t, latest), x.isDeleted(t, ahead[0].ID))
		}
		if n := x.auditLines(t); n != lines {
			t.Errorf("%d lines of the audit log, want the %d from the future", n, lines)
		}
		x.SetWebhooks(t, true)
		x.SetActive(t, true)
		since, until := time.Now().Add(-4*time.Minute).UnixMilli(), time.Now().UnixMilli()
		x.Replays(t, webhook.Replay{Since: since, Until: until, Only: webhook.OnlyAll, EventTypes: webhook.Types{"latest", "later", "ahead"}}, 1)
		x.Replays(t, webhook.Replay{Since: since, Only: webhook.OnlyAll, EventTypes: webhook.Types{"ahead"}}, 600)
	})
}

// TestRowsFromAClockThatWasBehind has rows that look old, because the clock was behind when they were written. They follow young rows, so
// they stay as long as these.
func TestRowsFromAClockThatWasBehind(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		defer stop()
		x := fixtureOf(t, store)
		x.disable(t)
		x.SetWebhooks(t, false)
		x.Publish(t, 1, "before")
		first := x.lastEvent(t)
		x.Publish(t, 300, "behind")
		x.SetActive(t, true)
		x.SetActive(t, false)
		lines := x.auditLines(t)
		if err := store.MoveEvents(t.Context(), first+1, x.lastEvent(t), -10000*aDay); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Minute)
		x.Publish(t, 1, "after")
		time.Sleep(time.Minute)
		if n := x.eventsOf(t, "behind"); n != 300 || x.auditLines(t) != lines {
			t.Errorf("%d events of 300 are left, and %d lines of %d in the audit log", n, x.auditLines(t), lines)
		}
		time.Sleep(21 * time.Minute)
		if behind, after := x.eventsOf(t, "behind"), x.eventsOf(t, "after"); behind != 0 || after != 1 {
			t.Errorf("after an hour, %d and %d events are left", behind, after)
		}
	})
}

func (x fixture) lastEvent(t *testing.T) int64 {
	t.Helper()
	events, err := x.Events(t.Context(), x.Org(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return events[0].RowID
}

func (x fixture) eventsOf(t *testing.T, eventType string) (n int) {
	t.Helper()
	events, err := x.Events(t.Context(), x.Org(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Type == eventType {
			n++
		}
	}
	return n
}
