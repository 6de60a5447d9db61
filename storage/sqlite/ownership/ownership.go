// Package ownership makes one process the owner of a database, by locks on the file and beside it. It does not open the database.
package ownership

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// ErrInUse means that another process owns the database.
var ErrInUse = errors.New("database is in use")

// Lock is the exclusive use of a database by this process. The kernel ends it with the process, also after kill -9.
type Lock struct {
	name *os.File // the lock file beside the database; it locks the name, even before the database exists
	file *os.File // the database; it locks every other name too, such as one in another container; nil until LockFile
}

// Take takes the lock file beside the database. The file stays afterwards: if it were removed, two processes could each
// lock a file of that name. Errors: ErrInUse, or one of package disk.
func Take(path string) (*Lock, error) {
	f, err := disk.OpenOwn(path+disk.Lock, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	taken, err := flock(f, syscall.LOCK_EX)
	owner, made := readLock(f)
	if taken {
		err = fault.Advise(fmt.Errorf("%w: %s belongs to the running process %s", ErrInUse, path, owner),
			"stop that process first, or set storage.path to another file")
	}
	if err == nil {
		err = writeLock(f, made)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{name: f}, nil
}

// ownerWait is how long a new owner waits for processes that only look, such as doctor, and hold a shared lock meanwhile.
const ownerWait = 400 * time.Millisecond

// flock takes a flock(2) of the kind how. taken means that another process has a lock that excludes it. It is independent of the locks of
// SQLite, which use fcntl(2).
func flock(f *os.File, how int) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	for left := ownerWait; how == syscall.LOCK_EX && left > 0 && errors.Is(err, syscall.EWOULDBLOCK); left -= ownerWait / 20 {
		<-time.After(ownerWait / 20)
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	}
	if err == nil || errors.Is(err, syscall.EWOULDBLOCK) {
		return err != nil, nil
	}
	return false, fault.Advise(fmt.Errorf("%w: lock %s: %w", disk.ErrFileSystem, f.Name(), err),
		"storage.path must be on a local file system")
}

// LockFile locks the database itself, which must exist, unless it is locked. It refuses a database with a
// second name, except for the one that a killed restore gave to it, which it removes.
func (l *Lock) LockFile(path string) (err error) {
	if l.file != nil {
		return nil
	}
	if second := secondName(path); second != "" {
		err = disk.Remove(second)
	}
	if err == nil {
		l.file, err = lockDatabase(path, syscall.LOCK_EX)
	}
	return err
}

// Share locks the database against a new owner until the file is closed. Errors: ErrInUse, or one of package disk.
func Share(path string) (*os.File, error) { return lockDatabase(path, syscall.LOCK_SH) }

// lockDatabase opens a database and takes a flock(2) of the kind how on it, which applies to every name of the file.
func lockDatabase(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, disk.Advise(path, err)
	}
	taken := false
	if err = onlyName(path, f); err == nil {
		taken, err = flock(f, how)
	}
	if taken {
		err = usedElsewhere(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// CheckOtherNames refuses a database that has a second name, or that another process has open by another name. Its last
// changes are in the write-ahead log beside that other name, so a copy made by this name would lack them. A server that has
// it open by this name is no reason to refuse.
func CheckOtherNames(path string) error {
	for range 2 { // the server may end between the two checks
		f, err := Share(path)
		if err == nil {
			return f.Close() // releases the lock
		}
		if !errors.Is(err, ErrInUse) {
			return err
		}
		named, err := os.OpenFile(path+disk.Lock, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil // a user who may only read the database cannot know
		}
		taken, _ := flock(named, syscall.LOCK_SH)
		named.Close() // releases the lock
		if taken {
			return nil
		}
	}
	return usedElsewhere(path)
}

func usedElsewhere(path string) error {
	return fault.Advise(fmt.Errorf("%w: another running process has opened %s under another name, such as a link or a mount in another container", ErrInUse, path),
		"stop that process first, or set storage.path to another file")
}

// onlyName refuses a database that has a second name (a hard link), unless it is the one that LockFile removes. SQLite keeps a part of the
// data in files beside the name of the opened file. So each name would have a part that the other lacks.
func onlyName(path string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	if stat.Nlink < 2 || stat.Nlink == 2 && secondName(path) != "" {
		return nil
	}
	mount, err := disk.MountOf(path)
	if err != nil || mount.Point == "" {
		mount.Point = "/"
	}
	return fault.Advise(fmt.Errorf("%w: %s has %d names (hard links), and a database must have one", disk.ErrAccess, path, stat.Nlink),
		"find the others with: find %s -xdev -inum %d, and remove them", mount.Point, stat.Ino)
}

// ReplacedSuffix is the start of the suffix of a database that a restore has replaced.
const ReplacedSuffix = ".replaced-"

// secondName returns the second name that a killed restore gave to the present database; empty if there is none.
func secondName(path string) string {
	present, _ := os.Lstat(path) // whoever opens the file reports an error
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if !strings.HasPrefix(name, path+ReplacedSuffix) {
			continue
		}
		if info, err := os.Lstat(name); err == nil && os.SameFile(info, present) {
			return name
		}
	}
	return ""
}

// madeLine is a line of the lock file after the database was created. Without a key file, it distinguishes a lost database from a new one.
const madeLine = "database made"

// readLock reads a lock file: the process id of the owner, and whether the database was created. It returns zero values
// if the file cannot be read.
func readLock(f *os.File) (owner string, made bool) {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 256)) // an error does not matter
	owner, rest, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(owner), strings.Contains(rest, madeLine)
}

func writeLock(f *os.File, made bool) error {
	text := fmt.Sprintln(os.Getpid())
	if made {
		text += madeLine + "\n"
	}
	_, err := f.WriteAt([]byte(text), 0)
	if err = errors.Join(err, f.Truncate(int64(len(text)))); err != nil {
		return disk.Advise(f.Name(), err)
	}
	return nil
}

// NoteMade writes into the lock file that a database was created; see WasMade.
func (l *Lock) NoteMade() error { return writeLock(l.name, true) }

// WasMade reports whether the lock file says that a database was created at path.
func WasMade(path string) bool {
	f, err := disk.OpenOwn(path+disk.Lock, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	_, made := readLock(f)
	return made
}

// Of returns the process that owns the database at path, from the lock beside it. running is false if there is none.
// The caller needs the rights of the file's owner.
func Of(path string) (pid string, running bool) {
	f, err := disk.OpenOwn(path+disk.Lock, os.O_RDONLY)
	if err != nil {
		return "", false
	}
	defer f.Close()
	if taken, _ := flock(f, syscall.LOCK_SH); !taken {
		return "", false // close releases a lock that was acquired
	}
	pid, _ = readLock(f)
	return pid, true
}

// Release releases the locks. Closing the files does not always suffice: until its exec, a process that starts beside
// this one has the same files open.
func (l *Lock) Release() error {
	var errs []error
	for _, f := range []*os.File{l.file, l.name} {
		if f != nil {
			errs = append(errs, syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
		}
	}
	return errors.Join(errs...)
}
