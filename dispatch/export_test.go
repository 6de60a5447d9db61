package dispatch

import (
	"log/slog"
	"net/http"
	"testing"
)

// CheckRounds makes the scheduler check its counters after each round, and every move of an attempt. It reports the
// first error. Call it before Run.
func (d *Dispatcher) CheckRounds(report func(error)) {
	failed := false
	check := func(err error) {
		if err != nil && !failed {
			failed = true
			report(err)
		}
	}
	d.checks = checks{
		onMove:  func(a *attempt, to stage) { check(checkMove(a, to)) },
		onRound: func(s *scheduler) { check(s.checkCounters()) },
	}
}

// newTestScheduler makes a scheduler that does not run and has no store.
func newTestScheduler(tb testing.TB) *scheduler {
	tb.Helper()
	d, err := New(nil, Options{Transport: http.DefaultTransport, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	d.CheckRounds(func(err error) { tb.Error(err) })
	return newScheduler(d, &worker{Dispatcher: d})
}
