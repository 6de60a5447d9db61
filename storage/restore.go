package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// Restore puts a copy in the place of the database that o names, with its queue held: what the copy takes for pending may
// have been delivered since it was made, so nothing is sent until an operator has looked. What was there before is set
// aside. Until the copy is checked, and opens with o as serve would open it, nothing is touched. It refuses with ErrInUse
// while a server runs, with ErrForeignFile, ErrNewerSchema, ErrSchema, ErrDamaged, ErrKey, ErrKeyMissing, ErrNoSpace, or a
// file system's error.
//
// A process that is root reads the copy with the rights of its owner, and then takes on those of the owner of the database
// for good (see disk.Locate).
func Restore(ctx context.Context, o Options, name string) (r backup.Restored, err error) {
	path, owner, err := disk.Resolve(o.Path)
	if err != nil {
		return r, err
	}
	owned, err := claimForRestore(path, owner)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, owned.release()) }()
	from, contents, err := openRestored(ctx, name, path)
	if err != nil {
		return r, err
	}
	defer func() { _ = from.close() }() // nothing was written to it
	if err := owner.Become(); err != nil {
		return r, err
	}
	r.Contents, r.Database, o.Path = contents, path, path
	keys, err := findKeyOf(o, from.path, r.KeyID)
	if err != nil {
		return r, err
	}
	o.findKeys = func(Options, bool) (encryptionKeys, error) { return encryptionKeys{keys: keys.keys}, nil }
	if err := requireSpace(from, filepath.Dir(path), "set storage.path to a file on another disk"); err != nil {
		return r, err
	}
	o.Path, o.expendable = path+disk.Restoring, true
	defer func() { _ = removeDatabase(o.Path) }() // else the next run removes it; once it has its name nothing is left
	if err := removeDatabase(o.Path); err != nil {
		return r, fmt.Errorf("remove what an earlier restore has left: %w", err)
	}
	if err := copyHeld(ctx, o, from, &r); err != nil {
		return r, err
	}
	if r.Aside, err = setAside(ctx, path); err != nil {
		return r, err
	}
	if err := os.Rename(o.Path, path); err != nil {
		return r, fmt.Errorf("put the copy in place: %w", err)
	}
	return r, syncDir(filepath.Dir(path))
}

// claimForRestore makes sure that no process has the present database, if there is one.
func claimForRestore(path string, owner disk.User) (owned *ownership, err error) {
	err = owner.Do(func() error {
		if err := disk.CheckKinds(path); err != nil {
			return err
		}
		if owned, err = lock(path); err != nil {
			return err
		}
		if size, err := fileSize(path); err != nil || size == 0 {
			return err
		}
		return owned.hold(path)
	})
	if err != nil && owned != nil {
		err = errors.Join(err, owned.release())
	}
	return owned, err
}

// openRestored opens the copy that is to be restored, and tells what is in it.
func openRestored(ctx context.Context, name, path string) (from *source, contents backup.Contents, err error) {
	found, reader, err := disk.Locate(name)
	if err != nil {
		return nil, contents, err
	}
	err = reader.Do(func() error {
		if err := checkRestored(found, path); err != nil {
			return err
		}
		if contents, err = inspect(ctx, found); err != nil {
			return err
		}
		from, err = openSource(ctx, found)
		return err
	})
	return from, contents, err
}

// checkRestored refuses what cannot be restored at the first look.
func checkRestored(from, path string) error {
	copied, err := os.Stat(from)
	switch present, presentErr := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no file %s", from)
	case err != nil:
		return disk.Explain(from, err)
	case presentErr == nil && os.SameFile(copied, present):
		return fault.Advise(fmt.Errorf("%s is the database itself", from), "name a copy of it")
	case copied.Mode().IsRegular() && copied.Size() == 0:
		return fmt.Errorf("%w: %s is empty", ErrForeignFile, from)
	}
	_, err = fileSize(from) // it is a file
	return err
}

// copyHeld copies a database to where o says, opens it as serve would, and holds its queue.
func copyHeld(ctx context.Context, o Options, from *source, r *backup.Restored) error {
	f, err := disk.Create(o.Path)
	if err != nil {
		return fmt.Errorf("begin the copy: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := from.snapshot(ctx, o.Path); err != nil {
		return err
	}
	o.Synchronous, o.Bootstrap = Full, access.Credential{}
	s, err := Open(ctx, o)
	if err != nil {
		return err
	}
	if err := errors.Join(s.arrive(ctx, from.path, r), s.Close()); err != nil {
		return fmt.Errorf("hold the queue: %w", err)
	}
	if left, err := fileSize(o.Path + disk.WAL); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("%d bytes of the copy are in its log still", left), err)
	}
	return syncFile(o.Path)
}

// arrive notes in a copy that it was restored. The news goes to those who subscribe to it, once the queue is released.
func (s *Store) arrive(ctx context.Context, from string, r *backup.Restored) error {
	name := filepath.Base(from)
	if err := s.alone(func(t *tx) error {
		var organization int64
		if err := t.get(&organization, "SELECT min(id) FROM organizations"); err != nil {
			return err
		}
		if err := s.holdQueue(t, "restored from "+name); err != nil {
			return err
		}
		return s.audit(t, access.System(organization), 0, access.DatabaseRestored, target{Type: "backup", ID: name},
			map[string]any{"events": r.Events, "deliveries": r.Deliveries, "pending_deliveries": r.Pending})
	}); err != nil {
		return err
	}
	q, err := s.Queue(ctx)
	for _, w := range q.Largest[:min(len(q.Largest), 10)] {
		r.Waiting = append(r.Waiting, backup.Waiting{SubscriptionID: w.SubscriptionID, URL: w.URL, Pending: w.Pending})
	}
	return err
}

// setAside gives the present database another name, and returns it; empty where there is none. What was written to it last
// goes along: it is folded into the file, and where the file is too damaged for that, the log is kept beside it. No log may
// stay behind, for SQLite would play it into the database that comes.
func setAside(ctx context.Context, path string) (string, error) {
	size, err := fileSize(path)
	if err != nil {
		return "", err
	}
	aside := path + replaced + time.Now().UTC().Format("20060102-150405.000")
	if is, err := isDatabase(path); err != nil {
		return "", err
	} else if is {
		if err := foldLog(ctx, path); errors.Is(err, ErrInUse) {
			return "", err
		}
	}
	whole := !exists(path+disk.WAL) && !exists(path+disk.Journal)
	if whole && size > 0 && os.Link(path, aside) == nil {
		return aside, nil // it keeps its own name too, until the copy takes that over: there is a database at every moment
	}
	found := false
	for i, name := range disk.Database(path) {
		switch err := os.Rename(name, disk.Database(aside)[i]); {
		case err == nil:
			found = true
		case !errors.Is(err, os.ErrNotExist):
			return "", fmt.Errorf("set the present database aside: %w", err)
		}
	}
	if !found {
		aside = ""
	}
	return aside, syncDir(filepath.Dir(path))
}

// replaced begins what is added to the name of a database that was set aside.
const replaced = ".replaced-"

// dropSecondName removes the name that a restore which was killed has given the present database, to set it aside, without
// putting the copy in its place. The database has its own name still, and may have only that one.
func dropSecondName(path string) error {
	present, err := os.Lstat(path)
	if err != nil {
		return disk.Explain(path, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return disk.Explain(filepath.Dir(path), err)
	}
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if !strings.HasPrefix(name, path+replaced) {
			continue
		}
		if info, err := os.Lstat(name); err == nil && os.SameFile(info, present) {
			return disk.Remove(name)
		}
	}
	return nil
}

// isDatabase reports whether the file begins as every database of SQLite does.
func isDatabase(path string) (bool, error) {
	const magic = "SQLite format 3\x00"
	f, err := disk.OpenRegular(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the present database: %w", err)
	}
	head := make([]byte, len(magic))
	_, err = io.ReadFull(f, head) // a file that is shorter begins otherwise
	return err == nil && string(head) == magic, f.Close()
}

// foldLog folds the write-ahead log of the present database into it, so that it is one file. It returns ErrInUse where
// another program has the file open; any other error means that the file is damaged.
func foldLog(ctx context.Context, path string) error {
	name, err := dsn(path, writerPragmas(Full))
	if err != nil {
		return err
	}
	db, err := connect(ctx, name, 1, writerPragmas(Full))
	if err != nil {
		return err
	}
	var result struct {
		Busy         bool `db:"busy"`
		Log          int  `db:"log"`
		Checkpointed int  `db:"checkpointed"`
	}
	if err := errors.Join(db.GetContext(ctx, &result, "PRAGMA wal_checkpoint(TRUNCATE)"), db.Close()); err != nil {
		return err
	}
	// The last one to close the file removes the log.
	if _, err := os.Lstat(path + disk.WAL); result.Busy || !errors.Is(err, os.ErrNotExist) {
		return fault.Advise(fmt.Errorf("%w: another program has %s open, such as Litestream or a backup", ErrInUse, path),
			"stop it first")
	}
	return nil
}

// removeDatabase removes a database with its files.
func removeDatabase(path string) error {
	var errs []error
	for _, name := range append(disk.Database(path), path+disk.Lock) {
		errs = append(errs, disk.Remove(name))
	}
	return errors.Join(errs...)
}
