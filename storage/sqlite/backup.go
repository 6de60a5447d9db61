package sqlite

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

	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// BackupOptions name a database and its copy.
type BackupOptions struct {
	Path    string // of the database, whether a server has it open or not
	To      string // the copy, or a directory for a dated copy; if empty, the directory "backups" beside the database
	Replace bool   // replace an existing file; otherwise Backup refuses
	Keep    int    // how many dated copies the directory keeps, this one included; 0 keeps all
	Copies
}

// Backup makes a consistent copy of a database. The copy gets its name after it is checked and on the disk. A
// server may run meanwhile. Backup refuses with ErrForeignFile, ErrExists, ErrBackupRunning, ErrNoSpace, ErrDamaged, or a
// file system's error. A failure to remove older copies is a Report.Warning. Inspect fills in Report.Contents.
//
// As root, the process reads with the rights of the owner of the database. It writes with the rights of the owner of the
// copy's directory (see disk.Locate).
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
			if _, err := readHeader(path); err != nil {
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
			if err := MakeBackupDirectory(filepath.Dir(r.File)); err != nil {
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
	if err := o.checkName(r.File); err != nil {
		return err
	}
	if err := requireSpace(from, dir, "name another directory"); err != nil {
		return err
	}
	temp, err := claim(filepath.Join(dir, filepath.Base(from.path)+disk.Partial))
	if err != nil {
		return err
	}
	defer temp.Close() // releases the claim last
	published := false
	defer func() {
		if !published {
			_ = errors.Join(disk.Remove(temp.Name()), disk.Remove(temp.Name()+disk.Journal)) // if this fails, the next run removes them
		}
	}()
	if err := fill(ctx, temp, from, o, r); err != nil {
		return err
	}
	if err := o.checkName(r.File); err != nil { // the file may exist by now
		return err
	}
	if err := rename(temp, r.File); err != nil {
		return fmt.Errorf("name the copy: %w", err)
	}
	published = true
	if err := disk.SyncDir(dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if r.Removed, err = prune(r.File, filepath.Base(from.path), o.Keep); err != nil {
		r.Warning = fmt.Sprintf("the copy is made, but older ones could not be removed: %v", err)
	}
	return nil
}

// fill writes the copy and checks it.
func fill(ctx context.Context, temp *os.File, from *source, o BackupOptions, r *backup.Report) (err error) {
	if err := from.snapshot(ctx, temp.Name()); err != nil {
		return err
	}
	if err := o.check(ctx, temp.Name()); err != nil {
		return err
	}
	if r.SHA256, r.Bytes, err = digest(temp); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	return nil
}

// destination returns the final name of the copy, and the user with whose rights it is written.
func destination(path string, o BackupOptions, at time.Time) (file string, writer disk.User, err error) {
	to := o.To
	if to == "" {
		to = BackupDirectory(path)
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
		return "", writer, fault.Advise(fmt.Errorf("%s is not a directory, and old backups are removed from a directory only", to), "give an existing directory")
	}
	// Do not follow a link at the name of the copy: the copy would replace its target.
	if dir, writer, err = disk.Locate(filepath.Dir(to)); err != nil {
		return "", writer, err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", writer, fault.Advise(fmt.Errorf("there is no directory %s", filepath.Dir(to)), "create it first")
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

// BackupDirectory is the default directory of the copies of a database.
func BackupDirectory(path string) string { return filepath.Join(filepath.Dir(path), "backups") }

// MakeBackupDirectory makes that directory if it is missing.
func MakeBackupDirectory(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the directory of backups: %w", disk.Explain(dir, err))
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fault.Advise(fmt.Errorf("%w: backups go to %s, which is not a directory", disk.ErrAccess, dir), "move it away")
	}
	return nil
}

// checkName refuses a file that is there already, unless it is to be replaced.
func (o BackupOptions) checkName(path string) error {
	switch _, err := os.Lstat(path); {
	case o.Replace, errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s", ErrExists, path)
	default:
		return disk.Explain(path, err)
	}
}

// claim makes and locks the temporary file of a copy. The kernel releases the lock even after kill -9. So a file of that name
// without a lock is left over from a killed run, and claim removes it.
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
		} // otherwise another run saw the file before it was locked, and removed it as a leftover
	}
	return nil, fault.Advise(fmt.Errorf("%w into %s: other runs keep making %s", ErrBackupRunning, filepath.Dir(name), filepath.Base(name)),
		"wait until they end")
}

// claimTries bounds the attempts of a run to claim its file while others make files of the same name.
const claimTries = 100

// removeUnclaimed removes the file of a killed run. It returns ErrBackupRunning where that run still goes on.
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
		return nil // it was renamed or removed meanwhile
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

// stillNamed reports whether an open file still has the name that it was opened by.
func stillNamed(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(open, named)
}

// rename gives an open file another name. It refuses where another file has taken its present name.
func rename(f *os.File, name string) error {
	if !stillNamed(f) {
		return fault.Advise(fmt.Errorf("%w: %s was replaced while it was written", disk.ErrAccess, f.Name()),
			"let nobody else write to its directory")
	}
	return os.Rename(f.Name(), name)
}

// prune removes the oldest dated copies, so that keep of them are left, and returns their names. The copy that was just made
// stays, even if the clock was set back and it looks the oldest. Files of other users are neither counted nor removed.
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
		case going: // an earlier run was interrupted while it removed this file
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

// shrinkAway removes a file piece by piece. Some file systems block every fsync while they free a large file.
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
