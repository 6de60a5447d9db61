package dispatch

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
)

// auditRequested asks the scheduler to check its counters.
type auditRequested struct{ reply chan error }

func (m auditRequested) apply(s *scheduler) { m.reply <- s.audit() }

// Audit compares what the scheduler counts for each organization with what its lanes use.
func (d *Dispatcher) Audit() error {
	m := auditRequested{make(chan error, 1)}
	d.inbox.post(m)
	select {
	case err := <-m.reply:
		return err
	case <-d.stopped:
		return nil
	}
}

func (s *scheduler) audit() error {
	lanes, used, late := map[*orgLanes]int{}, map[*orgLanes][resourceKinds]int{}, 0
	bodies := map[int64]bool{}
	for _, l := range s.lanes {
		if org := s.orgs[l.org.id]; org != l.org {
			return fmt.Errorf("lane %d belongs to another orgLanes than organization %d", l.subscription, l.org.id)
		}
		of := used[l.org]
		lanes[l.org]++
		of[beginPlaces] += l.beginning + l.begun.n
		of[sendSlots] += l.sending
		if l.reading {
			of[readSlots]++
		}
		if l.late {
			late++
		}
		waiting := map[*attempt]bool{}
		for a := l.head.first; a != nil; a = a.next {
			waiting[a] = true
		}
		for _, a := range l.attempts {
			if a.probe && !waiting[a] {
				of[probePlaces]++
			}
			if a.weight > 0 {
				of[memoryBytes] += jobWeight
				if !bodies[a.Event] {
					bodies[a.Event] = true
					of[memoryBytes] += len(s.bodies[a.Event].bytes)
				}
			}
		}
		used[l.org] = of
	}
	var total [resourceKinds]int
	for organization, org := range s.orgs {
		if org.lanes != lanes[org] || org.used != used[org] {
			return fmt.Errorf("organization %d has %d lanes that use %v, but %d and %v are counted", organization, lanes[org], used[org], org.lanes, org.used)
		}
		for kind, n := range org.used {
			total[kind] += n
		}
	}
	for kind := range s.resources {
		if s.resources[kind].used != total[kind] {
			return fmt.Errorf("organizations use %d of resource %d, but %d is counted", total[kind], kind, s.resources[kind].used)
		}
	}
	if s.steps.lateLanes != late {
		return fmt.Errorf("%d lanes are late, but %d are counted", late, s.steps.lateLanes)
	}
	return nil
}

// newTestScheduler makes a scheduler that does not run and has no store.
func newTestScheduler(tb testing.TB) *scheduler {
	tb.Helper()
	d, err := New(nil, Options{Transport: http.DefaultTransport, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return newScheduler(d, &worker{Dispatcher: d})
}
