package storage

import (
	"errors"
	"fmt"
	"io"
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
		owner := readLock(f).owner
		f.Close()
		return nil, fmt.Errorf("%w: %s belongs to the running process %s; stop that one first, or set storage.path to another file",
			ErrInUse, path, owner)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: lock %s: %w; storage.path must be on a local file system", disk.ErrFileSystem, name, err)
	}
	if err := writeLock(f, readLock(f).made); err != nil {
		f.Close()
		return nil, disk.Explain(name, err)
	}
	return f, nil
}

// madeLine stands in the lock file, below the owner's process id, once there is a database. It tells a database that was
// lost from one that is still to be made, where no key file does.
const madeLine = "database made"

// locked is what a lock file says.
type locked struct {
	owner string // process id; empty where it cannot be read
	made  bool
}

func readLock(f *os.File) locked {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 256)) // of no consequence where it cannot be read
	owner, rest, _ := strings.Cut(string(text), "\n")
	return locked{strings.TrimSpace(owner), strings.Contains(rest, madeLine)}
}

func writeLock(f *os.File, made bool) error {
	text := fmt.Sprintln(os.Getpid())
	if made {
		text += madeLine + "\n"
	}
	_, err := f.WriteAt([]byte(text), 0)
	return errors.Join(err, f.Truncate(int64(len(text))))
}

// lostUnderLock refuses to begin anew where there was a database.
func lostUnderLock(path string) error {
	return fmt.Errorf("%w, but %s.lock says that one was made here; put the database back from a backup, or remove that file to start anew", ErrLost, path)
}

// unlock gives the lock back. To close the file would not always do: a process that is being started beside this one has
// the same file open until it has become itself.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
