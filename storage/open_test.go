package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// closedFile creates a store, closes it, and returns its path.
func closedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a #%? name.db")
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	storagetest.Subscription(t, store, storagetest.Operator(t, store), "https://example.com/")
	stop()
	return path
}

// alter runs a statement on a closed file, like an operator with another tool.
func alter(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23", " ", "%20").Replace(path))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// refused expects that Open fails with this kind of error, and that its text has each of the parts.
func refused(t *testing.T, o storage.Options, kind error, parts ...string) {
	t.Helper()
	store, err := storage.Open(context.Background(), o)
	if err == nil {
		store.Close()
		t.Fatal("the file was opened")
	}
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("the error is %v, want %v", err, kind)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q: %v", part, err)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("a name that needs escaping opens the same database again", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		if store.Created() {
			t.Error("the file was created again")
		}
		subs, err := store.SubscriptionList(t.Context(), 1, "", 0, 10)
		if err != nil || len(subs) != 1 {
			t.Errorf("subscriptions %v, error %v", subs, err)
		}
	})

	t.Run("a second owner is refused and told the first", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		refused(t, storagetest.Options(t, path), storage.ErrInUse, path, strconv.Itoa(os.Getpid()), "storage.path")
		stop()
		_, stop = storagetest.OpenWith(t, storagetest.Options(t, path))
		stop()
	})

	t.Run("a second owner is refused by another name of the file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		storagetest.OpenWith(t, storagetest.Options(t, path))
		for _, link := range []string{filepath.Join(t.TempDir(), "other.db"), filepath.Join(t.TempDir(), "other")} {
			target := path
			if filepath.Ext(link) == "" {
				target = filepath.Dir(path)
			}
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(link) == "" {
				link = filepath.Join(link, "keyhook.db")
			}
			refused(t, storagetest.Options(t, link), storage.ErrInUse)
		}
	})
}

func TestRefusedFile(t *testing.T) {
	t.Parallel()

	t.Run("a schema that was changed by hand is refused with the difference", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		alter(t, path, "ALTER TABLE plans ADD COLUMN colour TEXT; DROP INDEX deliveries_pending; CREATE TABLE notes (id INTEGER)")
		refused(t, storagetest.Options(t, path), storage.ErrSchema,
			"- index deliveries_pending", "+ table notes: CREATE TABLE notes (id INTEGER)", "- table plans", "+ table plans")
	})

	t.Run("a newer schema is refused with both versions", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		alter(t, path, "PRAGMA user_version = 99")
		refused(t, storagetest.Options(t, path), storage.ErrNewerSchema, tooNew(99, presentSchema))
	})

	t.Run("the file of another application is refused", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "other.db")
		alter(t, path, "CREATE TABLE theirs (id INTEGER)")
		o := storagetest.Options(t, path)
		refused(t, o, storage.ErrForeignFile, path, "storage.path") // and not for its missing key
		o.EncryptionKey = strings.Repeat("ab", 32)
		refused(t, o, storage.ErrForeignFile, path, "storage.path")
	})

	t.Run("the file of another application is refused also if its list of tables has many pages", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "other.db")
		var tables strings.Builder
		for i := range 200 {
			fmt.Fprintf(&tables, "CREATE TABLE theirs_%d (id INTEGER PRIMARY KEY, a_long_name_of_a_column TEXT);", i)
		}
		alter(t, path, tables.String())
		refused(t, storagetest.Options(t, path), storage.ErrForeignFile, "another application's tables")
	})

	t.Run("a file of garbage is refused and not changed", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "garbage.db")
		garbage := strings.Repeat("this is no database. ", 1000)
		if err := os.WriteFile(path, []byte(garbage), 0o600); err != nil {
			t.Fatal(err)
		}
		o := storagetest.Options(t, path)
		refused(t, o, storage.ErrForeignFile, path)
		o.EncryptionKey = strings.Repeat("ab", 32)
		refused(t, o, storage.ErrForeignFile, path)
		if after, err := os.ReadFile(path); err != nil || string(after) != garbage {
			t.Errorf("the file was changed (error %v)", err)
		}
	})

	t.Run("a missing key file is an error, and no other is created", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		if err := os.Remove(path + ".key"); err != nil {
			t.Fatal(err)
		}
		refused(t, storagetest.Options(t, path), storage.ErrKeyMissing, path+".key", "encryption.key")
		if _, err := os.Stat(path + ".key"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a key file was made: %v", err)
		}
	})

	t.Run("another key is refused", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, closedFile(t))
		o.EncryptionKey = strings.Repeat("ab", 32)
		refused(t, o, storage.ErrKey, "encryption.key")
	})

	t.Run("an invalid key is refused and not shown", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.EncryptionKey = "hunter2"
		refused(t, o, storage.ErrKey, "encryption.key")
		if _, err := storage.Open(context.Background(), o); strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the key: %v", err)
		}
	})

	t.Run("an empty file beside a key file is refused as lost", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		os.Remove(path + "-wal")
		refused(t, storagetest.Options(t, path), storage.ErrLost, path+".key", "backup")
		if info, err := os.Stat(path); err != nil || info.Size() != 0 {
			t.Errorf("the file was touched: %v, %v", info, err)
		}
	})
}

// TestRefusedFileAfterACrash refuses a file beside the log of a crash. Both must stay as they are.
func TestRefusedFileAfterACrash(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	storagetest.Publish(t, x.Store, x.Owner, "a")
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.EncryptionKey = strings.Repeat("ab", 32) // another one
	crashed := map[string]string{}             // as a kill leaves them
	for _, suffix := range []string{"", "-wal"} {
		crashed[suffix] = string(must[[]byte](t)(os.ReadFile(x.Path() + suffix)))
		if err := os.WriteFile(o.Path+suffix, []byte(crashed[suffix]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, o, storage.ErrKey)
	for suffix, content := range crashed {
		if after, err := os.ReadFile(o.Path + suffix); err != nil || string(after) != content {
			t.Errorf("keyhook.db%s has %d bytes, want the %d from before; error %v", suffix, len(after), len(content), err)
		}
	}
}

// TestDatabaseApartFromItsLog has a database that has not copied its log into the file yet. Somebody moves one of them and forgets the
// other.
func TestDatabaseApartFromItsLog(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	if _, err := storage.Open(context.Background(), o); err != nil { // never run, and never closed, as a kill leaves it
		t.Fatal(err)
	}
	move := func(suffixes ...string) storage.Options {
		moved := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		for _, suffix := range suffixes {
			if err := os.WriteFile(moved.Path+suffix, must[[]byte](t)(os.ReadFile(o.Path+suffix)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return moved
	}
	wantLost := func(o storage.Options, kind error, part string) {
		t.Helper()
		if _, err := storage.Examine(t.Context(), o); !errors.Is(err, kind) || !strings.Contains(err.Error(), part) {
			t.Errorf("doctor finds %v", err)
		}
		refused(t, o, kind, part)
	}
	database := move("", ".key")
	if info := must[os.FileInfo](t)(os.Stat(database.Path)); info.Size() != 4096 {
		t.Fatalf("the database has %d bytes, so it has tables", info.Size())
	}
	wantLost(database, storage.ErrLost, "put the database and its -wal file back")
	_, err := storage.Backup(t.Context(), storage.BackupOptions{Path: database.Path, To: database.Path + ".copy"})
	if !errors.Is(err, storage.ErrForeignFile) || !strings.Contains(err.Error(), "there is no database at "+database.Path) {
		t.Errorf("the backup fails with %v", err)
	}
	database = move("", ".key")
	if _, err = storage.Rekey(t.Context(), database, storage.KeyChange{}); !errors.Is(err, storage.ErrLost) || !strings.Contains(err.Error(), "put the database and its -wal file back") {
		t.Errorf("rekey fails with %v", err)
	}
	copied := move("") // alone, with a key of its own, it looks like a first start
	copied.EncryptionKey = strings.Repeat("ab", 32)
	if _, err = storage.Rekey(t.Context(), copied, storage.KeyChange{}); !errors.Is(err, storage.ErrLost) {
		t.Errorf("rekey of a copy without a log fails with %v", err)
	}
	log := move("-wal", ".lock")
	wantLost(log, storage.ErrDamaged, "put the database back beside "+log.Path+"-wal")
	if before, after := must[[]byte](t)(os.ReadFile(o.Path+"-wal")), must[[]byte](t)(os.ReadFile(log.Path+"-wal")); string(after) != string(before) {
		t.Error("the log was changed")
	}
	all, _ := storagetest.OpenWith(t, move("", "-wal", ".key", ".lock"))
	if all.Created() {
		t.Error("all files together are a new database")
	}
}

func TestFirstStart(t *testing.T) {
	t.Parallel()

	t.Run("a first start that was interrupted at any step starts again", func(t *testing.T) {
		t.Parallel()
		for name, cut := range map[string]func(t *testing.T, path string){
			"before the key was whole": func(t *testing.T, path string) {
				if err := os.WriteFile(path+".key.new", []byte("AAAA"), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			"before there was a database": func(t *testing.T, path string) {
				if err := os.WriteFile(path+".key.new", []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			"before the database had tables": func(t *testing.T, path string) {
				if err := os.WriteFile(path+".key.new", []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
					t.Fatal(err)
				}
				alter(t, path, "PRAGMA journal_mode = WAL; CREATE TABLE t (a); DROP TABLE t")
			},
		} {
			t.Run(name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "keyhook.db")
				cut(t, path)
				for _, created := range []bool{true, false} {
					store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
					if store.Created() != created {
						t.Errorf("created: %v", store.Created())
					}
					stop()
				}
			})
		}
		path := closedFile(t)
		if err := os.Rename(path+".key", path+".key.new"); err != nil { // as if the start ended before the key got its name
			t.Fatal(err)
		}
		storagetest.OpenWith(t, storagetest.Options(t, path))
		if _, err := os.Stat(path + ".key"); err != nil {
			t.Error(err)
		}
	})

	t.Run("a missing directory is refused", func(t *testing.T) {
		t.Parallel()
		refused(t, storagetest.Options(t, filepath.Join(t.TempDir(), "no", "such", "keyhook.db")), disk.ErrAccess, "storage.path")
	})

	t.Run("only the owner may read the files", func(t *testing.T) {
		t.Parallel()
		path := closedFile(t)
		for _, name := range []string{path + ".key", path + ".lock"} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, error %v", name, info.Mode(), err)
			}
		}
	})
}
