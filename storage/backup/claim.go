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
		if err != nil && !errors.Is(err, ErrRunning) {
			return nil, err
		} // otherwise another run saw the file before it was locked, and removed it as a leftover
	}
	return nil, fault.Advise(fmt.Errorf("%w into %s: other runs keep making %s", ErrRunning, filepath.Dir(name), filepath.Base(name)),
		"wait until they end")
}

// claimTries bounds the attempts of a run to claim its file while others make files of the same name.
const claimTries = 100

// removeUnclaimed removes the file of a killed run. It returns ErrRunning where that run still goes on.
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
