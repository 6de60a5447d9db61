package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// Step leads a file from one schema version to the next. Foreign keys are off during a step, so that it can rebuild a
// table; they are checked at the end. The result must match the schema text by names, so an added column is the last
// one of its table. A step must not change what Recognize reads, because Recognize runs before.
type Step func(*Tx) error

// upgrade leads a file of an older schema to the present one. It makes a copy first. All steps are one transaction, so after a
// crash the file is the old one or the new one. If there is nothing to do, it removes the leftovers of an interrupted upgrade.
func (f *File) upgrade(ctx context.Context) error {
	if f.outdated == 0 {
		_, err := f.nameCopy()
		return err
	}
	began := time.Now()
	if f.o.IsCopy {
		if err := f.migrate(ctx); err != nil {
			return fmt.Errorf("upgrade from schema %d to %d: %w", f.outdated, f.o.version(), err)
		}
		return nil
	}
	if err := f.copyBefore(ctx); err != nil {
		return fmt.Errorf("make a copy before the upgrade from schema %d to %d: %w; the file is as it was", f.outdated, f.o.version(), err)
	}
	f.o.Reached("copied")
	if err := f.migrate(ctx); err != nil {
		if failed := f.failures.ended(); failed != nil { // keep the copy, because the state of the file is unknown
			return fmt.Errorf("upgrade from schema %d to %d: %w; the next start finds the file as it was, or upgraded", f.outdated, f.o.version(), failed)
		}
		return fmt.Errorf("upgrade from schema %d to %d: %w; the file is as it was, and the version before can run on it",
			f.outdated, f.o.version(), errors.Join(err, f.dropCopy()))
	}
	f.o.Reached("committed")
	name, err := f.nameCopy()
	if err != nil {
		return err
	}
	f.o.Reached("named")
	f.o.Logger.Info("the database was upgraded", "from", f.outdated, "to", f.o.version(), "copy_of_before", name, "took", time.Since(began))
	return nil
}

// migrate runs the steps on a connection of its own.
func (f *File) migrate(ctx context.Context) (err error) {
	t, err := openTx(ctx, f.o.Path, replace(writerPragmas(Full), pragma{"foreign_keys", "off", "0"})) // a transaction cannot change it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	t.now = time.Now().UnixMilli()
	if err := t.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	f.o.Reached("begun")
	if err := f.takeSteps(ctx, t); err != nil {
		return errors.Join(err, t.rollback())
	}
	f.o.Reached("checked")
	if err := t.Exec("COMMIT"); err != nil {
		f.failures.note(byCommit, err)
		return errors.Join(fmt.Errorf("commit: %w", err), t.rollback())
	}
	return nil
}

func (f *File) takeSteps(ctx context.Context, t *Tx) error {
	for from := f.outdated; from < f.o.version(); from++ {
		if err := t.attempt(f.o.Upgrades[from-1]); err != nil {
			return fmt.Errorf("step to schema %d: %w", from+1, err)
		}
	}
	var orphans []string // tables with rows whose foreign keys match no row
	if err := sqlx.SelectContext(ctx, t.conn, &orphans, `SELECT DISTINCT "table" FROM pragma_foreign_key_check`); err != nil {
		return fmt.Errorf("check foreign keys: %w", err)
	}
	if len(orphans) > 0 {
		return fmt.Errorf("rows of %v would refer to rows that do not exist", orphans)
	}
	have, err := objects(ctx, t.conn)
	if err != nil {
		return err
	}
	if err := compareSchema(ctx, f.o.Schema, have); err != nil {
		return err
	}
	_, err = t.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", f.o.version()))
	return err
}

// An upgrade makes a copy first, for a return to the earlier binary. PATH.before-vN is the file before it got schema N. The copy ends
// in copyPart until the upgrade is durable. A copy with that name beside an old file is from an interrupted upgrade, and is made again.
const copyPart = ".part"

func (o Options) upgradeCopy(version int64) string {
	return fmt.Sprintf("%s.before-v%d", o.Path, version)
}

func (f *File) copyBefore(ctx context.Context) (err error) {
	if err := f.dropCopy(); err != nil {
		return err
	}
	name := f.o.upgradeCopy(f.o.version()) + copyPart
	if err := createEmpty(name); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.dropCopy())
		}
	}()
	from, err := openSource(ctx, f.o.Path)
	if err != nil {
		return err
	}
	if err := errors.Join(from.snapshot(ctx, name), from.db.Close()); err != nil {
		return err
	}
	return Copies{Version: f.outdated}.check(ctx, name)
}

// dropCopy removes a copy without an upgrade.
func (f *File) dropCopy() error {
	if err := removeDatabase(f.o.upgradeCopy(f.o.version()) + copyPart); err != nil {
		return fmt.Errorf("remove a copy that was cut off: %w", err)
	}
	return nil
}

// nameCopy gives the copy its final name after the upgrade is durable; an older copy keeps its name. It returns the
// name, or an empty one if there is no copy.
func (f *File) nameCopy() (string, error) {
	base := f.o.upgradeCopy(f.o.version())
	if !disk.Exists(base + copyPart) {
		return "", nil
	}
	name := base
	for n := 2; disk.Exists(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	if err := errors.Join(os.Rename(base+copyPart, name), disk.SyncDir(filepath.Dir(name))); err != nil {
		return "", fmt.Errorf("name the copy of before the upgrade: %w", err)
	}
	return name, nil
}

// newer refuses a file of a later version, and names the copy that the later version made before its upgrade.
func (o Options) newer(found int64) error {
	mend := "restore a backup that this version has written"
	for n := o.version() + 1; n <= found; n++ {
		if name := o.upgradeCopy(n); disk.Exists(name) {
			mend = fmt.Sprintf("restore the copy that was made before the upgrade, %s (what came later is not in it)", name)
			break
		}
	}
	return fault.Advise(fmt.Errorf("%w: %s has schema %d and this binary knows %d", ErrNewerSchema, o.Path, found, o.version()),
		"run the newer binary, or %s", mend)
}
