package pending_test

import (
	"slices"
	"testing"

	"github.com/keyhook/keyhook/storage/pending"
)

func TestAPassOverRemovedSubscriptionsIsBounded(t *testing.T) {
	t.Parallel()
	count := pending.NewCount()
	for row := range int64(5) {
		count.Add(row+1, 1)
		count.Remove(row + 1)
	}
	for _, want := range [][]int64{{1, 2}, {3, 4}, {5, 1}, {2, 3}} {
		if got := count.Orphaned(2); !slices.Equal(got, want) {
			t.Errorf("a pass visited %v, want %v", got, want)
		}
	}
}
