package fair_test

import (
	"testing"

	"github.com/keyhook/keyhook/dispatch/fair"
)

func TestPool(t *testing.T) {
	t.Parallel()

	t.Run("an organization alone gets all except an eighth, and at least one", func(t *testing.T) {
		t.Parallel()
		for all, want := range map[int]int{1: 1, 2: 2, 7: 7, 8: 7, 12: 11, 16: 14, 32: 28, 64: 56, 100: 88, 256: 224, 14 << 20: 14 << 20 / 8 * 7} {
			p := fair.Pool{Capacity: all}
			for p.Allows(p.Used, 1) && p.Used < want+1 {
				p.Used = max(p.Used+1, want-5) // skip most of the bytes
			}
			if p.Used != want || p.Share(want) != want {
				t.Errorf("%d of %d, the share is %d", p.Used, all, p.Share(want))
			}
		}
	})

	t.Run("a newcomer finds room, however many organizations take all they can, in any order", func(t *testing.T) {
		t.Parallel()
		for greedy := 1; greedy <= 100; greedy++ {
			for name, inTurn := range map[string]bool{"in turn": true, "one after the other": false} {
				p, mine := fair.Pool{Capacity: 256}, make([]int, greedy)
				for more := true; more; {
					more = false
					for i := range mine {
						for p.Allows(mine[i], 1) {
							mine[i]++
							p.Used++
							if more = true; inTurn {
								break
							}
						}
					}
				}
				newcomer := 0
				for ; p.Allows(newcomer, 1); newcomer++ {
					p.Used++
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

func TestLedger(t *testing.T) {
	t.Parallel()
	l := fair.NewLedger(100)
	l.Charge(1, 60)
	l.Charge(2, 5)
	if l.Used != 65 || l.UsedBy(1) != 60 || l.UsedBy(2) != 5 || l.UsedBy(3) != 0 {
		t.Errorf("used %d, by each %d, %d, %d", l.Used, l.UsedBy(1), l.UsedBy(2), l.UsedBy(3))
	}
	// 95 are not used by others. An eighth of all, 12, stays free.
	if left := l.Left(1); left != 95-12-60 || !l.Allows(1, left) || l.Allows(1, left+1) {
		t.Errorf("the first may use %d more", left)
	}
	if !l.Allows(3, 35) || l.Allows(3, 36) {
		t.Error("a newcomer may not take exactly what is free")
	}
	l.Charge(1, -60)
	if l.UsedBy(1) != 0 || l.Used != 5 {
		t.Errorf("used %d after a return", l.Used)
	}
	if n := l.Payers(); n != 1 {
		t.Errorf("it remembers %d payers, but only one uses anything", n)
	}
	if l.Clear(); l.Used != 0 || l.UsedBy(2) != 0 {
		t.Errorf("used %d after all was returned", l.Used)
	}
}
