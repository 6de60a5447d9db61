package dispatch

import (
	"fmt"
)

// audited asks the scheduler to check its books.
type audited struct{ answer chan error }

func (m audited) apply(s *scheduler) { m.answer <- s.audit() }

// Audit compares what the scheduler has counted for each organization with what its lanes use.
func (d *Dispatcher) Audit() error {
	m := audited{make(chan error, 1)}
	d.inbox.post(m)
	select {
	case err := <-m.answer:
		return err
	case <-d.ended:
		return nil
	}
}

func (s *scheduler) audit() error {
	lanes, used, late := map[*tenant]int{}, map[*tenant][rings]int{}, 0
	bodies := map[int64]bool{}
	for _, l := range s.lanes {
		if t := s.tenants[l.tenant.organization]; t != l.tenant {
			return fmt.Errorf("lane %d belongs to another tenant than organization %d", l.subscription, l.tenant.organization)
		}
		of := used[l.tenant]
		lanes[l.tenant]++
		of[toBegin] += l.chosen + l.begun.n
		of[toLaunch] += l.wire
		if l.reading {
			of[toRead]++
		}
		if l.late {
			late++
		}
		waiting := map[*attempt]bool{}
		for a := l.head.first; a != nil; a = a.next {
			waiting[a] = true
		}
		for _, a := range l.held {
			if a.probe && !waiting[a] {
				of[toProbe]++
			}
			if a.weight > 0 {
				of[toMemory] += jobWeight
				if !bodies[a.Event] {
					bodies[a.Event] = true
					of[toMemory] += len(s.bodies[a.Event].bytes)
				}
			}
		}
		used[l.tenant] = of
	}
	var all [rings]int
	for organization, t := range s.tenants {
		if t.lanes != lanes[t] || t.used != used[t] {
			return fmt.Errorf("organization %d has %d lanes that use %v, but %d and %v are counted", organization, lanes[t], used[t], t.lanes, t.used)
		}
		for kind, n := range t.used {
			all[kind] += n
		}
	}
	for kind := range s.turns {
		if s.turns[kind].used != all[kind] {
			return fmt.Errorf("organizations use %d of resource %d, but %d is counted", all[kind], kind, s.turns[kind].used)
		}
	}
	if s.delays.late != late {
		return fmt.Errorf("%d lanes are late, but %d are counted", late, s.delays.late)
	}
	return nil
}
