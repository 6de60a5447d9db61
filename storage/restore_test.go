package storage_test

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// copiedDatabase creates a database with one pending delivery, a copy of it, and then a second delivery that the copy lacks. It
// closes the store.
func copiedDatabase(t *testing.T) (path, of string, x fixture) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "keyhook.db")
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	x = fixtureOf(t, store)
	storagetest.Publish(t, store, x.Owner, "a")
	of = filepath.Join(t.TempDir(), "copy.db")
	must[access.Put[webhook.EventType]](t)(store.Catalogue.PutEventType(t.Context(), storagetest.Operator(t, store).Actor("", ""), "a",
		webhook.EventTypeChange{Description: new("about a")}))
	must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: of}))
	storagetest.Publish(t, store, x.Owner, "b")
	stop()
	return path, of, x
}

// sums returns the digests of all files in a directory, except the lock.
func sums(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	all := map[string][32]byte{}
	for _, name := range files(t, dir) {
		if !strings.HasSuffix(name, ".lock") {
			all[name] = sha256.Sum256(must[[]byte](t)(os.ReadFile(filepath.Join(dir, name))))
		}
	}
	return all
}

func TestRestore(t *testing.T) {
	t.Parallel()

	t.Run("a restore puts the copy in place with a held queue and keeps the old database", func(t *testing.T) {
		t.Parallel()
		path, from, x := copiedDatabase(t)
		r := must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
		if r.Database != path || r.Pending != 1 || r.Deliveries != 1 {
			t.Errorf("%+v", r)
		}
		if d := cmp.Diff([]string{"keyhook.db", "keyhook.db.key", "keyhook.db.lock", filepath.Base(r.ReplacedDatabase)}, files(t, filepath.Dir(path))); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
		if info := must[os.FileInfo](t)(os.Stat(path)); info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v", info.Mode())
		}
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		must[webhook.EventType](t)(x.Catalogue.CataloguedType(t.Context(), "a"))
		hold := x.Queue.Hold()
		if hold == nil || hold.Reason != "restored from copy.db" {
			t.Fatalf("held: %+v", hold)
		}
		jobs := x.Jobs(t)
		if len(jobs) != 1 || jobs[0].EventType != "a" || x.Begin(t, jobs[0]) != 0 {
			t.Errorf("pending %+v, or it begins", jobs)
		}
		log := must[[]access.AuditEvent](t)(x.AuditEvents(t.Context(), 1, access.AuditFilter{Type: access.DatabaseRestored, Limit: 2}))
		if len(log) != 1 || log[0].Actor.Type != "system" || log[0].TargetID != "copy.db" {
			t.Errorf("audit %+v", log)
		}
	})

	t.Run("the replaced database can be restored again", func(t *testing.T) {
		t.Parallel()
		path, from, x := copiedDatabase(t)
		first := must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
		second := must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), first.ReplacedDatabase))
		if second.Pending != 2 || second.ReplacedDatabase == first.ReplacedDatabase {
			t.Errorf("first %+v, second %+v", first, second)
		}
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		if len(x.Jobs(t)) != 2 || x.Queue.Hold() == nil {
			t.Errorf("%d pending, held %v", len(x.Jobs(t)), x.Queue.Hold())
		}
	})

	t.Run("a copy with a held queue is held again", func(t *testing.T) {
		t.Parallel()
		path, from, x := copiedDatabase(t)
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x.Store = store
		if err := x.Queue.HoldQueue(t.Context(), storagetest.Operator(t, store).Actor("", ""), "before"); err != nil {
			t.Fatal(err)
		}
		storagetest.Publish(t, store, x.Owner, "c")
		must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: from, Replace: true}))
		stop()
		must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		if n := must[int64](t)(x.Queue.DiscardQueue(t.Context(), storagetest.Operator(t, x.Store).Actor("", ""))); n != 3 {
			t.Errorf("%d dropped", n)
		}
	})

	t.Run("attempts that ran during the copy are interrupted", func(t *testing.T) {
		t.Parallel()
		path, from, x := copiedDatabase(t)
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x.Store = store
		attempt := x.Begin(t, x.Jobs(t)[0])
		must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: from, Replace: true}))
		stop()
		must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		if a := must[webhook.Attempt](t)(x.History.Attempt(t.Context(), attempt)); a.Outcome != webhook.Interrupted {
			t.Errorf("%+v", a)
		}
	})

	t.Run("sessions and links end, because they may have ended since the copy", func(t *testing.T) {
		t.Parallel()
		path, from, x := copiedDatabase(t)
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		must[access.Session](t)(store.Directory.CreateSession(t.Context(), x.Owner, x.Actor(), access.MintSession()))
		must[access.SignInLink](t)(store.Directory.CreatePortalLink(t.Context(), storagetest.Operator(t, store).Actor("", ""), x.Owner.Organization.ID,
			access.NewPortalLink{Role: access.RoleOwner, Credential: access.Mint(access.LinkPrefix), Life: time.Hour}))
		must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: from, Replace: true}))
		stop()
		must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
		for name, want := range map[string]int{from: 1, path: 0} {
			var sessions, links int
			query(t, name, &sessions, "SELECT count(*) FROM sessions")
			if query(t, name, &links, "SELECT count(*) FROM sign_in_links"); sessions != want || links != want {
				t.Errorf("%s has %d sessions and %d links, want %d", name, sessions, links, want)
			}
		}
	})

	t.Run("a machine with nothing but the key can restore", func(t *testing.T) {
		t.Parallel()
		path, from, _ := copiedDatabase(t)
		fresh := filepath.Join(t.TempDir(), "keyhook.db")
		key := must[[]byte](t)(os.ReadFile(path + ".key"))
		_, err := storage.Restore(t.Context(), storagetest.Options(t, fresh), from)
		if !errors.Is(err, storage.ErrKeyMissing) || !strings.Contains(err.Error(), fresh+".key") {
			t.Errorf("without a key: %v", err)
		}
		o := storagetest.Options(t, fresh)
		o.EncryptionKey = strings.TrimSpace(string(key))
		if r := must[backup.Restored](t)(storage.Restore(t.Context(), o, from)); r.ReplacedDatabase != "" || r.Pending != 1 {
			t.Errorf("%+v", r)
		}
		store, _ := storagetest.OpenWith(t, o)
		if store.Created() || store.Queue.Hold() == nil {
			t.Errorf("created %v, held %v", store.Created(), store.Queue.Hold())
		}
	})
}

func TestRefusedRestore(t *testing.T) {
	t.Parallel()

	t.Run("a refusal explains itself and changes nothing", func(t *testing.T) {
		t.Parallel()
		path, from, _ := copiedDatabase(t)
		dir := t.TempDir()
		variant := func(name, statement string) string {
			to := filepath.Join(dir, name)
			if err := os.WriteFile(to, must[[]byte](t)(os.ReadFile(from)), 0o600); err != nil {
				t.Fatal(err)
			}
			if statement != "" {
				alter(t, to, statement)
			}
			return to
		}
		write := func(name, text string) string {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, name)
		}
		spoiled := variant("spoiled.db", "")
		spoil(t, spoiled)
		half := variant("half.db", "")
		if err := os.Truncate(half, 100_000); err != nil {
			t.Fatal(err)
		}
		good := storagetest.Options(t, path)
		other := good
		other.EncryptionKey = strings.Repeat("ab", 32)
		before := sums(t, filepath.Dir(path))
		for name, refusal := range map[string]struct {
			o    storage.Options
			from string
			kind error
			says []string
		}{
			"a copy that is not there": {good, filepath.Join(dir, "none.db"), nil, []string{"there is no file"}},
			"a directory":              {good, dir, storage.ErrForeignFile, nil},
			"an empty file":            {good, write("empty.db", ""), storage.ErrForeignFile, []string{"empty.db"}},
			"garbage":                  {good, write("garbage.db", strings.Repeat("garbage ", 1000)), storage.ErrForeignFile, []string{"garbage.db"}},
			"another application's database": {good, func() string {
				alter(t, filepath.Join(dir, "their.db"), "CREATE TABLE theirs (id INTEGER)")
				return filepath.Join(dir, "their.db")
			}(), storage.ErrForeignFile, []string{"their.db"}},
			"a newer schema":           {good, variant("newer.db", "PRAGMA user_version = 99"), storage.ErrNewerSchema, []string{"newer.db", tooNew(99, presentSchema)}},
			"a schema changed by hand": {good, variant("changed.db", "ALTER TABLE plans ADD COLUMN colour TEXT"), storage.ErrSchema, []string{"table plans"}},
			"damaged pages":            {good, spoiled, storage.ErrDamaged, []string{"spoiled.db"}},
			"half a file":              {good, half, storage.ErrDamaged, []string{"half.db"}},
			"another key":              {other, from, storage.ErrKey, []string{"encryption.key is the key", "needs the key"}},
			"the database itself":      {good, path, nil, []string{"itself"}},
		} {
			_, err := storage.Restore(t.Context(), refusal.o, refusal.from)
			if err == nil || refusal.kind != nil && !errors.Is(err, refusal.kind) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for _, part := range refusal.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %q: %v", name, part, err)
				}
			}
			if d := cmp.Diff(before, sums(t, filepath.Dir(path))); d != "" {
				t.Errorf("%s: files (-before +after):\n%s", name, d)
			}
		}
	})

	t.Run("a restore is refused while a server or another program has the file open", func(t *testing.T) {
		t.Parallel()
		path, from, _ := copiedDatabase(t)
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		if _, err := storage.Restore(t.Context(), storagetest.Options(t, path), from); !errors.Is(err, storage.ErrInUse) {
			t.Errorf("beside a server: %v", err)
		}
		stop()
		db := must[*sql.DB](t)(sql.Open("sqlite", "file:"+path))
		if _, err := db.Exec("SELECT count(*) FROM events"); err != nil {
			t.Fatal(err)
		}
		before := sums(t, filepath.Dir(path))
		if _, err := storage.Restore(t.Context(), storagetest.Options(t, path), from); !errors.Is(err, storage.ErrInUse) || !strings.Contains(err.Error(), "Litestream") {
			t.Errorf("beside another program: %v", err)
		}
		if d := cmp.Diff(before["keyhook.db"], sums(t, filepath.Dir(path))["keyhook.db"]); d != "" {
			t.Errorf("the database was changed: %s", d)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
	})
}

func TestRestoreOverDamage(t *testing.T) {
	t.Parallel()

	t.Run("a database that cannot be opened is kept with its log", func(t *testing.T) {
		t.Parallel()
		for _, log := range []string{"-wal", "-journal"} {
			path, from, x := copiedDatabase(t)
			garbage := strings.Repeat("garbage ", 1000)
			for _, suffix := range []string{"", log} {
				if err := os.WriteFile(path+suffix, []byte(garbage), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
			for _, suffix := range []string{"", log} {
				if text := must[[]byte](t)(os.ReadFile(r.ReplacedDatabase + suffix)); string(text) != garbage {
					t.Errorf("%q set aside is not what it was", suffix)
				}
			}
			if _, err := os.Lstat(path + log); !os.IsNotExist(err) {
				t.Errorf("%s was left beside the copy, error %v", log, err)
			}
			x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
			if len(x.Jobs(t)) != 1 {
				t.Errorf("%d pending", len(x.Jobs(t)))
			}
		}
	})

	t.Run("the log of a killed server stays with the old database and does not change the copy", func(t *testing.T) {
		t.Parallel()
		path, from, x := copiedDatabase(t)
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		storagetest.Publish(t, store, x.Owner, "c")
		killed := t.TempDir() // the files as a kill leaves them
		for _, suffix := range []string{"", "-wal", ".key"} {
			if err := os.WriteFile(filepath.Join(killed, "keyhook.db"+suffix), must[[]byte](t)(os.ReadFile(path+suffix)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		path = filepath.Join(killed, "keyhook.db")
		r := must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
		if again := must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), r.ReplacedDatabase)); r.Pending != 1 || again.Pending != 3 {
			t.Errorf("restored %+v, and then what was set aside: %+v", r, again)
		}
	})
}

// TestRestoreCountsOnce has a copy whose subscribers receive the event about its restore.
func TestRestoreCountsOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	operator := storagetest.Operator(t, store) // whose organization gets the event
	x := fixture{storagetest.Customer{Store: store, Owner: operator}}
	for i := range 12 {
		x.Sub, _ = storagetest.Subscription(t, store, operator, "https://example.com/", "a", access.DatabaseRestored)
		if i == 0 {
			x.Publish(t, 1, "a")
		}
	}
	x.Publish(t, 2, "a")
	x.Begin(t, x.Jobs(t)[0])
	// The restore gives this one up, because it was interrupted too often.
	storagetest.Exec(t, store, "UPDATE deliveries SET attempts = 100 WHERE state >= 4")
	storagetest.Subscription(t, store, operator, "https://example.com/", "b")
	x.Publish(t, 1, "b")
	from := filepath.Join(t.TempDir(), "copy.db")
	must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: from}))
	stop()
	// A recovery is under way, which would create deliveries that the discard keeps.
	storagetest.Alter(t, from, "UPDATE subscriptions SET recover_since = 1; UPDATE deliveries SET state = 2 WHERE id = (SELECT min(id) FROM deliveries WHERE state = 0)")
	r := must[backup.Restored](t)(storage.Restore(t.Context(), storagetest.Options(t, path), from))
	if r.Pending != 24 {
		t.Errorf("%+v", r)
	}
	x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
	if q := must[webhook.Queue](t)(x.Survey.QueueSummary(t.Context())); q.Deliveries != r.Pending+12 { // and the event about the restore
		t.Errorf("the queue has %d, the restore told of %d", q.Deliveries, r.Pending)
	}
	if n := must[int64](t)(x.Queue.DiscardQueue(t.Context(), storagetest.Operator(t, x.Store).Actor("", ""))); n != r.Pending {
		t.Errorf("%d were dropped, not %d", n, r.Pending)
	}
}
