package storage_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The heaviest load of one customer: neighbourCallers parallel calls without pause. Each creates neighbourEvents *
// neighbourSubscriptions = 10,000 deliveries.
const (
	neighbourCallers       = 4
	neighbourSubscriptions = 1000
	neighbourEvents        = 10
)

// BenchmarkNeighbour measures how long a publish and a revocation of one customer take, alone and beside a neighbour at
// the limits: go test ./storage -run '^$' -bench Neighbour -benchtime 200x.
func BenchmarkNeighbour(b *testing.B) {
	for _, callers := range []int{0, neighbourCallers} {
		b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) {
			o := storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db"))
			o.Synchronous = storage.Full
			store, _ := storagetest.OpenWith(b, o)
			neighbour, _ := storagetest.Organization(b, store, "neighbour", "enterprise", access.RoleOwner)
			for range neighbourSubscriptions {
				storagetest.Subscription(b, store, neighbour, "https://neighbour.example/", "a")
			}
			victim, _ := storagetest.Organization(b, store, "victim", "enterprise", access.RoleOwner)
			storagetest.Subscription(b, store, victim, "https://victim.example/", "a")
			keys := make([]access.Key, b.N)
			for i := range keys {
				keys[i], _ = storagetest.Key(b, store, victim, access.EventsRead)
			}
			stop := flood(b, store, neighbour, callers)
			defer stop()
			b.ResetTimer()
			var published, revoked []time.Duration
			for i := range b.N {
				published = append(published, timed(func() { storagetest.Publish(b, store, victim, "a") }))
				revoked = append(revoked, timed(func() {
					if err := store.Directory.RevokeKey(b.Context(), victim.Actor("", ""), victim.Organization.RowID, keys[i].ID); err != nil {
						b.Error(err)
					}
				}))
				time.Sleep(10 * time.Millisecond) // a customer is not a flood
			}
			b.StopTimer()
			report(b, "publish", published)
			report(b, "revoke", revoked)
		})
	}
}

// flood publishes from this many callers without a pause until stop is called.
func flood(b *testing.B, store *storage.Store, p access.Principal, callers int) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	batch := make([]webhook.NewEvent, neighbourEvents)
	for i := range batch {
		batch[i] = webhook.NewEvent{Type: "a", Data: []byte(`{"n":1}`)}
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := store.Queue.PublishEvents(ctx, p.Organization.RowID, batch); err != nil && !errors.Is(err, context.Canceled) {
					b.Error(err)
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

func timed(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// report prints the median and the 99th percentile in milliseconds.
func report(b *testing.B, name string, took []time.Duration) {
	slices.Sort(took)
	at := func(percent int) float64 { return took[(len(took)-1)*percent/100].Seconds() * 1e3 }
	b.ReportMetric(at(50), name+"-p50-ms")
	b.ReportMetric(at(99), name+"-p99-ms")
}
