package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite/ownership"
)

// RestoreOptions say what is put where.
type RestoreOptions struct {
	Path string // of the database
	From string // the copy
	Copies
	// Accept decides whether the copy may be restored, once it was inspected. from is the name of it with links resolved.
	Accept func(path, from string) error
	// Arrange opens the copy at its temporary path, writes to it what it needs, and closes it.
	Arrange func(ctx context.Context, path string) error
}

// Restore replaces a database by a copy. It renames the old database and returns that name. Before the copy is checked and
// arranged, Restore changes nothing. It refuses with ownership.ErrInUse while a server runs, with ErrForeignFile,
// ErrNewerSchema, ErrDamaged, ErrNoSpace, an error of Accept or Arrange, or a file system's error.
//
// As root, the process reads the copy with the rights of the copy's owner. Then it switches permanently to the rights of the
// database's owner (see disk.Locate).
func Restore(ctx context.Context, o RestoreOptions) (path, replaced string, err error) {
	path, owner, err := disk.Resolve(o.Path)
	if err != nil {
		return path, "", err
	}
	owned, err := claimForRestore(path, owner)
	if err != nil {
		return path, "", err
	}
	defer func() { err = errors.Join(err, owned.Release()) }()
	from, err := o.openCopy(ctx, path)
	if err != nil {
		return path, "", err
	}
	defer func() { _ = from.db.Close() }() // nothing was written to it
	if err := owner.Become(); err != nil {
		return path, "", err
	}
	if err := o.Accept(path, from.path); err != nil {
		return path, "", err
	}
	temp := path + disk.Restoring
	if err := removeDatabase(temp); err != nil {
		return path, "", fmt.Errorf("remove what an earlier restore has left: %w", err)
	}
	if err := requireSpace(from, filepath.Dir(path), "set storage.path to a file on another disk"); err != nil {
		return path, "", err
	}
	defer func() { _ = removeDatabase(temp) }() // else the next run removes it; once it has its name nothing is left
	if err := o.makeCopy(ctx, from, temp); err != nil {
		return path, "", err
	}
	if replaced, err = renameReplaced(ctx, path); err != nil {
		return path, "", err
	}
	if err := os.Rename(temp, path); err != nil {
		return path, replaced, fmt.Errorf("put the copy in place: %w", err)
	}
	return path, replaced, disk.SyncDir(filepath.Dir(path))
}

func (o RestoreOptions) makeCopy(ctx context.Context, from *source, temp string) error {
	if err := createEmpty(temp); err != nil {
		return fmt.Errorf("begin the copy: %w", err)
	}
	if err := from.snapshot(ctx, temp); err != nil {
		return err
	}
	if err := o.Arrange(ctx, temp); err != nil {
		return err
	}
	if left, err := fileSize(temp + disk.WAL); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("%d bytes of the copy are in its log still", left), err)
	}
	return disk.SyncFile(temp)
}

// claimForRestore ensures that no process has the present database open, if it exists.
func claimForRestore(path string, owner disk.User) (owned *ownership.Lock, err error) {
	err = owner.Do(func() error {
		if err := disk.CheckKinds(path); err != nil {
			return err
		}
		if owned, err = ownership.Take(path); err != nil {
			return err
		}
		if size, err := fileSize(path); err != nil || size == 0 {
			return err
		}
		return owned.LockFile(path)
	})
	if err != nil && owned != nil {
		err = errors.Join(err, owned.Release())
	}
	return owned, err
}

func (o RestoreOptions) openCopy(ctx context.Context, path string) (from *source, err error) {
	found, reader, err := disk.Locate(o.From)
	if err != nil {
		return nil, err
	}
	err = reader.Do(func() error {
		if err := checkRestored(found, path); err != nil {
			return err
		}
		if err := o.check(ctx, found); err != nil {
			return err
		}
		from, err = openSource(ctx, found)
		return err
	})
	return from, err
}

// checkRestored refuses what cannot be restored at the first look.
func checkRestored(from, path string) error {
	copied, err := os.Stat(from)
	switch present, presentErr := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w %s", ErrNoFile, from)
	case err != nil:
		return disk.Advise(from, err)
	case presentErr == nil && os.SameFile(copied, present):
		return fault.Advise(fmt.Errorf("%s is the database itself", from), "name a copy of it")
	case copied.Mode().IsRegular() && copied.Size() == 0:
		return fmt.Errorf("%w: %s is empty", ErrForeignFile, from)
	case !copied.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a regular file", ErrForeignFile, from)
	}
	file, err := disk.OpenRegular(from) // this error names the owner and the mode; one of SQLite does not
	if err != nil {
		return err
	}
	return file.Close()
}

// renameReplaced renames the present database and returns the new name. It returns an empty name if there is no
// database. First it folds the write-ahead log into the database. If the database is too damaged for that, it renames
// the log too. No log may remain, because SQLite would apply it to the restored database.
func renameReplaced(ctx context.Context, path string) (string, error) {
	size, err := fileSize(path)
	if err != nil {
		return "", err
	}
	replaced := path + ownership.ReplacedSuffix + time.Now().UTC().Format("20060102-150405.000")
	if is, err := isDatabase(path); err != nil {
		return "", err
	} else if is {
		if err := foldLog(ctx, path); errors.Is(err, ownership.ErrInUse) {
			return "", err
		}
	}
	whole := !disk.Exists(path+disk.WAL) && !disk.Exists(path+disk.Journal)
	if whole && size > 0 && os.Link(path, replaced) == nil {
		return replaced, nil // it also keeps its old name until the copy takes it, so there is always a database
	}
	found := false
	for i, name := range disk.Database(path) {
		switch err := os.Rename(name, disk.Database(replaced)[i]); {
		case err == nil:
			found = true
		case !errors.Is(err, os.ErrNotExist):
			return "", fmt.Errorf("rename the present database: %w", err)
		}
	}
	if !found {
		replaced = ""
	}
	return replaced, disk.SyncDir(filepath.Dir(path))
}

// magic is the start of every SQLite database.
const magic = "SQLite format 3\x00"

// isDatabase reports whether the file starts like an SQLite database.
func isDatabase(path string) (bool, error) {
	f, err := disk.OpenRegular(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the present database: %w", err)
	}
	head := make([]byte, len(magic))
	_, err = io.ReadFull(f, head) // a shorter file is no database
	return err == nil && string(head) == magic, f.Close()
}

// foldLog folds the write-ahead log of the present database into it, so that it is one file. It returns ownership.ErrInUse if
// another program has the file open. Any other error means that the file is damaged.
func foldLog(ctx context.Context, path string) error {
	db, err := connect(ctx, path, 1, writerPragmas(Full))
	if err != nil {
		return err
	}
	var result checkpointed
	if err := errors.Join(db.GetContext(ctx, &result, "PRAGMA wal_checkpoint(TRUNCATE)"), db.Close()); err != nil {
		return err
	}
	// The last process that closes the file removes the log.
	if _, err := os.Lstat(path + disk.WAL); result.Busy > 0 || !errors.Is(err, os.ErrNotExist) {
		return fault.Advise(fmt.Errorf("%w: another program has %s open, such as Litestream or a backup", ownership.ErrInUse, path),
			"stop it first")
	}
	return nil
}

func removeDatabase(path string) error {
	var errs []error
	for _, name := range append(disk.Database(path), path+disk.Lock) {
		errs = append(errs, disk.Remove(name))
	}
	return errors.Join(errs...)
}
