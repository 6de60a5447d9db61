package fair_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/dispatch/fair"
)

// waiter waits at one resource for one payer.
type waiter struct {
	name  int
	payer *fair.Account[*waiter]
	turn  fair.Turn[*waiter]
}

func newWaiter(name int, payer *fair.Account[*waiter]) *waiter {
	return &waiter{name: name, payer: payer}
}

func (w *waiter) wait(r *fair.Resource[*waiter]) { r.Wait(w.payer, &w.turn, w) }

func newResource(capacity int) *fair.Resource[*waiter] {
	return &fair.Resource[*waiter]{Pool: fair.Pool{Capacity: capacity}}
}

func TestResourceGoesToThePayerThatUsesLeast(t *testing.T) {
	t.Parallel()
	r, payers := newResource(256), make([]fair.Account[*waiter], 4)
	var all []*waiter
	for name := range 6 {
		all = append(all, newWaiter(name, &payers[name/3]))
	}
	for _, w := range append(all, newWaiter(9, &payers[3])) {
		w.wait(r)
		w.wait(r) // waits already
	}
	var order []int
	for w := r.Next(1); w != nil; w = r.Next(1) {
		order = append(order, w.name)
		r.Charge(w.payer, 1)
	}
	// First one waiter of each payer, then the others of those that have more.
	if got := fmt.Sprint(order); got != "[0 3 9 1 4 2 5]" || all[0].turn.Waits() {
		t.Errorf("turns in the order %s", got)
	}
	if r.Used != 7 || payers[0].Used() != 3 {
		t.Errorf("%d used, %d by the first", r.Used, payers[0].Used())
	}
	// A payer that has returned its slots goes first.
	for _, w := range all {
		w.wait(r)
	}
	r.Charge(&payers[1], -3)
	if w := r.Next(1); w.name != 3 {
		t.Errorf("the first turn is that of %d", w.name)
	}
	// Nobody gets more than there is.
	if r.Charge(&payers[3], 256-r.Used); r.HasNext(1) || r.Next(1) != nil {
		t.Error("somebody gets a turn at nothing")
	}
}

// TestTheNextTurnAfterAnyCharges goes to a payer that uses least, while all of them wait.
func TestTheNextTurnAfterAnyCharges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(check *rapid.T) {
		r, payers := newResource(1<<30), make([]fair.Account[*waiter], 6)
		for i := range payers {
			newWaiter(i, &payers[i]).wait(r)
		}
		for range 30 {
			payer := &payers[rapid.IntRange(0, len(payers)-1).Draw(check, "payer")]
			r.Charge(payer, rapid.IntRange(-payer.Used(), 5).Draw(check, "charge"))
			if !rapid.Bool().Draw(check, "next") {
				continue
			}
			w := r.Next(1)
			for i := range payers {
				if payers[i].Used() < w.payer.Used() {
					check.Fatalf("%d uses %d, and %d uses only %d", w.name, w.payer.Used(), i, payers[i].Used())
				}
			}
			w.wait(r)
		}
	})
}

// TestPayersTakeTurns gives a resource to payers that return it at once and wait again.
func TestPayersTakeTurns(t *testing.T) {
	t.Parallel()
	r, payers := newResource(3), make([]fair.Account[*waiter], 4)
	turns := func(n int) (order []int) {
		for range n {
			w := r.Next(1)
			order = append(order, w.name)
			w.wait(r)
		}
		return order
	}
	for name := range 3 {
		newWaiter(name, &payers[name]).wait(r)
	}
	first := turns(3)
	if got := fmt.Sprint(turns(3), turns(3)); got != fmt.Sprint(first, first) || fmt.Sprint(slices.Sorted(slices.Values(first))) != "[0 1 2]" {
		t.Errorf("the turns after %v are %s", first, got)
	}
	newWaiter(9, &payers[3]).wait(r)
	if order := turns(4); slices.Index(order, 9) < 2 || fmt.Sprint(turns(4)) != fmt.Sprint(order) {
		t.Errorf("with a newcomer, the turns are %v", order)
	}
}

// TestTurnsNeedNoMemory shows that waiting and taking turns allocate nothing.
func TestTurnsNeedNoMemory(t *testing.T) {
	r, payers := newResource(256), make([]fair.Account[*waiter], 2)
	one, two := newWaiter(1, &payers[0]), newWaiter(2, &payers[1])
	if n := testing.AllocsPerRun(100, func() {
		one.wait(r)
		two.wait(r)
		r.Charge(r.Next(1).payer, 1)
		r.Charge(r.Next(1).payer, 1)
		r.Charge(one.payer, -1)
		r.Charge(two.payer, -1)
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// The cost does not depend on the number of waiters.
func BenchmarkResourceNext(b *testing.B) {
	for _, waiters := range []int{10, 5000} {
		b.Run(fmt.Sprintf("beside %d waiters of another payer", waiters), func(b *testing.B) {
			r, payers := newResource(256), make([]fair.Account[*waiter], 2)
			for name := range waiters {
				newWaiter(name, &payers[0]).wait(r)
			}
			mine := newWaiter(waiters, &payers[1])
			for b.Loop() {
				mine.wait(r)
				for w := r.Next(1); w != nil; w = r.Next(1) {
					r.Charge(w.payer, 1)
					if w == mine {
						r.Charge(w.payer, -1)
					} else {
						w.wait(r)
					}
				}
			}
		})
	}
}
