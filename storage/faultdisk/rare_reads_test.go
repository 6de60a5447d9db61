package faultdisk_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/webhook"
)

// failRead makes one read of the store fail. It may be one of the upkeep. After a write, a read needs the file again.
func (x *fixture) failRead(t *testing.T) {
	t.Helper()
	if err := x.publish(t, 1); err != nil {
		t.Fatal(err)
	}
	faultdisk.Break(faultdisk.Fault{Op: faultdisk.Read, Code: ioRead, Once: true})
	defer faultdisk.Mend()
	for range 1000 {
		_, err := x.History.EventPage(t.Context(), x.owner.Organization.RowID, webhook.EventFilter{Limit: 100})
		if faultdisk.Hits() > 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no read has failed")
}

// Three failed reads within a minute end the process, and no others do.
func TestReadsThatFailRarely(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pause time.Duration
		reads int
	}{
		{"two within a minute are survived", 10 * time.Second, 2},
		{"many in the course of hours are survived", 31 * time.Second, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keyhook.db")
			synctest.Test(t, func(t *testing.T) {
				x := open(t, path)
				for range tt.reads {
					x.failRead(t)
					time.Sleep(tt.pause)
				}
				if err := x.publish(t, 10); err != nil {
					t.Errorf("a write after that: %v", err)
				}
				x.close(t)
			})
		})
	}

	t.Run("three at once end the process", func(t *testing.T) {
		x := open(t, filepath.Join(t.TempDir(), "keyhook.db"))
		for range 3 {
			x.failRead(t)
		}
		select {
		case err := <-x.runResult:
			if !errors.Is(err, storage.ErrFailed) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("it goes on")
			x.close(t)
		}
	})
}
