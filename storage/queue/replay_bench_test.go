package queue_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// BenchmarkReplay replays b.N events of about 1 KiB that went to another subscription, while another organization
// publishes. Run it with -benchtime 100000x and 1000000x: neither the waits nor the memory may grow. Run filtered, whose events are
// as large as they may be, with 1000x.
func BenchmarkReplay(b *testing.B) {
	small, large := `{"text":"`+strings.Repeat("a", 800)+`"}`, `{"lines":[`+strings.Repeat("1,", 125<<10)+`1],"last":true}`
	last := storagetest.Must[filter.Filter](b)(filter.Parse(`[{"path":"last","op":"eq","value":true}]`))
	b.Run("missed", func(b *testing.B) { benchmarkReplay(b, small, nil, true, int64(b.N)) })
	b.Run("nothing", func(b *testing.B) { benchmarkReplay(b, small, nil, false, 0) })
	b.Run("filtered", func(b *testing.B) { benchmarkReplay(b, large, last, true, int64(b.N)) })
}

// benchmarkReplay expects this many deliveries for a subscription that has missed all events, or none.
func benchmarkReplay(b *testing.B, data string, f filter.Filter, missed bool, want int64) {
	o := storagetest.Options(b, b.TempDir()+"/keyhook.db")
	o.Synchronous = storage.Full
	store, _ := storagetest.OpenWith(b, o)
	ctx := context.Background()
	owner, _ := storagetest.Organization(b, store, "acme", "growth", access.RoleOwner)
	neighbour, _ := storagetest.Organization(b, store, "neighbour", "growth", access.RoleOwner)
	storagetest.Subscription(b, store, neighbour, "https://example.com/neighbour")
	sub, _ := storagetest.Subscription(b, store, owner, "https://example.com/hook", "order.created")
	storagetest.Subscription(b, store, owner, "https://example.com/other", "order.paid")
	event := webhook.NewEvent{Type: "order.paid", Data: []byte(data)}
	for left := b.N; left > 0; left -= 100 {
		if _, err := store.Queue.PublishEvents(ctx, owner.Organization.RowID, slices.Repeat([]webhook.NewEvent{event}, min(left, 100))); err != nil {
			b.Fatal(err)
		}
	}
	event.Data = []byte("{}") // of the neighbour
	change := webhook.SubscriptionChange{Filter: new(f)}
	if missed {
		change.EventTypes = &webhook.Types{"order.paid"}
	}
	if _, err := store.Subscriptions.UpdateSubscription(ctx, owner.Actor("", ""), owner.Organization.RowID, sub.ID, change); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	alone := publishBeside(b, store, neighbour, event, func() { time.Sleep(time.Second) })
	var heap uint64
	beside := publishBeside(b, store, neighbour, event, func() {
		heap = peakHeap(func() {
			b.ResetTimer()
			made, err := store.Queue.Replay(ctx, owner.Actor("", ""), owner.Organization.RowID, sub.ID, webhook.Replay{Only: webhook.OnlyAll})
			b.StopTimer()
			if err != nil || made.Total() != want {
				b.Errorf("%+v deliveries are made, want %d, error %v", made, want, err)
			}
		})
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(milliseconds(alone[len(alone)*99/100]), "alone-p99-ms")
	b.ReportMetric(milliseconds(alone[len(alone)-1]), "alone-max-ms")
	b.ReportMetric(milliseconds(beside[len(beside)*99/100]), "wait-p99-ms")
	b.ReportMetric(milliseconds(beside[len(beside)-1]), "wait-max-ms")
	b.ReportMetric(float64(heap)/(1<<20), "heap-MiB")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// publishBeside publishes a few hundred times a second while do runs. It returns the times in ascending order.
func publishBeside(b *testing.B, store *storage.Store, p access.Principal, event webhook.NewEvent, do func()) []time.Duration {
	ctx, stop := context.WithCancel(context.Background())
	var took []time.Duration
	var publishing sync.WaitGroup
	publishing.Go(func() {
		pause := time.NewTicker(2 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := store.Queue.PublishEvents(context.Background(), p.Organization.RowID, []webhook.NewEvent{event}); err != nil {
				b.Error(err)
			}
			took = append(took, time.Since(began))
			<-pause.C
		}
	})
	do()
	stop()
	publishing.Wait()
	slices.Sort(took)
	return took
}

// peakHeap returns the largest heap in use while do runs.
func peakHeap(do func()) (most uint64) {
	ctx, stop := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			<-tick.C
		}
	})
	do()
	stop()
	looking.Wait()
	return most
}
