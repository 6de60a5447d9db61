package faultdisk_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// These tests are not parallel, because they share the only disk.
func TestMain(m *testing.M) {
	faultdisk.Install()
	os.Exit(m.Run())
}

// The codes that SQLite gets.
const (
	full          = 13
	cantOpen      = 14
	ioRead        = 266
	ioWrite       = 778
	ioFsync       = 1034
	ioTruncate    = 1546
	databaseFile  = ".db"
	writeAheadLog = "-wal"
)

// fixture is a store on the disk, with the events that it has acknowledged.
type fixture struct {
	*storage.Store
	path      string
	owner     access.Principal
	acked     []string
	runResult chan error // receives what Run returns
	stop      context.CancelFunc
}

func options(t *testing.T, path string) storage.Options {
	o := storagetest.Options(t, path)
	o.Synchronous = storage.Full
	o.EncryptionKey = strings.Repeat("ab", 32)
	return o
}

// open opens a store with a subscription to every event.
func open(t *testing.T, path string) *fixture {
	t.Helper()
	x := openWith(t, options(t, path))
	storagetest.Subscription(t, x.Store, x.owner, "https://example.com/hook")
	return x
}

func openWith(t *testing.T, o storage.Options) *fixture {
	t.Helper()
	store, err := storage.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	x := &fixture{Store: store, path: o.Path, runResult: make(chan error, 1), stop: stop}
	go func() { x.runResult <- store.Run(ctx) }()
	x.owner = storagetest.Operator(t, store)
	return x
}

// publish publishes an event of the given size and remembers it if it is acknowledged.
func (x *fixture) publish(t *testing.T, size int) error {
	t.Helper()
	published, err := x.Queue.PublishEvents(t.Context(), x.owner.Organization.RowID,
		[]webhook.NewEvent{{Type: "a", Data: []byte(`"` + strings.Repeat("x", size) + `"`)}})
	if err == nil {
		x.acked = append(x.acked, published[0].ID)
	}
	return err
}

// close ends a store that has not failed.
func (x *fixture) close(t *testing.T) {
	t.Helper()
	x.stop()
	if err := errors.Join(<-x.runResult, x.Close()); err != nil {
		t.Fatal(err)
	}
}

// events checks a closed file and lists its events.
func events(t *testing.T, path string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var sound string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
		t.Fatalf("integrity: %s, error %v", sound, err)
	}
	rows, err := db.Query("SELECT body ->> 'id' FROM events")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		list = append(list, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// countLost counts acknowledged events that are missing.
func countLost(acked, there []string) (n int) {
	slices.Sort(there)
	for _, id := range acked {
		if _, found := slices.BinarySearch(there, id); !found {
			n++
		}
	}
	return n
}

// inVirtualTime runs a test that waits for what the store does each second. path is the path of its database.
func inVirtualTime(t *testing.T, name string, test func(t *testing.T, path string)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) { test(t, path) })
	})
}

// waitUntil waits at most a minute for a condition and returns how long that took.
func waitUntil(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		if holds() {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// Any write may fail, once or from then on. The caller gets the error, no acknowledged event is lost, and reads go on.
// The store works again as soon as the disk does.
func TestWritesThatFail(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  faultdisk.Fault
		reason string
	}{
		{"a full disk", faultdisk.Fault{Op: faultdisk.Write, Code: full}, "disk_full"},
		{"a write error", faultdisk.Fault{Op: faultdisk.Write, Code: ioWrite}, "io_error"},
		{"a write error of the log", faultdisk.Fault{Op: faultdisk.Write, Code: ioWrite, File: writeAheadLog}, "io_error"},
		{"a disk that is full at a checkpoint", faultdisk.Fault{Op: faultdisk.Write, Code: full, File: databaseFile}, "disk_full"},
	} {
		inVirtualTime(t, tt.name+" refuses writes until the disk works again", func(t *testing.T, path string) {
			x := open(t, path)
			atCheckpoint := tt.fault.File == databaseFile
			refused := 0
			for n := 1; n <= 40; n++ {
				f := tt.fault
				f.From, f.Once = 1+n/2, n%2 == 0
				faultdisk.Break(f)
				for range 8 {
					err := x.publish(t, 6000)
					if err != nil && fault.KindOf(err) != fault.Unavailable {
						t.Fatalf("write %d: %v", n, err)
					}
					if err != nil {
						refused++
					}
					if _, err := x.Directory.PrincipalByToken(t.Context(), storageToken().Digest()); err != nil {
						t.Fatalf("write %d: a token cannot be looked up: %v", n, err)
					}
					if _, err := x.History.EventPage(t.Context(), x.owner.Organization.RowID, webhook.EventFilter{Limit: 5}); err != nil {
						t.Fatalf("write %d: events cannot be listed: %v", n, err)
					}
				}
				faultdisk.Mend()
				if err := x.publish(t, 10); err != nil {
					t.Fatalf("after write %d the disk is well and the store is not: %v", n, err)
				}
			}
			if !atCheckpoint && refused < 40 {
				t.Errorf("%d writes were refused, want many more", refused)
			}
			waitUntil(t, "well again", func() bool { return readyError(t, x.Store) == nil })

			faultdisk.Break(tt.fault)
			waitUntil(t, "degraded", func() bool {
				_ = x.publish(t, 6000) // either this or the checkpoint is refused
				return x.Degraded()[tt.reason]
			})
			if err := readyError(t, x.Store); err == nil || !strings.Contains(err.Error(), "disk") {
				t.Errorf("it says that it is %v", err)
			}
			faultdisk.Mend()
			t.Logf("%d refused, %d acknowledged, healed in %s", refused, len(x.acked),
				waitUntil(t, "healed", func() bool { return readyError(t, x.Store) == nil && !x.Degraded()[tt.reason] }))
			x.close(t)
			if n := countLost(x.acked, events(t, x.path)); n > 0 {
				t.Errorf("%d of %d acknowledged events are lost", n, len(x.acked))
			}
		})
	}
}

// A write beyond a quota fails like any write: SQLite has no "full" for EDQUOT. So a withdrawal tries the reserve after it too.
func TestQuotaOfTheDisk(t *testing.T) {
	inVirtualTime(t, "a key is revoked on the reserve", func(t *testing.T, path string) {
		o := options(t, path)
		o.Reserve = 1 << 20
		x := openWith(t, o)
		key, _ := storagetest.Key(t, x.Store, x.owner, access.EventsRead)
		faultdisk.Break(faultdisk.Fault{Op: faultdisk.Write, Code: ioWrite, File: writeAheadLog, Once: true})
		if err := x.Directory.RevokeKey(t.Context(), x.owner.Actor("", ""), x.owner.Organization.RowID, key.ID); err != nil {
			t.Error(err)
		}
		if faultdisk.Mend() == 0 || !x.Degraded()["disk_full"] {
			t.Errorf("nothing failed, or the disk is not called full: %v", x.Degraded())
		}
		waitUntil(t, "healed", func() bool { return readyError(t, x.Store) == nil })
		x.close(t)
	})
}

// Returning the space of deleted rows fails. It is repeated until it works.
func TestTruncatingThatFails(t *testing.T) {
	inVirtualTime(t, "truncating the file", func(t *testing.T, path string) {
		o := options(t, path)
		o.KeepEvents = time.Millisecond
		x := openWith(t, o)
		for range 200 { // nobody waits for these
			if err := x.publish(t, 6000); err != nil {
				t.Fatal(err)
			}
		}
		faultdisk.Break(faultdisk.Fault{Op: faultdisk.Truncate, Code: ioTruncate, File: databaseFile})
		waitUntil(t, "degraded", func() bool { return x.Degraded()["io_error"] })
		if hits := faultdisk.Mend(); hits == 0 {
			t.Error("nothing was truncated")
		}
		waitUntil(t, "healed", func() bool { return readyError(t, x.Store) == nil })
		x.close(t)
	})
}

// storageToken is the operator's token.
func storageToken() access.Credential {
	token, _ := access.Opaque(storagetest.OperatorToken)
	return token
}

func TestReadsThatFail(t *testing.T) {
	t.Run("a read that fails once is only an error for its caller", func(t *testing.T) {
		x := open(t, filepath.Join(t.TempDir(), "keyhook.db"))
		failed := 0
		for range 2 {
			faultdisk.Break(faultdisk.Fault{Op: faultdisk.Read, Code: ioRead, Once: true})
			waitUntil(t, "a read that fails", func() bool {
				err := errors.Join(x.publish(t, 100), x.Ping(t.Context()))
				if _, e := x.History.EventPage(t.Context(), x.owner.Organization.RowID, webhook.EventFilter{Limit: 100}); e != nil {
					err = e
				}
				if err != nil && fault.KindOf(err) != fault.Unavailable {
					t.Fatal(err)
				}
				if err != nil {
					failed++
				}
				return faultdisk.Hits() > 0
			})
			faultdisk.Mend()
		}
		if err := errors.Join(x.publish(t, 10), readyError(t, x.Store)); err != nil || failed == 0 {
			t.Errorf("%d failed, then: %v", failed, err)
		}
		x.close(t)
	})

	t.Run("reads that keep failing end the process", func(t *testing.T) {
		x := open(t, filepath.Join(t.TempDir(), "keyhook.db"))
		faultdisk.Break(faultdisk.Fault{Op: faultdisk.Read, Code: ioRead})
		defer faultdisk.Mend()
		waitUntil(t, "the end", func() bool {
			_ = x.publish(t, 100)
			_, _ = x.History.EventPage(t.Context(), x.owner.Organization.RowID, webhook.EventFilter{Limit: 100})
			select {
			case err := <-x.runResult:
				if !errors.Is(err, storage.ErrFailed) {
					t.Errorf("it ended with %v", err)
				}
				return true
			default:
				return false
			}
		})
	})
}

// Data that cannot be flushed cannot be promised. The store ends at the first flush that fails. It does not flush again and
// acknowledges nothing more.
func TestFlushingThatFails(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		refused    bool // the caller of the write gets the error
	}{
		{"a commit that cannot flush the log ends the store", writeAheadLog, true},
		{"a checkpoint that cannot flush the database ends the store", databaseFile, false},
	} {
		t.Run(tt.name, func(t *testing.T) { // in real time, because a store that has failed keeps its connections
			path := filepath.Join(t.TempDir(), "keyhook.db")
			x := open(t, path)
			for range 20 {
				if err := x.publish(t, 100); err != nil {
					t.Fatal(err)
				}
			}
			faultdisk.Break(faultdisk.Fault{Op: faultdisk.Sync, Code: ioFsync, File: tt.file})
			began := time.Now()
			if err := x.publish(t, 100); (err != nil) != tt.refused {
				t.Errorf("the write that cannot be flushed: %v", err)
			}
			select {
			case err := <-x.runResult:
				if !errors.Is(err, storage.ErrFailed) {
					t.Errorf("it ended with %v", err)
				}
				t.Logf("ended after %s: %v", time.Since(began), err)
			case <-time.After(time.Minute): // a checkpoint comes every second; a busy machine may take longer
				t.Fatalf("it goes on after %d failed flushes", faultdisk.Hits())
			}
			if hits := faultdisk.Mend(); hits != 1 {
				t.Errorf("it ended after %d failed flushes, want 1", hits)
			}
			if err := x.publish(t, 100); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("a write after the end: %v", err)
			}
			if err := readyError(t, x.Store); err == nil {
				t.Error("it calls itself ready")
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
			// The next process finds the file as this one left it.
			copied := filepath.Join(t.TempDir(), "keyhook.db")
			for _, suffix := range []string{"", writeAheadLog} {
				text, err := os.ReadFile(path + suffix)
				if err == nil {
					err = os.WriteFile(copied+suffix, text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			next := open(t, copied)
			next.close(t)
			if n := countLost(x.acked, events(t, copied)); n > 0 {
				t.Errorf("%d of %d acknowledged events are lost", n, len(x.acked))
			}
		})
	}
}

func TestOpeningThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyhook.db")
	open(t, path).close(t)
	faultdisk.Break(faultdisk.Fault{Op: faultdisk.Open, Code: cantOpen})
	defer faultdisk.Mend()
	if _, err := storage.Open(t.Context(), options(t, path)); !errors.Is(err, disk.ErrAccess) || !strings.Contains(fmt.Sprint(err), path) {
		t.Errorf("error %v", err)
	}
}

// readyError returns why the store cannot be written, or nil.
func readyError(t *testing.T, store *storage.Store) error {
	t.Helper()
	_, err := store.Ready(t.Context())
	return err
}
