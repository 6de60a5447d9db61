package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/disk"
)

// restoring is what a copy is called that is being made ready to take the place of the database.
const restoring = ".restoring"

// Restore puts a copy in the place of the database that o names, with its queue held: what the copy takes for pending may
// have been delivered since it was made, so nothing is sent until an operator has looked. What was there before is set
// aside. Until the copy is checked, and opens with o as serve would open it, nothing is touched. It refuses with ErrInUse
// while a server runs, with ErrForeignFile, ErrNewerSchema, ErrSchema, ErrDamaged, ErrKey, ErrKeyMissing, ErrNoSpace, or a
// file system's error.
func Restore(ctx context.Context, o Options, from string) (backup.Restored, error) {
	var r backup.Restored
	path, err := disk.Resolve(o.Path)
	if err != nil {
		return r, err
	}
	owned, err := lock(path)
	if err != nil {
		return r, err
	}
	defer unlock(owned)
	if from, err = source(from, path); err != nil {
		return r, err
	}
	if r.Contents, err = inspect(ctx, from); err != nil {
		return r, err
	}
	o.Path = path
	if o.ring, err = ringFor(o, from, r.KeyIDs); err != nil {
		return r, err
	}
	o.expendable = true
	if err := requireSpace(from, filepath.Dir(path)); err != nil {
		return r, err
	}
	o.Path = path + restoring
	defer func() { _ = removeDatabase(o.Path) }() // the next run does it else; once it has its name nothing is left
	if err := removeDatabase(o.Path); err != nil {
		return r, fmt.Errorf("clear away what an earlier restore has left: %w", err)
	}
	if err := copyHeld(ctx, o, from, &r); err != nil {
		return r, err
	}
	if err := handOver(path); err != nil {
		return r, err
	}
	r.Database = path
	if r.Aside, err = setAside(ctx, path); err != nil {
		return r, err
	}
	if err := os.Rename(o.Path, path); err != nil {
		return r, fmt.Errorf("put the copy in place: %w", err)
	}
	return r, syncDir(filepath.Dir(path))
}

// handOver gives what root has made to whose the present database is, or its key: the server may be somebody else's.
func handOver(path string) error {
	like := path
	if !exists(path) {
		like += ".key"
	}
	if err := errors.Join(disk.Adopt(path+restoring, like), disk.Adopt(path+".lock", like)); err != nil {
		return fmt.Errorf("give the copy to the owner of %s: %w", like, err)
	}
	return nil
}

// source returns the name of the copy to be restored.
func source(from, path string) (string, error) {
	from, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	copied, err := os.Stat(from)
	switch present, presentErr := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("there is no file %s", from)
	case err != nil:
		return "", err
	case presentErr == nil && os.SameFile(copied, present):
		return "", fmt.Errorf("%s is the database itself; name a copy of it", from)
	case copied.Size() == 0:
		return "", fmt.Errorf("%w: %s is empty", ErrForeignFile, from)
	}
	_, err = fileSize(from) // it is a file
	return from, err
}

// copyHeld copies a database to where o says, opens it as serve would, and holds its queue.
func copyHeld(ctx context.Context, o Options, from string, r *backup.Restored) error {
	f, err := os.OpenFile(o.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("begin the copy: %w", disk.Explain(o.Path, err))
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := duplicate(ctx, from, o.Path); err != nil {
		return failedCopy(err, from, filepath.Dir(o.Path))
	}
	o.Synchronous, o.Bootstrap = Full, access.Credential{}
	s, err := Open(ctx, o)
	if err != nil {
		return err
	}
	if err := errors.Join(s.arrive(ctx, from, r), s.Close()); err != nil {
		return fmt.Errorf("hold the queue: %w", err)
	}
	if left, err := fileSize(o.Path + "-wal"); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("%d bytes of the copy are in its log still", left), err)
	}
	_, _, err = digest(o.Path) // onto the disk
	return err
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
	aside := path + ".replaced-" + time.Now().UTC().Format("20060102-150405.000")
	if is, err := isDatabase(path); err != nil {
		return "", err
	} else if is {
		if err := foldLog(ctx, path); errors.Is(err, ErrInUse) {
			return "", err
		}
	}
	whole := !exists(path+"-wal") && !exists(path+"-journal")
	if whole && size > 0 && os.Link(path, aside) == nil {
		return aside, nil // it keeps its own name too, until the copy takes that over: there is a database at every moment
	}
	found := false
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		switch err := os.Rename(path+suffix, aside+suffix); {
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

// isDatabase reports whether the file begins as every database of SQLite does.
func isDatabase(path string) (bool, error) {
	const magic = "SQLite format 3\x00"
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the present database: %w", disk.Explain(path, err))
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
	if _, err := os.Lstat(path + "-wal"); result.Busy || !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: another program has %s open, such as Litestream or a backup; stop it first", ErrInUse, path)
	}
	return nil
}

// removeDatabase removes a database with all that stands beside it.
func removeDatabase(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".lock"} {
		errs = append(errs, removeIfThere(path+suffix))
	}
	return errors.Join(errs...)
}
