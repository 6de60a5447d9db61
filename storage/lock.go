package storage

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/keyhook/keyhook/storage/disk"
)

// ErrInUse is returned by Open when another process owns the file.
var ErrInUse = errors.New("database is in use")

// lock takes the advisory lock beside the database, for the life of the process. The kernel gives it back even after
// kill -9. The file stays, because removing it would let two processes each lock a file of that name.
func lock(path string) (*os.File, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, disk.Explain(name, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		owner, _ := os.ReadFile(name) // of no consequence where it cannot be read: the sentence then names no pid
		f.Close()
		return nil, fmt.Errorf("%w: %s belongs to the running process %s; stop that one first, or set storage.path to another file",
			ErrInUse, path, strings.TrimSpace(string(owner)))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: lock %s: %w; storage.path must be on a local file system", disk.ErrFileSystem, name, err)
	}
	if err := errors.Join(f.Truncate(0), write(f, fmt.Sprintln(os.Getpid()))); err != nil {
		f.Close()
		return nil, disk.Explain(name, err)
	}
	return f, nil
}

func write(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}
