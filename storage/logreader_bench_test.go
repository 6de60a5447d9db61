package storage_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// BenchmarkLogReads measures how long an organization waits for a page of its delivery log. Meanwhile, another organization
// repeatedly searches 800,000 attempts without a match, and a third one publishes. It reports the size of the write-ahead log.
// An iteration is a page; run it with -benchtime 2000x.
func BenchmarkLogReads(b *testing.B) {
	for _, readers := range []int{0, 2, 8} {
		b.Run(fmt.Sprintf("beside %d", readers), func(b *testing.B) { benchmarkLogReads(b, readers) })
	}
}

func benchmarkLogReads(b *testing.B, readers int) {
	o := storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db"))
	o.Synchronous = storage.Full
	store, stop := storagetest.OpenWith(b, o)
	attacker, _ := storagetest.Organization(b, store, "attacker", "enterprise", access.RoleOwner)
	var attacked webhook.Subscription
	for range 10 { // as many as an event of the history has deliveries
		attacked, _ = storagetest.Subscription(b, store, attacker, "https://example.com/", "never.happens")
	}
	victim, _ := storagetest.Organization(b, store, "victim", "enterprise", access.RoleOwner)
	own, _ := storagetest.Subscription(b, store, victim, "https://example.com/")
	publisher, _ := storagetest.Organization(b, store, "publisher", "enterprise", access.RoleOwner)
	stop()
	storagetest.Grow(b, o.Path, storagetest.Size{History: 880_000})
	store, stop = storagetest.OpenWith(b, o)
	if err := store.Write(b.Context(), func(t *storage.Tx) error {
		return t.Run("UPDATE attempts SET subscription_id = ? WHERE subscription_id <> ?", attacked.RowID, own.RowID)
	}); err != nil {
		b.Fatal(err)
	}
	stop() // which ends the write-ahead log
	store, _ = storagetest.OpenWith(b, o)

	ctx, end := context.WithCancel(b.Context())
	var beside sync.WaitGroup
	for range readers {
		beside.Go(func() {
			for ctx.Err() == nil {
				_, _ = store.History.AttemptPage(ctx, attacker.Organization.RowID, attacked.ID, webhook.AttemptFilter{EventType: "no.such", Limit: 51})
			}
		})
	}
	event := webhook.NewEvent{Type: "order.paid", Data: []byte(`{"text":"` + strings.Repeat("a", 800) + `"}`)}
	beside.Go(func() {
		for ctx.Err() == nil {
			_, _ = store.Queue.PublishEvents(ctx, publisher.Organization.RowID, slices.Repeat([]webhook.NewEvent{event}, 10))
		}
	})
	var took []time.Duration
	var most int64
	for b.Loop() {
		began := time.Now()
		if _, err := store.History.AttemptPage(b.Context(), victim.Organization.RowID, own.ID, webhook.AttemptFilter{Limit: 51}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		_, log, err := store.Sizes()
		if err != nil {
			b.Fatal(err)
		}
		most = max(most, log)
		<-time.After(5 * time.Millisecond)
	}
	end()
	beside.Wait()
	slices.Sort(took)
	b.ReportMetric(1e3*took[len(took)/2].Seconds(), "p50-ms")
	b.ReportMetric(1e3*took[len(took)*99/100].Seconds(), "p99-ms")
	b.ReportMetric(float64(most)/(1<<20), "wal-MiB")
}
