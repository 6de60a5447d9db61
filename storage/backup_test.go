package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// files lists a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	names := []string{}
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(dir)) {
		names = append(names, e.Name())
	}
	return names
}

// integrity returns the result of SQLite's check of a file without writers; "ok" means sound.
func integrity(t *testing.T, path string) (found string) {
	t.Helper()
	db := must[*sql.DB](t)(sql.Open("sqlite", "file:"+path+"?mode=ro"))
	defer db.Close()
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestBackup(t *testing.T) {
	t.Parallel()

	t.Run("a backup has everything that was acknowledged before, while others write", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		path := filepath.Join(t.TempDir(), "copy.db")
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for ctx.Err() == nil {
					storagetest.Publish(t, x.Store, x.Owner, "during")
				}
			})
		}
		const before = 50
		for range before {
			storagetest.Publish(t, x.Store, x.Owner, "before")
		}
		r, err := storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path(), To: path})
		cancel()
		writers.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if info := must[os.FileInfo](t)(os.Stat(path)); info.Mode().Perm() != 0o600 || info.Size() != r.Bytes || r.File != path || len(r.SHA256) != 64 {
			t.Errorf("%v, report %+v", info, r)
		}
		if got := integrity(t, path); got != "ok" || r.Deliveries < before || r.Pending != r.Deliveries || len(r.KeyID) != 8 {
			t.Errorf("integrity %s, report %+v", got, r)
		}
		if d := cmp.Diff([]string{"copy.db"}, files(t, filepath.Dir(path))); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
		key := must[[]byte](t)(os.ReadFile(x.Path() + ".key"))
		if text := must[[]byte](t)(os.ReadFile(path)); strings.Contains(string(text), strings.TrimSpace(string(key))) {
			t.Error("the encryption key is in the copy")
		}
	})

	t.Run("a backup is one marked file and returns free pages like the original", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		r := must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path}))
		db := must[*sql.DB](t)(sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(r.File)))
		defer db.Close()
		for pragma, want := range map[string]string{"application_id": "1801812328", "user_version": fmt.Sprint(presentSchema), "auto_vacuum": "2", "journal_mode": "delete"} {
			var got string
			if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %s, error %v", pragma, got, err)
			}
		}
	})

	t.Run("a backup includes the log of a crash and does not change the original", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "a")
		dir := t.TempDir() // the files as a kill leaves them
		for _, suffix := range []string{"", "-wal"} {
			if err := os.WriteFile(filepath.Join(dir, "keyhook.db"+suffix), must[[]byte](t)(os.ReadFile(x.Path()+suffix)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, "keyhook.db")
		before := string(must[[]byte](t)(os.ReadFile(path))) + string(must[[]byte](t)(os.ReadFile(path+"-wal")))
		if r := must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path})); r.Deliveries != 1 {
			t.Errorf("%+v", r)
		}
		if after := string(must[[]byte](t)(os.ReadFile(path))) + string(must[[]byte](t)(os.ReadFile(path+"-wal"))); after != before {
			t.Error("the original was changed")
		}
	})
}

func TestRefusedBackup(t *testing.T) {
	t.Parallel()

	t.Run("a refusal explains itself and leaves no files", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		dir := t.TempDir()
		there, garbage, empty := filepath.Join(dir, "there.db"), filepath.Join(dir, "garbage.db"), filepath.Join(dir, "empty.db")
		for name, text := range map[string]string{there: "mine", garbage: strings.Repeat("garbage ", 1000), empty: ""} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		foreign := filepath.Join(dir, "foreign.db")
		alter(t, foreign, "CREATE TABLE theirs (id INTEGER)")
		another := filepath.Join(dir, "another.db")
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, another))
		stop()
		before := files(t, dir)
		to := func(to string) storage.BackupOptions { return storage.BackupOptions{Path: path, To: to} }
		of := func(of string) storage.BackupOptions {
			return storage.BackupOptions{Path: of, To: filepath.Join(dir, "copy.db")}
		}
		for name, refusal := range map[string]struct {
			o    storage.BackupOptions
			kind error
			says string
		}{
			"a file that is there":           {to(there), storage.ErrExists, "there.db"},
			"the database itself":            {to(path), storage.ErrExists, "belongs to a database"},
			"another database":               {storage.BackupOptions{Path: path, To: another, Replace: true}, storage.ErrExists, "belongs to a database"},
			"a directory that is not there":  {to(filepath.Join(dir, "no", "copy.db")), nil, "create it first"},
			"to keep copies at a file name":  {storage.BackupOptions{Path: path, To: filepath.Join(dir, "x.db"), Keep: 1}, nil, "give an existing directory"},
			"a database that is not there":   {of(filepath.Join(dir, "none.db")), storage.ErrForeignFile, "no database at"},
			"an empty file":                  {of(empty), storage.ErrForeignFile, "no database at"},
			"garbage":                        {of(garbage), storage.ErrForeignFile, "garbage.db is no database at all"},
			"another application's database": {of(foreign), storage.ErrForeignFile, "foreign.db has another application's tables"},
		} {
			_, err := storage.Backup(t.Context(), refusal.o)
			if err == nil || refusal.kind != nil && !errors.Is(err, refusal.kind) || !strings.Contains(err.Error(), refusal.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, suffix := range []string{".key", ".key.f8f28f21", "-wal", ".lock"} {
			o := storage.BackupOptions{Path: path, To: filepath.Join(dir, "third.db"+suffix), Replace: true}
			if _, err := storage.Backup(t.Context(), o); !errors.Is(err, storage.ErrExists) {
				t.Errorf("the file %s of another database: %v", suffix, err)
			}
		}
		for _, suffix := range []string{"-wal", "-shm", "-journal", ".lock", ".key", ".key.new", ".key.f8f28f21", ".sock", ".reserve", ".partial", ".restoring"} {
			if _, err := storage.Backup(t.Context(), to(path+suffix)); !errors.Is(err, storage.ErrExists) || !strings.Contains(err.Error(), "belongs to a database") {
				t.Errorf("the file %s of the database: %v", suffix, err)
			}
		}
		if d := cmp.Diff(before, files(t, dir)); d != "" {
			t.Errorf("files (-before +after):\n%s", d)
		}
		if text := must[[]byte](t)(os.ReadFile(there)); string(text) != "mine" {
			t.Errorf("the file that was there is %q", text)
		}
		if _, err := storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: there, Replace: true}); err != nil || integrity(t, there) != "ok" {
			t.Errorf("replaced: %v", err)
		}
		link, pipe := filepath.Join(t.TempDir(), "link.db"), filepath.Join(t.TempDir(), "pipe.db")
		if err := errors.Join(os.Symlink(there, link), syscall.Mkfifo(pipe, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{link, pipe} {
			before := must[os.FileInfo](t)(os.Lstat(name))
			_, err := storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: name, Replace: true})
			if after := must[os.FileInfo](t)(os.Lstat(name)); !errors.Is(err, storage.ErrExists) || after.Mode() != before.Mode() {
				t.Errorf("%s is no regular file: %s before and %s after, error %v", name, before.Mode(), after.Mode(), err)
			}
		}
	})

	t.Run("a database with damaged pages is refused", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		stop()
		spoil(t, path)
		if _, err := storage.Backup(t.Context(), storage.BackupOptions{Path: path}); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("error %v", err)
		}
		if left := files(t, filepath.Join(filepath.Dir(path), "backups")); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	})

	t.Run("an interrupted backup leaves no files", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := storage.Backup(ctx, storage.BackupOptions{Path: path}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "backups", "*")); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	})
}

func TestConcurrentBackups(t *testing.T) {
	t.Parallel()

	t.Run("a directory gets one complete backup at a time, even after a killed one", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		stop()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "keyhook.db.partial"), []byte(strings.Repeat("left behind ", 100_000)), 0o600); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var made []string
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 5 {
					r, err := storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: dir})
					switch {
					case err == nil:
						mu.Lock()
						made = append(made, r.File)
						mu.Unlock()
					case !errors.Is(err, backup.ErrRunning) && !errors.Is(err, storage.ErrExists):
						t.Errorf("error %v", err)
					}
				}
			})
		}
		all.Wait()
		if len(made) == 0 || len(files(t, dir)) != len(made) {
			t.Errorf("%d made, and there are %v", len(made), files(t, dir))
		}
		for _, name := range made {
			if got := integrity(t, name); got != "ok" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}

func TestDatedBackups(t *testing.T) {
	t.Parallel()

	t.Run("a backup removes the oldest dated copies and no other file", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		dir := t.TempDir()
		database := filepath.Base(path)
		others := []string{"keyhook-20200101-000000.000.db", "mine.db", strings.TrimSuffix(database, ".db") + "-manual.db"}
		old := []string{"-20200101-000000.000.db", "-20200102-000000.000.db", "-20200103-000000.000.db"}
		for i := range old {
			old[i] = strings.TrimSuffix(database, ".db") + old[i]
		}
		for _, name := range append(others, old...) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: dir, Keep: 2}))
		if d := cmp.Diff(old[:2], r.Removed); d != "" {
			t.Errorf("removed (-want +got):\n%s", d)
		}
		if left := files(t, dir); len(left) != len(others)+2 {
			t.Errorf("left %v", left)
		}
	})

	t.Run("a backup stays, with a warning, if an older one cannot be removed", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		older := must[backup.Report](t)(x.CreateBackup(t.Context(), x.Actor(), "", 0))
		if out, err := exec.Command("mount", "--bind", older.File, older.File).CombinedOutput(); err != nil {
			if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
				t.Fatalf("only root on Linux can make a file that cannot be removed: %v: %s", err, out)
			}
			t.Skip("only root on Linux can make a file that cannot be removed") // fails if KEYHOOK_TEST_REQUIRE is set
		}
		t.Cleanup(func() {
			if out, err := exec.Command("umount", older.File).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		r, err := x.CreateBackup(t.Context(), x.Actor(), "", 1)
		if err != nil || !strings.Contains(r.Warning, filepath.Base(older.File)) || len(r.Removed) > 0 {
			t.Errorf("%+v, error %v", r, err)
		}
		for _, name := range []string{older.File, r.File} {
			if got := integrity(t, name); got != "ok" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})

	t.Run("a file in place of the backup directory is refused", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		if err := os.WriteFile(filepath.Join(filepath.Dir(x.Path()), "backups"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := x.CreateBackup(t.Context(), x.Actor(), "", 0)
		if f, ok := fault.As(err); !ok || f.Kind != fault.Unavailable || f.Code != "backup_directory_unusable" {
			t.Errorf("error %v", err)
		}
	})

	t.Run("a new backup stays although the clock was set back", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		dir := t.TempDir()
		later := strings.TrimSuffix(filepath.Base(path), ".db") + "-29990101-000000.000.db"
		if err := os.WriteFile(filepath.Join(dir, later), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: dir, Keep: 1}))
		if d := cmp.Diff([]string{filepath.Base(r.File)}, files(t, dir)); d != "" {
			t.Errorf("left (-want +got):\n%s", d)
		}
	})

	t.Run("backups of a clock that was ahead do not displace new ones", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		dir := t.TempDir()
		for _, at := range []string{"-29990101-000000.000.db", "-29990102-000000.000.db", "-29990103-000000.000.db"} {
			if err := os.WriteFile(filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), ".db")+at), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var want []string
		for range 3 {
			r := must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: dir, Keep: 3}))
			want = append(want, filepath.Base(r.File))
		}
		if d := cmp.Diff(want, files(t, dir)); d != "" {
			t.Errorf("left (-want +got):\n%s", d)
		}
	})

	t.Run("a backup by the server is in the audit log", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		r := must[backup.Report](t)(x.CreateBackup(t.Context(), x.Actor(), "nightly.db", 0))
		if r.File != filepath.Join(filepath.Dir(x.Path()), "backups", "nightly.db") {
			t.Errorf("made %s", r.File)
		}
		log := must[[]access.AuditEvent](t)(x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Type: access.BackupCreated, Limit: 2}))
		if len(log) != 1 || log[0].TargetID != "nightly.db" || !strings.Contains(log[0].Details, r.SHA256) {
			t.Errorf("%+v", log)
		}
	})
}

// spoil overwrites the middle of a file.
func spoil(t *testing.T, path string) {
	t.Helper()
	f := must[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
	defer f.Close()
	for page := int64(3); page < 45; page += 3 {
		if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", 2000)), page*4096); err != nil {
			t.Fatal(err)
		}
	}
}

// The log counts, too, because a copy has what is in it. This one is a sparse file, larger than any disk.
func TestBackupOfALogThatDoesNotFit(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	path, dir := filepath.Join(t.TempDir(), "keyhook.db"), t.TempDir()
	must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path(), To: path}))
	if err := os.WriteFile(path+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path+"-wal", 1<<42); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: filepath.Join(dir, "copy.db")}); !errors.Is(err, sqlite.ErrNoSpace) {
		t.Errorf("error %v", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
