package faultdisk_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// For a long run: go test ./storage/faultdisk -run PowerCut -cuts 1000 -timeout 60m -v
var cuts = flag.Int("cuts", 40, "how often the power fails in TestPowerCut with synchronous=full")

// maxCutsOfFile bounds what a long run needs on the disk: each cut leaves a copy of a file that grows.
const maxCutsOfFile = 100

// The power fails repeatedly while events are published. With synchronous=full no acknowledged event is lost. With
// normal the last moments may be lost. Neither damages the file.
func TestPowerCut(t *testing.T) {
	for _, tt := range []struct {
		synchronous string
		cuts        int
		loses       bool
	}{{storage.Full, *cuts, false}, {storage.Normal, 12, true}} {
		t.Run(tt.synchronous, func(t *testing.T) {
			faultdisk.Track(true)
			defer faultdisk.Track(false)
			total, lost := 0, 0
			for left := tt.cuts; left > 0; left -= maxCutsOfFile {
				t.Run(fmt.Sprintf("%d left", left), func(t *testing.T) {
					expected, gone := cutPower(t, tt.synchronous, min(left, maxCutsOfFile))
					total, lost = total+expected, lost+gone
				})
			}
			if (lost > 0) != tt.loses {
				t.Errorf("%d of %d acknowledged events are lost", lost, total)
			}
			t.Logf("%d cuts, %d times an acknowledged event had to be there, %d times it was lost", tt.cuts, total, lost)
		})
	}
}

// cutPower cuts the power that often while events are published into a new file. It returns the sum, over the cuts, of the events that were
// acknowledged before a cut, and of those that were lost.
func cutPower(t *testing.T, synchronous string, cuts int) (expected, lost int) {
	t.Helper()
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	chance := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	o := options(t, filepath.Join(dir, "keyhook.db"))
	o.Synchronous = synchronous
	store, stop := storagetest.OpenWith(t, o)
	owner := storagetest.Operator(t, store)
	storagetest.Subscription(t, store, owner, "https://example.com/hook")

	var mu sync.Mutex
	var acked []string
	progress := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var publishers sync.WaitGroup
	for range 3 {
		publishers.Go(func() {
			for ctx.Err() == nil {
				published, err := store.Queue.PublishEvents(context.WithoutCancel(ctx), owner.Organization.RowID,
					[]webhook.NewEvent{{Type: "a", Data: []byte(`{"n":1}`)}})
				if err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				mu.Lock()
				acked = append(acked, published[0].ID)
				mu.Unlock()
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	type cut struct {
		dir   string
		acked []string
	}
	var made []cut
	for range cuts {
		for range 1 + chance.IntN(20) {
			<-progress
		}
		mu.Lock()
		c := cut{t.TempDir(), slices.Clone(acked)} // later events may be lost or not
		mu.Unlock()
		if err := faultdisk.Cut(dir, c.dir, chance); err != nil {
			t.Fatal(err)
		}
		made = append(made, c)
	}
	cancel()
	publishers.Wait()
	stop()

	for i, c := range made {
		after := open(t, filepath.Join(c.dir, "keyhook.db")) // open also checks the file
		if err := after.publish(t, 10); err != nil {
			t.Errorf("after cut %d: %v", i, err)
		}
		after.close(t)
		expected += len(c.acked)
		lost += countLost(c.acked, events(t, after.path))
	}
	return expected, lost
}
