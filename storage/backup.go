package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// Backup makes a copy of a database as it is at one moment: checked, on the disk, and under its name only then. It needs no
// server, and disturbs none. It refuses with ErrForeignFile, ErrExists, ErrBackupRunning, ErrNoSpace, ErrDamaged, or a
// file system's error. A failure to remove older copies is only Report.Warning.
//
// A process that is root reads with the rights of the owner of the database, and writes with those of the owner of the
// directory of the copy (see disk.Locate).
func Backup(ctx context.Context, o BackupOptions) (backup.Report, error) {
	r := backup.Report{CreatedAt: time.Now().UnixMilli()}
	begin := time.Now()
	path, reader, err := disk.Resolve(o.Path)
	if err != nil {
		return r, err
	}
	file, writer, err := destination(path, o, begin)
	if err != nil {
		return r, err
	}
	r.File = file
	var from *source
	err = reader.Do(func() (err error) {
		if size, err := fileSize(path); err == nil && size > 0 {
			if err := checkOtherNames(path); err != nil {
				return err
			}
		}
		from, err = openSource(ctx, path)
		return err
	})
	if err != nil {
		return r, err
	}
	err = writer.Do(func() error {
		if o.To == "" {
			if err := makeBackupDirectory(filepath.Dir(r.File)); err != nil {
				return err
			}
		}
		return publish(ctx, from, o, &r)
	})
	err = errors.Join(err, reader.Do(from.close))
	r.Took = time.Since(begin)
	return r, err
}

// publish writes the copy, checks it, gives it its name, and removes older ones.
func publish(ctx context.Context, from *source, o BackupOptions, r *backup.Report) error {
	dir := filepath.Dir(r.File)
	if !o.Replace {
		if err := mustNotExist(r.File); err != nil {
			return err
		}
	}
	if err := requireSpace(from, dir, "name another directory"); err != nil {
		return err
	}
	temp, err := claim(filepath.Join(dir, filepath.Base(from.path)+disk.Partial))
	if err != nil {
		return err
	}
	defer temp.Close() // gives up the claim, last
	published := false
	defer func() {
		if !published {
			_ = errors.Join(disk.Remove(temp.Name()), disk.Remove(temp.Name()+disk.Journal)) // else the next run removes them
		}
	}()
	if err := from.snapshot(ctx, temp.Name()); err != nil {
		return err
	}
	if r.Contents, err = inspect(ctx, temp.Name()); err != nil {
		return err
	}
	if r.SHA256, r.Bytes, err = digest(temp); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	if !o.Replace {
		if err := mustNotExist(r.File); err != nil { // by now
			return err
		}
	}
	if err := rename(temp, r.File); err != nil {
		return fmt.Errorf("name the copy: %w", err)
	}
	published = true
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if r.Removed, err = prune(r.File, filepath.Base(from.path), o.Keep); err != nil {
		r.Warning = fmt.Sprintf("the copy is made, but older ones could not be removed: %v", err)
	}
	return nil
}

// destination returns the file that the copy is to become, and with whose rights it is written.
func destination(path string, o BackupOptions, at time.Time) (file string, writer disk.User, err error) {
	to := o.To
	if to == "" {
		to = backupDirectory(path)
	}
	dir, writer, err := disk.Locate(to)
	if err != nil {
		return "", writer, err
	}
	if info, err := os.Lstat(dir); o.To == "" || err == nil && info.IsDir() {
		if err := checkReplaceable(dir, path, writer); err != nil {
			return "", writer, err
		}
		return filepath.Join(dir, backup.Name(filepath.Base(path), at)), writer, nil
	}
	if o.Keep > 0 {
		return "", writer, fmt.Errorf("only dated copies are counted and removed, so name a directory that exists instead of %s", to)
	}
	// A link at the name of the copy is not followed: the copy would replace it.
	if dir, writer, err = disk.Locate(filepath.Dir(to)); err != nil {
		return "", writer, err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", writer, fmt.Errorf("there is no directory %s: make it first", filepath.Dir(to))
	}
	file = filepath.Join(dir, filepath.Base(to))
	if err := checkReplaceable(dir, path, writer); err != nil {
		return "", writer, err
	}
	if slices.Contains(disk.Beside(path), file) {
		return "", writer, fault.Advise(fmt.Errorf("%w: %s belongs to the database", ErrExists, file), "name another file")
	}
	return file, writer, nil
}

// checkReplaceable refuses a directory in which others could replace a copy while root writes it. Beside the database they
// could replace the database as well, so nothing is gained by a refusal there.
func checkReplaceable(dir, database string, writer disk.User) error {
	if beside := filepath.Dir(database); dir == beside || strings.HasPrefix(dir, beside+"/") {
		return nil
	}
	return writer.CheckReplaceable(dir)
}

// backupDirectory is where the copies go for which nobody named another place.
func backupDirectory(path string) string { return filepath.Join(filepath.Dir(path), "backups") }

func makeBackupDirectory(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the directory of backups: %w", disk.Explain(dir, err))
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fault.Advise(fmt.Errorf("%w: backups go to %s, which is not a directory", disk.ErrAccess, dir),
			"move it away")
	}
	return nil
}

func mustNotExist(path string) error {
	switch _, err := os.Lstat(path); {
	case err == nil:
		return fmt.Errorf("%w: %s", ErrExists, path)
	case errors.Is(err, os.ErrNotExist):
		return nil
	default:
		return disk.Explain(path, err)
	}
}

// claim makes the file that a copy is written into, with a lock on it, which the kernel gives back even after kill -9. What
// has that name without a lock was left by a run that was killed: it is removed, never written to.
func claim(name string) (*os.File, error) {
	for range claimTries {
		if err := removeUnclaimed(name); err != nil {
			return nil, err
		}
		f, err := disk.Create(name)
		if errors.Is(err, os.ErrExist) {
			continue // another run was faster
		}
		if err != nil {
			return nil, fmt.Errorf("begin the copy: %w", err)
		}
		err = flock(f)
		if err == nil && stillNamed(f) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, ErrBackupRunning) {
			return nil, err
		} // else another run has taken the file for one that was left, before it had a lock
	}
	return nil, fault.Advise(fmt.Errorf("%w into %s: other runs keep making %s", ErrBackupRunning, filepath.Dir(name), filepath.Base(name)),
		"wait until they end")
}

// claimTries bounds how often a run gives way to others, or to somebody who makes and removes files in its way.
const claimTries = 100

// removeUnclaimed removes the file of a run that was killed. ErrBackupRunning says that the run goes on.
func removeUnclaimed(name string) error {
	f, err := disk.OpenOwn(name, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("begin the copy: %w", err)
	}
	defer f.Close()
	if err := flock(f); err != nil {
		return err
	}
	if !stillNamed(f) {
		return nil // it has got another name, or was removed, in between
	}
	return disk.Remove(name)
}

// flock locks the file of a copy.
func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fault.Advise(fmt.Errorf("%w into %s", ErrBackupRunning, filepath.Dir(f.Name())), "wait for its end")
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// stillNamed reports whether a file that is open still has the name that it was opened by.
func stillNamed(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(open, named)
}

// rename gives a file that is open another name, unless something else stands at its present name.
func rename(f *os.File, name string) error {
	if !stillNamed(f) {
		return fault.Advise(fmt.Errorf("%w: %s was replaced while it was written", disk.ErrAccess, f.Name()),
			"let nobody else write to its directory")
	}
	return os.Rename(f.Name(), name)
}

// prune removes the oldest dated copies beside the one that was just made, so that as many are left as said, and returns
// their names. That one stays, even where a clock that was set back makes it look the oldest. Files of another user are
// neither counted nor removed.
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
		case !backup.IsDated(name, database) || e.Name() == filepath.Base(made) || !disk.IsOwn(filepath.Join(dir, e.Name())):
		case going: // an earlier run was cut off
			err = errors.Join(err, shrinkAway(filepath.Join(dir, e.Name())))
		default:
			dated = append(dated, name)
		}
	}
	for _, name := range dated[:max(0, len(dated)-(keep-1))] {
		old := filepath.Join(dir, name)
		if failed := os.Rename(old, old+goingSuffix); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		err = errors.Join(err, shrinkAway(old+goingSuffix))
		removed = append(removed, name)
	}
	return removed, err
}

const (
	goingSuffix = ".removed"
	shrinkStep  = 8 << 20
	shrinkPause = 20 * time.Millisecond
)

// shrinkAway removes a file a piece at a time: with a large one, some file systems hold up every fsync for as long as it
// takes to free all of it.
func shrinkAway(path string) error {
	f, err := disk.OpenOwn(path, os.O_WRONLY)
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
	return errors.Join(err, f.Close(), disk.Remove(path))
}

// CreateBackup makes a copy in the directory "backups" beside the database, under a bare name, or a dated one where it is
// empty. Faults: Conflict where a file has that name, or another backup is being made; Unavailable where there is no room,
// or where the directory is not the server's to write to.
func (s *Store) CreateBackup(ctx context.Context, by access.Actor, name string, keep int) (backup.Report, error) {
	o := BackupOptions{Path: s.path, Keep: keep}
	if name != "" {
		dir := backupDirectory(s.path)
		if err := makeBackupDirectory(dir); err != nil {
			return backup.Report{}, unusableBackups(err)
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
	case errors.Is(err, disk.ErrAccess):
		return r, unusableBackups(err)
	case err != nil:
		return r, unavailable(err)
	}
	if r.Warning != "" {
		s.log.Warn("backup made with a warning", "file", r.File, "warning", r.Warning)
	}
	return r, s.change(ctx, func(t *tx) error {
		return s.audit(t, by, 0, access.BackupCreated, target{Type: "backup", ID: filepath.Base(r.File)},
			map[string]any{"bytes": r.Bytes, "sha256": r.SHA256, "encryption_key_id": r.KeyID})
	})
}

func unusableBackups(err error) error {
	return fault.New(fault.Unavailable, "backup_directory_unusable",
		"The server cannot use its directory of backups; the log of the server says what mends that.").Because(err)
}
