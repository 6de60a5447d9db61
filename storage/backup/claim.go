package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// ErrRunning is returned while another backup of the same database writes into the same directory. It is wrapped with advice.
var ErrRunning = errors.New("another backup is being written")

// claim locks the temporary file of a copy, and empties it. The kernel releases the lock even after kill -9. So a file of that
// name without a lock is new, or left over from a killed run. It returns ErrRunning where that run still goes on.
func claim(name string) (*os.File, error) {
	for {
		f, err := disk.OpenOwn(name, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, fmt.Errorf("begin the copy: %w", err)
		}
		err = flock(f)
		if err == nil && !stillNamed(f) { // another run has renamed or removed it before it was locked
			f.Close()
			continue
		}
		if err == nil {
			err = f.Truncate(0)
		}
		// Some file systems refuse a change of the mode, and make only this one.
		if info, unknown := f.Stat(); err == nil && (unknown != nil || info.Mode().Perm() != 0o600) {
			err = f.Chmod(0o600)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fault.Advise(fmt.Errorf("%w into %s", ErrRunning, filepath.Dir(f.Name())), "wait for its end")
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
