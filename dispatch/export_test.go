package dispatch

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
)

// itemsPerRound is how many lanes and attempts one round may cost a check. With more of them in memory, the counters are
// checked after every few rounds, so that large tests stay quick.
const itemsPerRound = 64

// CheckRounds makes the scheduler check its counters after each round, and every move of an attempt. An error is a panic,
// because a scheduler that counts wrongly may hang, and a test that hangs does not say why.
func (d *Dispatcher) CheckRounds(tb testing.TB) {
	check := func(err error) {
		if err != nil {
			panic(fmt.Sprintf("%s: %v", tb.Name(), err))
		}
	}
	items := 0
	d.checks = checks{
		onMove: func(a *attempt, to stage) { check(checkMove(a, to)) },
		onRound: func(s *scheduler) {
			items += itemsPerRound
			if items >= s.size() {
				items = 0
				check(s.checkCounters())
			}
		},
	}
}

// size returns how many lanes and attempts are in memory.
func (s *scheduler) size() int {
	return len(s.lanes.of) + s.lanes.stages[queued] + s.lanes.stages.unsettled()
}

// newTestScheduler makes a scheduler that does not run and has no store.
func newTestScheduler(tb testing.TB) *scheduler {
	tb.Helper()
	d := New(nil, Options{Transport: http.DefaultTransport, Logger: slog.New(slog.DiscardHandler)})
	d.CheckRounds(tb)
	return newScheduler(d, &worker{Dispatcher: d})
}
