package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// The schema of the golden file, and two that never existed.
const (
	presentSchema = storage.Version
	nextSchema    = presentSchema + 1
	laterSchema   = presentSchema + 2
)

// futureSteps lead to these two. The first adds a column, an index and a table, and fills them.
// The second rebuilds a table with references to it.
func futureSteps(t *testing.T) [][]string {
	return [][]string{
		{
			"ALTER TABLE organizations ADD COLUMN " + newColour,
			"UPDATE organizations SET colour = 'red' WHERE id = 1",
			newNotes,
			"INSERT INTO notes (organization_id, text) SELECT id, 'of ' || name FROM organizations",
			newNotesIndex,
		},
		{
			"CREATE TABLE plans_new (" + tableBody(t, "plans") + "\n, " + newLetters + ") STRICT",
			"INSERT INTO plans_new SELECT *, length(name) FROM plans",
			"DROP TABLE plans",
			"ALTER TABLE plans_new RENAME TO plans",
			"DROP INDEX notes_by_organization",
		},
	}
}

// The additions of those versions.
const (
	newColour     = "colour TEXT NOT NULL DEFAULT 'none'"
	newNotes      = "CREATE TABLE notes (id INTEGER PRIMARY KEY, organization_id INTEGER NOT NULL REFERENCES organizations (id), text TEXT NOT NULL) STRICT"
	newNotesIndex = "CREATE INDEX notes_by_organization ON notes (organization_id)"
	newLetters    = "letters INTEGER NOT NULL DEFAULT 0"
)

// tableBody returns the text between the parentheses of a table in schema.sql.
func tableBody(t *testing.T, table string) string {
	t.Helper()
	_, rest, found := strings.Cut(storagetest.Schema(t), "CREATE TABLE "+table+" (")
	body, _, ended := strings.Cut(rest, "\n) STRICT")
	if !found || !ended {
		t.Fatalf("there is no table %s", table)
	}
	return body
}

// futureSchema is the schema text of nextSchema or laterSchema.
func futureSchema(t *testing.T, version int) string {
	t.Helper()
	text := storagetest.Schema(t)
	add := func(table, column string) {
		body := tableBody(t, table)
		text = strings.Replace(text, "CREATE TABLE "+table+" ("+body, "CREATE TABLE "+table+" ("+body+"\n  , "+column+" -- is new", 1)
	}
	add("organizations", newColour)
	text += newNotes + ";\n"
	if version == nextSchema {
		return text + newNotesIndex + ";\n"
	}
	add("plans", newLetters)
	return text
}

// future returns options of nextSchema or laterSchema. reached also receives each statement.
func future(t *testing.T, o storage.Options, version int, reached func(string)) storage.Options {
	t.Helper()
	var steps []storage.Step
	for i, statements := range futureSteps(t)[:version-presentSchema] {
		steps = append(steps, func(tx *storage.Tx) error {
			for j, statement := range statements {
				if err := tx.Run(statement); err != nil {
					return err
				}
				if reached != nil {
					reached(fmt.Sprintf("statement %d of step %d", j+1, i+1))
				}
			}
			return nil
		})
	}
	return storage.Upgrading(o, futureSchema(t, version), reached, steps...)
}

// beforeUpgrade returns a file of the present schema and its contents.
func beforeUpgrade(t *testing.T) (storage.Options, map[string]any) {
	t.Helper()
	return golden(t, presentSchema), contentOf(t, golden(t, presentSchema))
}

// beforeIt ends the name of the copy that was made before the upgrade to a version.
func beforeIt(version int) string { return fmt.Sprintf(".before-v%d", version) }

// tooNew is the refusal of a version that knows an older schema.
func tooNew(found, known int) string {
	return fmt.Sprintf("has schema %d and this binary knows %d", found, known)
}

// upgradeTo names an upgrade in an error.
func upgradeTo(version int) string {
	return fmt.Sprintf("upgrade from schema %d to %d", presentSchema, version)
}

// copies lists the copies beside the file.
func copies(t *testing.T, o storage.Options) []string {
	t.Helper()
	names, err := filepath.Glob(o.Path + ".before*")
	if err != nil {
		t.Fatal(err)
	}
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], o.Path)
	}
	return names
}

// at returns the options for another path.
func at(o storage.Options, path string) storage.Options {
	o.Path = path
	return o
}

func same(t *testing.T, want, got map[string]any) {
	t.Helper()
	if d := cmp.Diff(any(want), storagetest.StillThere(want, got)); d != "" {
		t.Errorf("the content (-before +after):\n%s", d)
	}
}

func TestUpgrade(t *testing.T) {
	if path := os.Getenv(upgradedFile); path != "" {
		asProcess(t, path, os.Getenv(killedAt))
		return
	}
	t.Parallel()

	t.Run("an upgrade leads from any version to the schema of a new file and keeps the old file", func(t *testing.T) {
		t.Parallel()
		for _, path := range [][]int{{nextSchema}, {laterSchema}, {nextSchema, laterSchema}} {
			o, before := beforeUpgrade(t)
			newest := o
			var want []string
			for _, version := range path {
				newest = future(t, o, version, nil)
				same(t, before, contentOf(t, newest))
				want = append(want, beforeIt(version))
			}
			if d := cmp.Diff(want, copies(t, o)); d != "" {
				t.Errorf("copies (-want +got):\n%s", d)
			}
			if info, err := os.Stat(o.Path + want[0]); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, error %v", info.Mode(), err)
			}
			same(t, before, contentOf(t, at(o, o.Path+want[0]))) // by the earlier version
			fresh, _ := storagetest.OpenWith(t, at(newest, filepath.Join(t.TempDir(), "fresh.db")))
			upgraded, _ := storagetest.OpenWith(t, newest)
			objects := must[map[string]string](t)(fresh.Objects(t.Context()))
			if d := cmp.Diff(objects, must[map[string]string](t)(upgraded.Objects(t.Context()))); d != "" || len(objects) < 30 {
				t.Errorf("schema (-fresh +upgraded):\n%s", d)
			}
			if rows := must[map[string]int64](t)(upgraded.Rows(t.Context())); rows["notes"] != 2 {
				t.Errorf("%d notes", rows["notes"])
			}
		}
	})

	t.Run("a killed upgrade leaves the old file or the new one", func(t *testing.T) {
		t.Parallel()
		var points []string
		dry, before := beforeUpgrade(t)
		contentOf(t, future(t, dry, laterSchema, func(point string) { points = append(points, point) }))
		if d := cmp.Diff([]string{"copied", "begun", "statement 1 of step 1"}, points[:3]); d != "" || len(points) != 2+10+3 {
			t.Fatalf("points %v", points)
		}
		for _, point := range points {
			t.Run("at "+point, func(t *testing.T) {
				t.Parallel()
				o, _ := beforeUpgrade(t)
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				child := exec.Command(self, "-test.run=^TestUpgrade$")
				child.Env = append(os.Environ(), upgradedFile+"="+o.Path, killedAt+"="+point)
				out, err := child.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("it was not killed: %v\n%s", err, out)
				}
				isNew := point == "committed" || point == "named"
				old, err := storage.Open(context.Background(), at(o, o.Path))
				switch {
				case isNew && (!errors.Is(err, storage.ErrNewerSchema) || !strings.Contains(err.Error(), tooNew(laterSchema, presentSchema))):
					t.Errorf("the version of before says %v", err)
				case !isNew && err != nil:
					t.Errorf("the version of before cannot go on: %v", err)
				}
				if err == nil {
					if err := old.Close(); err != nil {
						t.Fatal(err)
					}
				}
				same(t, before, contentOf(t, future(t, o, laterSchema, nil)))
				if d := cmp.Diff([]string{beforeIt(laterSchema)}, copies(t, o)); d != "" {
					t.Errorf("copies (-want +got):\n%s", d)
				}
				same(t, before, contentOf(t, at(o, o.Path+beforeIt(laterSchema))))
			})
		}
	})
}

func TestRefusedUpgrade(t *testing.T) {
	t.Parallel()

	t.Run("the copy stays if the upgrade may not be on the disk", func(t *testing.T) {
		t.Parallel()
		o, before := beforeUpgrade(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(self, "-test.run=^TestUpgrade$")
		child.Env = append(os.Environ(), upgradedFile+"="+o.Path, killedAt+"=")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if d := cmp.Diff([]string{beforeIt(laterSchema) + ".part"}, copies(t, o)); d != "" {
			t.Errorf("copies (-want +got):\n%s", d)
		}
		same(t, before, contentOf(t, future(t, o, laterSchema, nil)))
		if d := cmp.Diff([]string{beforeIt(laterSchema)}, copies(t, o)); d != "" {
			t.Errorf("copies afterwards (-want +got):\n%s", d)
		}
		same(t, before, contentOf(t, at(o, o.Path+beforeIt(laterSchema))))
	})

	t.Run("a failed step leaves the file as it was", func(t *testing.T) {
		t.Parallel()
		good := futureSchema(t, nextSchema)
		for name, tt := range map[string]struct {
			step storage.Step
			part string
		}{
			"it fails":             {func(tx *storage.Tx) error { return tx.Run("DELETE FROM nothing") }, fmt.Sprintf("step to schema %d", nextSchema)},
			"it panics":            {func(*storage.Tx) error { panic("no") }, fmt.Sprintf("step to schema %d", nextSchema)},
			"it leads elsewhere":   {func(tx *storage.Tx) error { return tx.Run("CREATE TABLE elsewhere (id INTEGER)") }, "+ table elsewhere"},
			"it leaves out a part": {func(*storage.Tx) error { return nil }, "- table notes"},
			"it breaks a reference": {func(tx *storage.Tx) error {
				for _, statement := range append(slices.Clone(futureSteps(t)[0]), "DELETE FROM plans WHERE name = 'pro'") {
					if err := tx.Run(statement); err != nil {
						return err
					}
				}
				return nil
			}, "rows of [organizations] would refer to rows that do not exist"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o, before := beforeUpgrade(t)
				refused(t, storage.Upgrading(o, good, nil, tt.step), nil, upgradeTo(nextSchema), tt.part, "as it was")
				if left := copies(t, o); len(left) > 0 {
					t.Errorf("it left %v", left)
				}
				same(t, before, contentOf(t, o))
			})
		}
	})

	t.Run("an upgrade overwrites no complete copy and repeats an interrupted one", func(t *testing.T) {
		t.Parallel()
		o, before := beforeUpgrade(t)
		for name, text := range map[string]string{beforeIt(nextSchema): "an older one", beforeIt(nextSchema) + ".part": "half a", beforeIt(nextSchema) + ".part-journal": "half a"} {
			if err := os.WriteFile(o.Path+name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		same(t, before, contentOf(t, future(t, o, nextSchema, nil)))
		if d := cmp.Diff([]string{beforeIt(nextSchema), beforeIt(nextSchema) + "-2"}, copies(t, o)); d != "" {
			t.Errorf("copies (-want +got):\n%s", d)
		}
		if text, err := os.ReadFile(o.Path + beforeIt(nextSchema)); err != nil || string(text) != "an older one" {
			t.Errorf("the older copy holds %q, error %v", text, err)
		}
		same(t, before, contentOf(t, at(o, o.Path+beforeIt(nextSchema)+"-2")))
	})

	t.Run("an upgrade does not start without a copy or with another key", func(t *testing.T) {
		t.Parallel()
		o, before := beforeUpgrade(t)
		if err := os.MkdirAll(o.Path+beforeIt(nextSchema)+".part/x", 0o700); err != nil {
			t.Fatal(err)
		}
		refused(t, future(t, o, nextSchema, nil), nil, "make a copy before the "+upgradeTo(nextSchema), "as it was")
		if err := os.RemoveAll(o.Path + beforeIt(nextSchema) + ".part"); err != nil {
			t.Fatal(err)
		}
		other := o
		other.EncryptionKey = keyA
		refused(t, future(t, other, nextSchema, nil), storage.ErrKey)
		if left := copies(t, o); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
		same(t, before, contentOf(t, o))
	})
}

func TestUpgradeAndOlderCopies(t *testing.T) {
	t.Parallel()

	t.Run("a restored older copy is upgraded too, without files beside it", func(t *testing.T) {
		t.Parallel()
		o, before := beforeUpgrade(t)
		if state, err := storage.Examine(t.Context(), future(t, o, laterSchema, nil)); state != storage.Outdated || err != nil {
			t.Errorf("it is %v, error %v", state, err)
		}
		from := filepath.Join(t.TempDir(), "copy.db")
		must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: o.Path, To: from}))
		path := filepath.Join(t.TempDir(), "keyhook.db")
		must[backup.Restored](t)(storage.Restore(t.Context(), at(future(t, o, laterSchema, nil), path), from))
		if d := cmp.Diff([]string{"keyhook.db", "keyhook.db.lock"}, files(t, filepath.Dir(path))); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
		after := contentOf(t, at(future(t, o, laterSchema, nil), path))
		for name := range before { // a restore holds the queue and reports it
			if name != "queue" && !strings.HasPrefix(name, "log of ") && !strings.HasPrefix(name, "events of ") && !strings.HasPrefix(name, "usage of ") && !cmp.Equal(before[name], storagetest.StillThere(before[name], after[name])) {
				t.Errorf("%s: %s", name, cmp.Diff(before[name], storagetest.StillThere(before[name], after[name])))
			}
		}
	})

	t.Run("a damaged file is not upgraded", func(t *testing.T) {
		t.Parallel()
		o, _ := beforeUpgrade(t)
		spoil(t, o.Path)
		text := must[[]byte](t)(os.ReadFile(o.Path))
		_, err := storage.Open(t.Context(), future(t, o, laterSchema, nil))
		if !errors.Is(err, storage.ErrDamaged) || strings.Contains(err.Error(), "copy aside") {
			t.Errorf("error %v", err)
		}
		if left := copies(t, o); len(left) > 0 || !bytes.Equal(text, must[[]byte](t)(os.ReadFile(o.Path))) {
			t.Errorf("it left %v, or changed the file", left)
		}
	})

	t.Run("an older version refuses the upgraded file and says what to do", func(t *testing.T) {
		t.Parallel()
		o, _ := beforeUpgrade(t)
		contentOf(t, future(t, o, laterSchema, nil))
		refused(t, o, storage.ErrNewerSchema, tooNew(laterSchema, presentSchema), "newer binary", "restore the copy that was made before the upgrade, "+o.Path+beforeIt(laterSchema))
		refused(t, future(t, o, nextSchema, nil), storage.ErrNewerSchema, tooNew(laterSchema, nextSchema), o.Path+beforeIt(laterSchema))
		if r, err := storage.Restore(t.Context(), o, o.Path+beforeIt(laterSchema)); err != nil || r.ReplacedDatabase == "" {
			t.Fatalf("%+v, error %v", r, err)
		}
		contentOf(t, o)
		contentOf(t, future(t, o, laterSchema, nil))
		if err := os.Remove(o.Path + beforeIt(laterSchema)); err != nil {
			t.Fatal(err)
		}
		refused(t, o, storage.ErrNewerSchema, tooNew(laterSchema, presentSchema), "restore a backup")
	})
}

// The environment of the process that TestUpgrade starts: the file to upgrade, and the point at which to kill itself.
// At the point nowhere, the disk does not flush the end of the upgrade.
const (
	upgradedFile = "TEST_UPGRADED_FILE"
	killedAt     = "TEST_KILLED_AT"
)

// asProcess is the main function of that process.
func asProcess(t *testing.T, path, at string) {
	o := storagetest.Options(t, path)
	o.EncryptionKey = goldenKey
	if at == "" {
		upgradeUnflushed(t, o)
		return
	}
	_, err := storage.Open(t.Context(), future(t, o, laterSchema, func(point string) {
		if point == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}))
	t.Fatalf("it ended before: %v", err)
}

func upgradeUnflushed(t *testing.T, o storage.Options) {
	faultdisk.Install()
	refused(t, future(t, o, laterSchema, func(point string) {
		if point == "checked" {
			faultdisk.Break(faultdisk.Fault{Op: faultdisk.Sync, File: "-wal", Code: 1034})
		}
	}), storage.ErrFailed, upgradeTo(laterSchema), "next start")
}
