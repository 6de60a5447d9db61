package scan_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/scan"
)

func TestBatches(t *testing.T) {
	t.Parallel()

	t.Run("pauses as long as each step took, and not after the last one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			began, steps := time.Now(), 0
			err := scan.Batches(t.Context(), 0, func() (bool, error) {
				steps++
				time.Sleep(time.Second)
				return steps < 3, nil
			})
			if took := time.Since(began); steps != 3 || err != nil || took != 5*time.Second {
				t.Errorf("%d steps in %s, error %v", steps, took, err)
			}
		})
	})

	t.Run("ends after its limit, and without a pause", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := scan.Batches(t.Context(), 4*time.Second, func() (bool, error) {
				time.Sleep(time.Second)
				return true, nil
			})
			if took := time.Since(began); err != nil || took != 5*time.Second {
				t.Errorf("it took %s, error %v", took, err)
			}
		})
	})

	t.Run("ends with an error of a step, and with the context", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			failure := errors.New("failure")
			if err := scan.Batches(t.Context(), 0, func() (bool, error) { return true, failure }); err != failure {
				t.Errorf("error %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			err := scan.Batches(ctx, 0, func() (bool, error) {
				time.Sleep(time.Minute)
				return true, nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
}

func TestRows(t *testing.T) {
	t.Parallel()
	rows, seen := []int64{3, 5, 8, 13}, []int64{}
	err := scan.Rows(t.Context(), func(after int64) (int64, error) {
		seen = append(seen, after)
		for _, row := range rows {
			if row > after {
				return row, nil
			}
		}
		return 0, nil
	})
	if want := append([]int64{0}, rows...); err != nil || !slices.Equal(seen, want) {
		t.Errorf("steps after %v, want %v, error %v", seen, want, err)
	}
}
