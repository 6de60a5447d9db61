package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// BackupOptions say what is copied where.
type BackupOptions struct {
	Path    string // of the database, whether a server has it open or not
	To      string // the copy, or a directory that gets one with a dated name; empty: the directory "backups" beside the database
	Replace bool   // a file that is there already; else it is refused
	Keep    int    // how many dated copies the directory keeps, this one included; 0 keeps all
}

// partial is what a copy is called until it is whole. There is one such name in a directory for each database, so what a
// killed run has left behind is overwritten by the next.
const partial = ".partial"

// Backup makes a copy of a database as it is at one moment: checked, on the disk, and under its name only then. It needs no
// server, and disturbs none. It refuses with ErrForeignFile, ErrExists, ErrBackupRunning, ErrNoSpace, ErrDamaged, or a
// file system's error.
func Backup(ctx context.Context, o BackupOptions) (backup.Report, error) {
	r := backup.Report{CreatedAt: time.Now().UnixMilli()}
	begin := time.Now()
	path, err := present(o.Path)
	if err != nil {
		return r, err
	}
	if r.File, err = destination(path, o, begin); err != nil {
		return r, err
	}
	if !o.Replace {
		if err := mustNotExist(r.File); err != nil {
			return r, err
		}
	}
	dir := filepath.Dir(r.File)
	if err := requireSpace(path, dir); err != nil {
		return r, err
	}
	temp, err := claim(filepath.Join(dir, filepath.Base(path)+partial))
	if err != nil {
		return r, err
	}
	defer temp.Close() // gives up the claim, last
	published := false
	defer func() {
		if !published {
			_ = errors.Join(os.Remove(temp.Name()), removeIfThere(temp.Name()+"-journal")) // the next run does it else
		}
	}()
	if err := duplicate(ctx, path, temp.Name()); err != nil {
		return r, failedCopy(err, path, dir)
	}
	if r.Contents, err = inspect(ctx, temp.Name()); err != nil {
		return r, err
	}
	if r.SHA256, r.Bytes, err = digest(temp.Name()); err != nil {
		return r, fmt.Errorf("read the copy: %w", err)
	}
	if !o.Replace {
		if err := mustNotExist(r.File); err != nil { // by now
			return r, err
		}
	}
	if err := os.Rename(temp.Name(), r.File); err != nil {
		return r, fmt.Errorf("name the copy: %w", err)
	}
	published = true
	if err := syncDir(dir); err != nil {
		return r, fmt.Errorf("sync %s: %w", dir, err)
	}
	r.Removed, err = prune(r.File, filepath.Base(path), o.Keep)
	r.Took = time.Since(begin)
	return r, err
}

// present returns the one name of a database, which must be there.
func present(path string) (string, error) {
	path, err := disk.Resolve(path)
	if err != nil {
		return "", err
	}
	size, err := fileSize(path)
	if err == nil && size == 0 {
		err = fmt.Errorf("%w: there is no database at %s; set storage.path to where it is", ErrForeignFile, path)
	}
	return path, err
}

// destination says what the copy is to be called, and makes the directory of those that nobody named.
func destination(path string, o BackupOptions, at time.Time) (string, error) {
	to := o.To
	if to == "" {
		dir, err := backups(path)
		if err != nil {
			return "", err
		}
		to = dir
	}
	to, err := filepath.Abs(to)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		return filepath.Join(to, backup.Name(filepath.Base(path), at)), nil
	}
	if o.Keep > 0 {
		return "", fmt.Errorf("only dated copies are counted and removed, so name a directory that is there, and not %s", to)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(to))
	if err != nil {
		return "", fmt.Errorf("there is no directory %s: make it first", filepath.Dir(to))
	}
	to = filepath.Join(dir, filepath.Base(to))
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".lock", ".key", partial} {
		if to == path+suffix {
			return "", fmt.Errorf("%w: %s belongs to the database; name another file", ErrExists, to)
		}
	}
	return to, nil
}

// backups returns the directory beside a database for the copies that nobody named another one for, and makes it.
func backups(path string) (string, error) {
	dir := filepath.Join(filepath.Dir(path), "backups")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make the directory of backups: %w", disk.Explain(dir, err))
	}
	return dir, nil
}

func mustNotExist(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s; name another, or replace it with --force", errors.Join(ErrExists, err), path)
	}
	return nil
}

// claim opens the file that a copy is written into, and empties it. The lock tells one that is being written from one that
// was left behind; the kernel gives it back even after kill -9.
func claim(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("begin the copy: %w", disk.Explain(name, err))
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w into %s; wait for its end", ErrBackupRunning, filepath.Dir(name))
			}
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		mine, err1 := f.Stat()
		named, err2 := os.Stat(name)
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			if err := errors.Join(f.Truncate(0), f.Chmod(0o600)); err != nil {
				f.Close()
				return nil, fmt.Errorf("begin the copy: %w", err)
			}
			return f, nil
		}
		f.Close() // another run has given it its name, or removed it, in between: what we hold is not ours
	}
}

// failedCopy says what mends a copy that could not be written.
func failedCopy(err error, path, dir string) error {
	switch code(err) & primaryMask {
	case sqliteFull:
		return fmt.Errorf("%w: there is no room left in %s; nothing was left behind (%w)", ErrNoSpace, dir, err)
	case sqliteCorrupt, sqliteNotADB:
		return fmt.Errorf("%w: %s cannot be read in full (%w)", ErrDamaged, path, err)
	}
	return fmt.Errorf("copy the database: %w", err)
}

// prune removes the oldest dated copies beside the one that was just made, so that as many are left as said, and returns
// their names. That one stays, even where a clock that was set back makes it look the oldest.
func prune(made, database string, keep int) ([]string, error) {
	if keep <= 0 {
		return nil, nil
	}
	dir := filepath.Dir(made)
	entries, err := os.ReadDir(dir) // sorted by name, and so by time
	if err != nil {
		return nil, fmt.Errorf("look for older copies: %w", err)
	}
	var dated, removed []string
	for _, e := range entries {
		name, going := strings.CutSuffix(e.Name(), goingSuffix)
		switch {
		case !e.Type().IsRegular() || !backup.IsDated(name, database) || e.Name() == filepath.Base(made):
		case going: // an earlier run was cut off
			err = errors.Join(err, shrinkAway(filepath.Join(dir, e.Name())))
		default:
			dated = append(dated, name)
		}
	}
	for _, name := range dated[:max(0, len(dated)-(keep-1))] {
		old := filepath.Join(dir, name)
		err = errors.Join(err, os.Rename(old, old+goingSuffix), shrinkAway(old+goingSuffix))
		removed = append(removed, name)
	}
	if err != nil {
		return removed, fmt.Errorf("remove older copies: %w", err)
	}
	return removed, nil
}

const (
	goingSuffix = ".removed"
	shrinkStep  = 8 << 20
	shrinkPause = 20 * time.Millisecond
)

// shrinkAway removes a file a piece at a time: with a large one, some file systems hold up every fsync for as long as it
// takes to free all of it.
func shrinkAway(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		tick := time.NewTicker(shrinkPause)
		defer tick.Stop()
		for size := info.Size() - shrinkStep; err == nil && size > 0; size -= shrinkStep {
			err = f.Truncate(size)
			<-tick.C
		}
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}

func removeIfThere(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// CreateBackup makes a copy in the directory "backups" beside the database, under a bare name, or a dated one where it is
// empty. Faults: Conflict where a file has that name, or another backup is being made; Unavailable where there is no room.
func (s *Store) CreateBackup(ctx context.Context, by access.Actor, name string, keep int) (backup.Report, error) {
	o := BackupOptions{Path: s.path, Keep: keep}
	if name != "" {
		dir, err := backups(s.path)
		if err != nil {
			return backup.Report{}, err
		}
		o.To = filepath.Join(dir, name)
	}
	r, err := Backup(ctx, o)
	switch {
	case errors.Is(err, ErrExists):
		return r, fault.New(fault.Conflict, "already_exists", "There is a backup of that name; choose another.").Because(err)
	case errors.Is(err, ErrBackupRunning):
		return r, fault.New(fault.Conflict, "backup_running", "Another backup is being made; wait for its end.").Because(err)
	case errors.Is(err, ErrNoSpace):
		return r, fault.New(fault.Unavailable, "no_space", "There is not enough room on the disk for a backup.").Because(err)
	case err != nil:
		return r, unavailable(err)
	}
	return r, s.change(ctx, func(t *tx) error {
		return s.audit(t, by, 0, access.BackupCreated, target{Type: "backup", ID: filepath.Base(r.File)},
			map[string]any{"bytes": r.Bytes, "sha256": r.SHA256, "encryption_key_id": r.KeyID})
	})
}
