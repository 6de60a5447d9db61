package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite/ownership"
)

// Open locks, checks and opens the database, or creates it. A process that runs as root first takes the rights of the
// owner of the database permanently (see disk.Locate).
//
// Open refuses with advice on what to do: ownership.ErrInUse, ErrNewerSchema, ErrSchema, ErrForeignFile, ErrDamaged, an error of
// a hook, or an error of package disk. It does not change a file that it refuses.
func Open(ctx context.Context, o Options) (_ *File, err error) {
	o = o.withDefaults()
	path, owner, err := disk.Resolve(o.Path)
	if err != nil {
		return nil, err
	}
	if self := disk.Self(); self.UID != owner.UID {
		o.Logger.Info("this process was started as root and continues as the owner of the database", "database", path, "uid", owner.UID, "gid", owner.GID)
	}
	if err := owner.Become(); err != nil {
		return nil, err
	}
	o.Path = path
	if err := checkPlace(o); err != nil {
		return nil, err
	}
	f := &File{inspection: inspection{o: o}, failures: newFailures(o.Logger)}
	f.writer.queue, f.writer.stopped = newWriteQueue(), make(chan struct{})
	if f.lock, err = ownership.Take(path); err != nil {
		return nil, err
	}
	f.makeRoom()
	if err := f.open(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, errors.Join(Advise(err), f.Close()))
	}
	f.holdReserve()
	return f, nil
}

// open does the steps of Open under the lock. Each step needs the earlier ones. Up to identify, the steps are the same as in
// Examine; see inspection.
func (f *File) open(ctx context.Context) error {
	for _, step := range []func() error{
		f.look,
		f.lockFile,
		f.checkHeader,
		f.prepare,
		func() error { return f.identify(ctx) },
		func() error { return f.openWriter(ctx) },
		f.create,
		f.o.Made,
		f.lock.NoteMade,
		func() error { return f.upgrade(ctx) },
		func() error { return f.openCheckpointer(ctx) },
		f.remember,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkPlace checks the place of the file before anything is created there.
func checkPlace(o Options) error {
	mount, err := disk.MountOf(o.Path)
	if err != nil {
		o.Logger.Warn("cannot find the file system of the database", "error", err)
	}
	if warning := mount.LossWarning(); warning != "" {
		o.Logger.Warn(warning, "database", o.Path, "mount", mount.Point, "type", mount.Type)
	}
	size, err := fileSize(o.Path) // first: otherwise the advice would be about the directory of what is no file
	if err == nil {
		err = errors.Join(mount.CheckMount(o.Path), disk.Check(o.Path))
	}
	if err == nil && size == 0 && disk.Exists(o.Path) && !disk.IsOwn(o.Path) { // another user has created it, and could read it
		err = fault.Advise(fmt.Errorf("%w: %s is empty and was not made by this process (%s), or has another name too", disk.ErrAccess, o.Path, disk.Self()),
			"move it away")
	}
	return err
}

func (f *File) lockFile() error {
	if !disk.Exists(f.o.Path) {
		return nil
	}
	return f.lock.LockFile(f.o.Path)
}

// identify reads the database before the first write, because it might belong to another application. It checks a file
// that was left open, and every file before an upgrade.
func (f *File) identify(ctx context.Context) error {
	journal, err := fileSize(f.o.Path + disk.Journal)
	if err != nil || f.size == 0 {
		return err
	}
	options := []string{readOnly} // so the end of the connection does not fold the log of a crash into a file that is refused
	if journal > 0 {
		options = nil // SQLite must roll it back first
	}
	return f.read(ctx, func(db *sqlx.DB) error {
		switch {
		case f.outdated > 0: // whatever its size, because a damaged file must not be upgraded
			return checkDatabase(ctx, db, "quick_check(1)")
		case f.leftOpen:
			return f.checkFirst(ctx, db)
		}
		return nil
	}, options...)
}

// openWriter opens the connection that writes. If there is no file, it creates and locks an empty one for SQLite to fill.
func (f *File) openWriter(ctx context.Context) (err error) {
	if !disk.Exists(f.o.Path) {
		if err := createEmpty(f.o.Path); err != nil {
			return err
		}
	}
	if err := f.lock.LockFile(f.o.Path); err != nil {
		return err
	}
	more := []string{"_txlock=immediate"}
	if f.Created() {
		more = append(more, "_auto_vacuum=INCREMENTAL") // it cannot be changed later, and it writes
	}
	f.tx, err = openTx(ctx, f.o.Path, writerPragmas(f.o.Synchronous), more...)
	return err
}

// createEmpty creates an empty file. SQLite itself would create it with the mode of the umask.
func createEmpty(path string) error {
	file, err := disk.Create(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// create writes the schema and the first rows in one transaction. After a crash, the file has all of them or none.
func (f *File) create() error {
	if !f.Created() {
		return nil
	}
	err := f.Alone(func(t *Tx) error {
		t.dirty = true // the next statements bypass t
		if _, err := t.conn.ExecContext(background, f.o.Schema); err != nil {
			return fmt.Errorf("apply schema: %w", err)
		}
		if _, err := t.conn.ExecContext(background, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, f.o.version())); err != nil {
			return fmt.Errorf("mark file: %w", err)
		}
		return f.o.Create(t)
	})
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

func (f *File) openCheckpointer(ctx context.Context) (err error) {
	pragmas := replace(writerPragmas(f.o.Synchronous), pragma{"busy_timeout", restartWait, restartWait})
	f.checkpointer.db, err = connect(ctx, f.o.Path, 1, pragmas, "_txlock=immediate", existing)
	return err
}

// fileSize returns 0 if there is no file.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, disk.Advise(path, err)
	}
	if !info.Mode().IsRegular() {
		return 0, fault.Advise(fmt.Errorf("%w: %s is not a regular file", ErrForeignFile, path),
			"set storage.path to a file, such as %s", disk.Quote(path+"/keyhook.db"))
	}
	return info.Size(), nil
}
