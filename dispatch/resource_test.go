package dispatch

import (
	"fmt"
	"slices"
	"testing"
)

func TestPool(t *testing.T) {
	t.Parallel()

	t.Run("an organization alone gets all except an eighth, and at least one", func(t *testing.T) {
		t.Parallel()
		for all, want := range map[int]int{1: 1, 2: 2, 7: 7, 8: 7, 12: 11, 16: 14, 32: 28, 64: 56, 100: 88, 256: 224, maxMemory: maxMemory / 8 * 7} {
			p := pool{capacity: all}
			for p.allows(p.used, 1) && p.used < want+1 {
				p.used = max(p.used+1, want-5) // skip most of the bytes
			}
			if p.used != want || p.share(want) != want {
				t.Errorf("%d of %d, the share is %d", p.used, all, p.share(want))
			}
		}
	})

	t.Run("a newcomer finds room, however many organizations take all they can, in any order", func(t *testing.T) {
		t.Parallel()
		for greedy := 1; greedy <= 100; greedy++ {
			for name, inTurn := range map[string]bool{"in turn": true, "one after the other": false} {
				p, mine := pool{capacity: 256}, make([]int, greedy)
				for more := true; more; {
					more = false
					for i := range mine {
						for p.allows(mine[i], 1) {
							mine[i]++
							p.used++
							if more = true; inTurn {
								break
							}
						}
					}
				}
				newcomer := 0
				for ; p.allows(newcomer, 1); newcomer++ {
					p.used++
				}
				want := 1
				switch {
				case inTurn && greedy <= 14:
					want = 10
				case greedy <= 3:
					want = 5
				}
				if newcomer < want && (inTurn || greedy <= 8) {
					t.Errorf("%d %s: the newcomer gets %d, want %d", greedy, name, newcomer, want)
				}
			}
		}
	})
}

func TestResourceGoesToTheOrganizationThatUsesLeast(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	for subscription := range int64(6) {
		s.resources[sendSlots].wait(s.laneOf(subscription, subscription/3))
	}
	s.resources[sendSlots].wait(s.laneOf(9, 9))
	var order []int64
	for l := s.resources[sendSlots].next(1); l != nil; l = s.resources[sendSlots].next(1) {
		order = append(order, l.subscription)
		s.charge(l, sendSlots, 1)
	}
	// First one lane of each organization, then the others of those that have more.
	if got := fmt.Sprint(order); got != "[0 3 9 1 4 2 5]" {
		t.Errorf("turns in the order %s", got)
	}
	// An organization that has returned its slots goes first.
	for subscription := range int64(6) {
		s.resources[sendSlots].wait(s.laneOf(subscription, subscription/3))
	}
	s.charge(s.laneOf(3, 1), sendSlots, -3)
	if l := s.resources[sendSlots].next(1); l.subscription != 3 {
		t.Errorf("the first turn is that of %d", l.subscription)
	}
}

// TestOrganizationsTakeTurns gives a resource to organizations that return it at once and wait again.
func TestOrganizationsTakeTurns(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	reads := &s.resources[readSlots]
	turns := func(n int) (order []int64) {
		for range n {
			l := reads.next(1)
			order = append(order, l.org.id)
			reads.wait(l)
		}
		return order
	}
	for organization := range int64(3) {
		reads.wait(s.laneOf(organization, organization))
	}
	first := turns(3)
	if got := fmt.Sprint(turns(3), turns(3)); got != fmt.Sprint(first, first) || fmt.Sprint(slices.Sorted(slices.Values(first))) != "[0 1 2]" {
		t.Errorf("the turns after %v are %s", first, got)
	}
	reads.wait(s.laneOf(9, 9))
	if order := turns(4); slices.Index(order, 9) < 2 || fmt.Sprint(turns(4)) != fmt.Sprint(order) {
		t.Errorf("with a newcomer, the turns are %v", order)
	}
}

// The cost does not depend on the number of waiting lanes.
func BenchmarkResourceNext(b *testing.B) {
	for _, lanes := range []int64{10, 5000} {
		b.Run(fmt.Sprintf("beside %d lanes of another organization", lanes), func(b *testing.B) {
			s := newTestScheduler(b)
			q := &s.resources[sendSlots]
			for subscription := range lanes {
				q.wait(s.laneOf(subscription, 1))
			}
			mine := s.laneOf(lanes, 2)
			for b.Loop() {
				q.wait(mine)
				for l := q.next(1); l != nil; l = q.next(1) {
					s.charge(l, sendSlots, 1)
					if l == mine {
						s.charge(mine, sendSlots, -1)
					} else {
						q.wait(l)
					}
				}
			}
		})
	}
}

// TestNewDeliveriesLeavePlaces publishes many events at once to lanes that hang together, and one to another lane.
func TestNewDeliveriesLeavePlaces(t *testing.T) {
	t.Parallel()
	const organization, lanes, another = 1, 120, 1000
	o := newOpenings(1024)
	o.setClosed(false)
	for lane := range int64(lanes) {
		o.set(lane, room{limit: 16})
	}
	o.set(another, room{limit: 16})
	for range 16 {
		for lane := range int64(lanes) {
			o.take(organization, lane)
		}
	}
	if o.places.used < 512 || !o.take(organization, another) {
		t.Errorf("%d places were taken, and the other lane gets none", o.places.used)
	}
}
