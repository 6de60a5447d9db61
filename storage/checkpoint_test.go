package storage_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// openWithLogBounds runs a store with its own limits of the write-ahead log, and returns its log messages.
func openWithLogBounds(t *testing.T, restart, warn int64) (x fixture, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	store, err := storage.Open(t.Context(), storage.BoundLog(o, restart, warn))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	x = fixture{storagetest.Customer{Store: store}}
	x.Owner, _ = storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	return x, log
}

// publishLong publishes an event of 20 kB.
func (x fixture) publishLong(t *testing.T) {
	t.Helper()
	data := []byte(`{"text":"` + strings.Repeat("a", 20_000) + `"}`)
	if _, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{{Type: "user.created", Data: data}}); err != nil {
		t.Fatal(err)
	}
}

// logSize returns the size of the write-ahead log on disk.
func (x fixture) logSize(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(x.Path() + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestWriteAheadLog(t *testing.T) {
	t.Parallel()

	t.Run("the write-ahead log stays short beside log reads without a gap", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x, _ := openWithLogBounds(t, 512<<10, 1<<30)
			reading, stop := context.WithCancel(t.Context())
			var readers sync.WaitGroup
			for i := range 2 {
				readers.Go(func() {
					for time.Sleep(time.Duration(100*i) * time.Millisecond); reading.Err() == nil; {
						end, err := x.BeginLogRead(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(200 * time.Millisecond) // longer than a commit may be delayed
						end()
					}
				})
			}
			var most int64
			for range 400 {
				x.publishLong(t)
				time.Sleep(25 * time.Millisecond)
				most = max(most, x.logSize(t))
			}
			stop()
			readers.Wait()
			// Half a megabyte, plus the writes of one second until the next check. The test writes 12 MB.
			if most > 4<<20 {
				t.Errorf("it has grown to %d bytes", most)
			}
		})
	})

	t.Run("one warning reports a read that blocks the restart; the log is short afterwards", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const warn = 1 << 20
			x, log := openWithLogBounds(t, 64<<10, warn)
			end, err := x.BeginLogRead(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if warning, err := x.Ready(t.Context()); warning != "" || err != nil {
				t.Errorf("warns too early: %q, error %v", warning, err)
			}
			for range 60 {
				x.publishLong(t)
			}
			time.Sleep(5 * time.Second)
			if warning, err := x.Ready(t.Context()); warning == "" || err != nil {
				t.Errorf("with %d bytes it warns %q, error %v", x.logSize(t), warning, err)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "write-ahead log") {
				t.Errorf("it is logged %d times:\n%s", n, log)
			}
			end()
			time.Sleep(10 * time.Second) // without any write
			if warning, err := x.Ready(t.Context()); warning != "" || err != nil || x.logSize(t) >= warn {
				t.Errorf("it still warns %q, error %v, with %d bytes", warning, err, x.logSize(t))
			}
			x.publishLong(t)
		})
	})
}
