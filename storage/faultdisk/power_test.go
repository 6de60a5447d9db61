package faultdisk_test

import (
	"context"
	"flag"
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

// The power fails repeatedly while events are published. With synchronous=full no acknowledged event is lost. With
// normal the last moments may be lost. Neither damages the file.
func TestPowerCut(t *testing.T) {
	for _, tt := range []struct {
		synchronous string
		cuts        int
		loses       bool
	}{{storage.Full, *cuts, false}, {storage.Normal, 12, true}} {
		t.Run(tt.synchronous, func(t *testing.T) {
			seed := rand.Uint64()
			chance := rand.New(rand.NewPCG(seed, 0))
			dir := t.TempDir()
			faultdisk.Track(true)
			defer faultdisk.Track(false)
			o := options(t, filepath.Join(dir, "keyhook.db"))
			o.Synchronous = tt.synchronous
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
			for range tt.cuts {
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
			faultdisk.Track(false)

			total, gone := 0, 0
			for i, c := range made {
				after := open(t, filepath.Join(c.dir, "keyhook.db")) // open also checks the file
				if err := after.publish(t, 10); err != nil {
					t.Errorf("after cut %d: %v", i, err)
				}
				after.close(t)
				total += len(c.acked)
				gone += countLost(c.acked, events(t, after.path))
			}
			if (gone > 0) != tt.loses {
				t.Errorf("%d of %d acknowledged events are lost (seed %d)", gone, total, seed)
			}
			t.Logf("%d cuts, %d events acknowledged before them, %d lost", len(made), total, gone)
		})
	}
}
