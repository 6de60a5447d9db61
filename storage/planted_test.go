package storage_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// plantedObjects are the objects that another user of a directory could put in place of a file, before or during a command.
// target is a file elsewhere that must not change. missing is a name elsewhere that must stay free.
var plantedObjects = map[string]func(name, target, missing string) error{
	"a symbolic link":           func(name, target, _ string) error { return os.Symlink(target, name) },
	"a symbolic link to nobody": func(name, _, missing string) error { return os.Symlink(missing, name) },
	"a hard link":               func(name, target, _ string) error { return os.Link(target, name) },
	"a pipe":                    func(name, _, _ string) error { return syscall.Mkfifo(name, 0o666) },
	"a directory":               func(name, _, _ string) error { return os.Mkdir(name, 0o777) },
	"a file of another user": func(name, _, _ string) error {
		return errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, 0o666), os.Chown(name, 65534, 65534))
	},
}

// attackedFiles has the files of an attacked command.
type attackedFiles struct {
	t    *testing.T
	path string // of the database
	o    storage.Options
	from string // a copy to restore
}

// TestPlanted puts every object at every name that a command writes to. It runs with the rights of the tests, which may
// be root's.
func TestPlanted(t *testing.T) {
	t.Parallel()
	made := closedFile(t)
	from := filepath.Join(t.TempDir(), "copy.db")
	if _, err := storage.Backup(t.Context(), storage.BackupOptions{Path: made, To: from}); err != nil {
		t.Fatal(err)
	}
	open := func(a attackedFiles) error {
		s, err := storage.Open(a.t.Context(), a.o)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	backup := func(o storage.BackupOptions) func(attackedFiles) error {
		return func(a attackedFiles) error {
			o := o
			o.Path = a.path
			if o.To != "" {
				o.To = filepath.Join(filepath.Dir(a.path), o.To)
			}
			_, err := storage.Backup(a.t.Context(), o)
			return err
		}
	}
	sqlite := slices.Clip([]string{"keyhook.db-wal", "keyhook.db-shm", "keyhook.db-journal"})
	for _, c := range []struct {
		command  string
		run      func(attackedFiles) error
		isFirst  bool     // there is no database yet
		names    []string // a planted name is refused with an error that names it
		replaced []string // a planted name is refused too, or the object is replaced unless it is a directory
	}{
		{"a first start", open, true, append(sqlite, "keyhook.db.lock"), []string{"keyhook.db.key.new.part"}},
		{"a start", open, false, append(sqlite, "keyhook.db.lock"), nil},
		{"a backup", backup(storage.BackupOptions{}), false, append(sqlite, "backups/keyhook.db.partial"), nil},
		{"a backup with a name", backup(storage.BackupOptions{To: "copy.db"}), false, []string{"keyhook.db.partial", "copy.db"},
			[]string{"keyhook.db.partial-journal", "keyhook.db.partial-wal"}},
		{"a backup that replaces a file", backup(storage.BackupOptions{To: "copy.db", Replace: true}), false, []string{"keyhook.db.partial"}, []string{"copy.db"}},
		{"a restore", func(a attackedFiles) error { _, err := storage.Restore(a.t.Context(), a.o, a.from); return err }, false,
			append(sqlite, "keyhook.db.lock"), []string{"keyhook.db.restoring", "keyhook.db.restoring-wal", "keyhook.db.restoring.lock"}},
		{"a change of the key", func(a attackedFiles) error {
			_, err := storage.Rekey(a.t.Context(), a.o, storage.KeyChange{})
			return err
		}, false, append(sqlite, "keyhook.db.lock"), []string{"keyhook.db.key.part"}},
		{"a look at the files", func(a attackedFiles) error {
			storage.Owner(a.path)
			_, err := storage.Examine(a.t.Context(), a.o)
			return err
		}, false, sqlite, []string{"keyhook.db.lock"}},
	} {
		for _, name := range append(slices.Clone(c.names), c.replaced...) {
			for _, kind := range slices.Sorted(maps.Keys(plantedObjects)) {
				t.Run(c.command+" finds "+kind+" at "+filepath.Base(name), func(t *testing.T) {
					t.Parallel()
					if kind == "a file of another user" && os.Getuid() != 0 {
						if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
							t.Fatal("only root can make a file of another user")
						}
						t.Skip("only root can make a file of another user") // fails if KEYHOOK_TEST_REQUIRE is set
					}
					dir, elsewhere := t.TempDir(), t.TempDir()
					a := attackedFiles{t, filepath.Join(dir, "keyhook.db"), storage.Options{}, from}
					if !c.isFirst {
						copyFiles(t, made, a.path)
					}
					a.o = storagetest.Options(t, a.path)
					target, missing := filepath.Join(elsewhere, "target"), filepath.Join(elsewhere, "missing")
					if err := errors.Join(os.WriteFile(target, nil, 0o640), os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700)); err != nil {
						t.Fatal(err)
					}
					before := must[os.FileInfo](t)(os.Stat(target))
					if err := plantedObjects[kind](filepath.Join(dir, name), target, missing); err != nil {
						t.Fatal(err)
					}
					err := c.run(a)
					if mayReplace := slices.Contains(c.replaced, name); !mayReplace && err == nil && !(name == "copy.db" && kind == "a directory") {
						t.Error("it was not refused")
					}
					if err != nil && (!strings.Contains(err.Error(), filepath.Base(name)) || !errors.Is(err, disk.ErrAccess) && !errors.Is(err, storage.ErrExists) && !errors.Is(err, storage.ErrForeignFile)) {
						t.Errorf("the sentence does not name what is in the way: %v", err)
					}
					t.Log(err)
					a.unharmed(filepath.Join(dir, name), before, missing)
				})
			}
		}
	}
}

// unharmed expects an unchanged target, a free name missing, and keys in files of mode 0600. The object was planted at
// name.
func (a attackedFiles) unharmed(name string, before os.FileInfo, missing string) {
	a.t.Helper()
	if _, err := os.Lstat(missing); err == nil {
		a.t.Error("a link was followed")
	}
	after := must[os.FileInfo](a.t)(os.Stat(filepath.Join(filepath.Dir(missing), before.Name())))
	if after.Size() != 0 || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) || after.Sys().(*syscall.Stat_t).Uid != before.Sys().(*syscall.Stat_t).Uid {
		a.t.Errorf("the file that a link leads to was %v and is %v", before, after)
	}
	for _, secret := range []string{a.path + ".key", a.path + ".key.new"} {
		if info, err := os.Lstat(secret); err == nil && secret != name && (!info.Mode().IsRegular() || info.Mode().Perm() != 0o600) {
			a.t.Errorf("%s is %v", secret, info.Mode())
		}
	}
}

// copyFiles copies a closed database and its key.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", ".key"} {
		if err := os.WriteFile(to+suffix, must[[]byte](t)(os.ReadFile(from+suffix)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSecondName gives a second name to a database that another process has open.
func TestSecondName(t *testing.T) {
	t.Parallel()
	path := closedFile(t)
	second := filepath.Join(t.TempDir(), "second.db")

	t.Run("a database with two names is refused, with the command that finds the other", func(t *testing.T) {
		copyFiles(t, path, second)
		if err := errors.Join(os.Remove(second), os.Link(path, second)); err != nil {
			t.Fatal(err)
		}
		inode := must[os.FileInfo](t)(os.Stat(path)).Sys().(*syscall.Stat_t).Ino
		for _, name := range []string{path, second} {
			_, err := storage.Open(t.Context(), storagetest.Options(t, name))
			_, copyErr := storage.Backup(t.Context(), storage.BackupOptions{Path: name})
			for _, err := range []error{err, copyErr} {
				if !errors.Is(err, disk.ErrAccess) || !strings.Contains(err.Error(), fmt.Sprintf("-inum %d", inode)) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if err := os.Remove(second); err != nil {
			t.Fatal(err)
		}
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		stop()
	})

	t.Run("the next start removes the second name that a killed restore left", func(t *testing.T) {
		aside := path + ".replaced-20260102-030405.678"
		if err := os.Link(path, aside); err != nil {
			t.Fatal(err)
		}
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		stop()
		if _, err := os.Lstat(aside); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is there: %v", err)
		}
	})

	t.Run("a database that was opened by a deleted name is in use", func(t *testing.T) {
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		moved := filepath.Join(t.TempDir(), "moved.db") // as a mount in another container does
		copyFiles(t, path, moved)
		if err := errors.Join(os.Remove(moved), os.Rename(path, moved)); err != nil {
			t.Fatal(err)
		}
		for name, use := range map[string]func() error{
			"open":    func() error { _, err := storage.Open(t.Context(), storagetest.Options(t, moved)); return err },
			"examine": func() error { _, err := storage.Examine(t.Context(), storagetest.Options(t, moved)); return err },
			"backup":  func() error { _, err := storage.Backup(t.Context(), storage.BackupOptions{Path: moved}); return err },
			"restore": func() error { _, err := storage.Restore(t.Context(), storagetest.Options(t, moved), path); return err },
		} {
			if err := use(); !errors.Is(err, storage.ErrInUse) || !strings.Contains(err.Error(), "another name") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := os.Rename(moved, path); err != nil {
			t.Fatal(err)
		}
		stop()
	})
}
