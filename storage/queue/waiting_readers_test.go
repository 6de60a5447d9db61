package queue_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestWaitingReaders(t *testing.T) {
	t.Parallel()
	q := newFixture(t).Queue
	join := func(organization int64, n int) (chans []<-chan struct{}, leaves []func()) {
		for range n {
			c, leave, err := q.AwaitEvents(organization)
			if err != nil {
				storagetest.ExpectFault(t, err, fault.Limited, "too_many_readers")
				break
			}
			chans, leaves = append(chans, c), append(leaves, leave)
		}
		return chans, leaves
	}
	_, only := join(1, 1)
	only[0]()
	if n := q.WaitingReaders(); n != 0 {
		t.Errorf("%d places are taken after the only reader has left", n)
	}
	first, leaves := join(1, 17)
	if len(first) != 16 {
		t.Fatalf("%d readers of one organization wait", len(first))
	}
	for i := range int64(15) {
		join(2+i, 16)
	}
	if more, _ := join(99, 16); len(more) != 15 { // all 17 have 15 now, and one has 16
		t.Errorf("a further organization got %d places", len(more))
	}
	if more, _ := join(1, 1); len(more) != 0 {
		t.Error("a place was taken from an organization with as many readers")
	}
	if _, stays := <-first[0]; stays {
		t.Error("the longest wait of the largest organization goes on")
	}
	for _, leave := range leaves {
		leave()
	}
	if more, _ := join(1, 16); len(more) != 15 { // the places that were free again
		t.Errorf("%d wait after all have left", len(more))
	}
}

// TestAnEventWakesEveryReader of its organization that waits, and no other one.
func TestAnEventWakesEveryReader(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
	var readers []<-chan struct{}
	for _, organization := range []int64{x.Org(), x.Org(), other.Organization.RowID} {
		c, leave, err := x.Queue.AwaitEvents(organization)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		readers = append(readers, c)
	}
	x.Publish(t, 1, "user.created")
	if woken := [3]int{len(readers[0]), len(readers[1]), len(readers[2])}; woken != [3]int{1, 1, 0} {
		t.Errorf("woken: %v", woken)
	}
}
