package retention_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// BenchmarkRetention measures how long a publisher waits, at the median and at worst, while retention deletes 100,000
// events with a million deliveries and attempts. Run it with -benchtime=1x: a round takes minutes.
func BenchmarkRetention(b *testing.B) {
	for b.Loop() {
		o := storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db"))
		o.Synchronous = storage.Full
		store, stop := storagetest.OpenWith(b, o)
		owner, _ := storagetest.Organization(b, store, "acme", "growth", access.RoleOwner)
		for range 100 {
			storagetest.Subscription(b, store, owner, "https://example.com/", "never.happens")
		}
		stop()
		storagetest.Grow(b, o.Path, storagetest.Size{History: 1_000_000})

		o.KeepEvents = time.Hour
		store, stop = storagetest.OpenWith(b, o)
		began := time.Now()
		var waits []time.Duration
		for {
			asked := time.Now()
			storagetest.Publish(b, store, owner, "user.created")
			waits = append(waits, time.Since(asked))
			if len(waits)%100 == 0 {
				last, err := store.History.EventPage(b.Context(), owner.Organization.RowID, webhook.EventFilter{Before: 100_000, Limit: 1})
				if err != nil {
					b.Fatal(err)
				}
				if len(last.Rows) == 0 || last.Rows[0].Type != "grown" {
					break
				}
			}
			<-time.After(2 * time.Millisecond)
		}
		took := time.Since(began)
		stop()
		slices.Sort(waits)
		b.ReportMetric(waits[len(waits)/2].Seconds()*1000, "p50-ms")
		b.ReportMetric(waits[len(waits)*99/100].Seconds()*1000, "p99-ms")
		b.ReportMetric(waits[len(waits)-1].Seconds()*1000, "max-ms")
		b.ReportMetric(2_100_000/took.Seconds(), "rows/s")
	}
}
