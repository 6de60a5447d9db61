package storage_test

import (
	"slices"
	"testing"

	"github.com/keyhook/keyhook/storage"
)

func TestAPassOverRemovedSubscriptionsIsBounded(t *testing.T) {
	t.Parallel()
	got := storage.OrphanPasses(5, 2, 4)
	want := [][]int64{{1, 2}, {3, 4}, {5, 1}, {2, 3}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("passes visited %v, want %v", got, want)
	}
}
