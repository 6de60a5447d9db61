package seeds_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest/seeds"
)

func TestTheSameSeedGivesTheSameJitter(t *testing.T) {
	t.Parallel()
	draw := func(seed int) (numbers []float64) {
		jitter := seeds.Jitter(seed)
		for range 100 {
			n := jitter()
			if n < 0 || n >= 1 {
				t.Errorf("seed %d gave %f", seed, n)
			}
			numbers = append(numbers, n)
		}
		return numbers
	}
	if first := draw(7); !slices.Equal(first, draw(7)) || slices.Equal(first, draw(8)) {
		t.Error("the jitter does not follow from the seed alone")
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	run := func() (lines []string) {
		synctest.Test(t, func(*testing.T) {
			r := &seeds.Trace{}
			for _, name := range []string{"one", "two", "one"} {
				began := time.Now()
				r.Delay("step", name)
				if took := time.Since(began); took < 0 || took >= 10*time.Millisecond {
					t.Errorf("%s took %s", name, took)
				}
				r.Note("%s after %s", name, time.Since(began))
			}
			lines = r.Lines()
		})
		return lines
	}
	first := run()
	if !slices.Equal(first, run()) {
		t.Error("the same names gave two traces")
	}
	if len(first) != 3 || first[0][len("15:04:05.000000000 "):] != first[2][len("15:04:05.000000000 "):] || first[0] == first[1] {
		t.Errorf("%q", first)
	}
	var none *seeds.Trace
	none.Note("nothing")
	none.Delay("nothing")
}
