package scan_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
)

// slowSearch finds nothing in a log without an end. Each slice takes 300 ms.
type slowSearch struct{ slices int }

func (*slowSearch) Bound(_ context.Context, high scan.Position, rows int) (scan.Position, error) {
	return scan.Position{Row: high.Row - int64(rows)}, nil
}

func (s *slowSearch) Read(context.Context, scan.Position, scan.Position) (bool, error) {
	s.slices++
	time.Sleep(300 * time.Millisecond)
	return false, nil
}

// TestASlowSearchEnds searches for a second, not counting the pauses, and says how far it came.
func TestASlowSearchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, search := scan.NewReader(nil, 1, 0), &slowSearch{}
		began := time.Now()
		reached, err := logs.Walk(t.Context(), scan.Position{Row: 1_000_000}, search, 0)
		if took := time.Since(began); search.slices != 4 || took != 7*300*time.Millisecond || err != nil {
			t.Errorf("%d slices in %s, error %v", search.slices, took, err)
		}
		if reached.Row <= 0 || reached.Row >= 1_000_000 {
			t.Errorf("it came to %+v", reached)
		}
	})
}

// TestAReadWithoutAConnectionGivesItsTurnBack has an organization ask for the only connection, which another one uses.
func TestAReadWithoutAConnectionGivesItsTurnBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := scan.NewReader(nil, 1, time.Second)
		nothing := func() error { return nil }
		if err := logs.Do(t.Context(), 1, func() error {
			for range 40 { // more than may wait
				if err := logs.Do(t.Context(), 2, nothing); fault.KindOf(err) != fault.Unavailable {
					return fmt.Errorf("error %w", err)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := logs.Do(t.Context(), 2, nothing); err != nil {
			t.Fatalf("its turn did not come back: %v", err)
		}
	})
}
