package queue_test

import (
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The cost of each step of a delivery, on a file with synchronous=full: go test -bench 'Queue' ./storage.

// openDurable creates a store with one organization and n subscriptions to "a".
func openDurable(b *testing.B, n int) (*storage.Store, access.Principal) {
	o := storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db"))
	o.Synchronous = storage.Full
	store, _ := storagetest.OpenWith(b, o)
	owner, _ := storagetest.Organization(b, store, "acme", "enterprise", access.RoleOwner)
	for range n {
		storagetest.Subscription(b, store, owner, "https://example.com/", "a")
	}
	return store, owner
}

// publishMany publishes n events of about 1 KiB, up to a hundred per transaction.
func publishMany(b *testing.B, store *storage.Store, p access.Principal, n, some int) {
	b.Helper()
	data := append(append([]byte(`{"text":"`), make([]byte, 900)...), `"}`...)
	for i := 9; i < 909; i++ {
		data[i] = 'x'
	}
	for ; n > 0; n -= some {
		batch := make([]webhook.NewEvent, min(n, some))
		for i := range batch {
			batch[i] = webhook.NewEvent{Type: "a", Data: data}
		}
		if _, err := store.Queue.PublishEvents(b.Context(), p.Organization.RowID, batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkQueueFanOut(b *testing.B) {
	for _, n := range []int{0, 1, 10, 100, 500} {
		b.Run("subscriptions="+strconv.Itoa(n), func(b *testing.B) {
			store, owner := openDurable(b, n)
			b.ReportAllocs()
			b.ResetTimer()
			publishMany(b, store, owner, b.N, min(100, 10_000/max(n, 1)))
			b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/float64(max(n, 1)), "µs/delivery")
		})
	}
}

// waiting publishes b.N events for one subscription and returns the arguments of Begin.
func waiting(b *testing.B) (*storage.Store, []webhook.Start) {
	store, owner := openDurable(b, 1)
	publishMany(b, store, owner, b.N, 100)
	subs, err := store.SubscriptionList(b.Context(), owner.Organization.RowID, "", 0, 1)
	if err != nil {
		b.Fatal(err)
	}
	jobs, err := store.Queue.PendingJobs(b.Context(), subs[0].RowID, 0, b.N, nil)
	if err != nil || len(jobs) != b.N {
		b.Fatalf("%d jobs, error %v", len(jobs), err)
	}
	starts := make([]webhook.Start, len(jobs))
	for i, j := range jobs {
		starts[i] = webhook.Start{Delivery: j.Delivery, Subscription: j.Subscription, Epoch: subs[0].Epoch, Number: 1}
	}
	return store, starts
}

// beginAll begins them, a hundred per transaction.
func beginAll(b *testing.B, store *storage.Store, starts []webhook.Start) (rows []int64) {
	b.Helper()
	for n := 0; len(starts) > 0; starts = starts[n:] {
		n = min(len(starts), 100)
		some, err := store.Queue.Begin(b.Context(), starts[:n])
		if err != nil {
			b.Fatal(err)
		}
		rows = append(rows, some...)
	}
	return rows
}

func BenchmarkQueueBegin(b *testing.B) {
	store, starts := waiting(b)
	b.ReportAllocs()
	b.ResetTimer()
	beginAll(b, store, starts)
}

// 64 parallel calls of Record, as from that many attempts.
func BenchmarkQueueRecord(b *testing.B) {
	store, starts := waiting(b)
	rows := beginAll(b, store, starts)
	status := 200
	var next atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				if _, err := store.Queue.Record(b.Context(), webhook.Result{
					Attempt: rows[i], Delivery: starts[i].Delivery, Subscription: starts[i].Subscription, Epoch: starts[i].Epoch,
					Number: 1, Succeeded: true, ResponseStatus: &status, DurationMS: 12,
				}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// A lane reads its next 256 jobs from among many pending ones.
func BenchmarkQueueRead(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000, 5_000_000} {
		b.Run("pending="+strconv.Itoa(n), func(b *testing.B) {
			o := storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db"))
			store, stop := storagetest.OpenWith(b, o)
			owner, _ := storagetest.Organization(b, store, "acme", "enterprise", access.RoleOwner)
			for range 100 {
				storagetest.Subscription(b, store, owner, "https://example.com/", "a")
			}
			stop()
			storagetest.Grow(b, o.Path, storagetest.Size{Closed: n})
			store, _ = storagetest.OpenWith(b, o)
			lanes, err := store.Survey.Lanes(b.Context())
			if err != nil || len(lanes) == 0 {
				b.Fatalf("%d lanes, error %v", len(lanes), err)
			}
			const most = 256
			held := []int64{}
			b.ResetTimer()
			for i := range b.N {
				jobs, err := store.Queue.PendingJobs(b.Context(), lanes[i%len(lanes)].Subscription, 0, most, held)
				if err != nil || len(jobs) != most {
					b.Fatalf("%d jobs, error %v", len(jobs), err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/most, "µs/job")
		})
	}
}
