package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/keyhook/keyhook/storage/fault"
)

// unfollowed are the flags of every file that is opened by a name somebody else could have planted: a link is an error,
// and a pipe without a writer does not block.
const unfollowed = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Create makes a file of mode 0600 for this process to write. Whatever has the name already is refused with fs.ErrExist,
// which is ErrAccess too.
func Create(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unfollowed, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, inTheWay(name, err)
	}
	if err != nil {
		return nil, Explain(name, err)
	}
	return f, nil
}

// OpenOwn opens a file that an earlier run of this user has made: a regular file of this user, with one name. Anything else
// is refused with ErrAccess. A missing file is fs.ErrNotExist.
func OpenOwn(name string, flag int) (*os.File, error) {
	f, err := os.OpenFile(name, flag|unfollowed, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENXIO) {
		return nil, inTheWay(name, err)
	}
	if err != nil {
		return nil, Explain(name, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = errors.Join(plain(name, info), owned(name, info))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenRegular opens a file to read it, and follows links to it. Anything but a regular file is ErrAccess.
func OpenRegular(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Explain(name, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fault.Advise(fmt.Errorf("%w: %s is not a regular file", ErrAccess, name), "move it away"), err, f.Close())
	}
	return f, nil
}

// IsOwn reports whether a name is that of a file which an earlier run of this user can have made, as OpenOwn takes it.
func IsOwn(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && plain(name, info) == nil && owned(name, info) == nil
}

// Remove removes the name of a file, if it is there. Unlike os.Remove it removes no directory.
func Remove(name string) error {
	err := syscall.Unlink(name)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EPERM):
		return inTheWay(name, err)
	}
	return Explain(name, err)
}

// plain refuses anything but a regular file with one name.
func plain(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return inTheWay(name, nil)
	}
	if stat, known := info.Sys().(*syscall.Stat_t); known && stat.Nlink > 1 {
		return fault.Advise(fmt.Errorf("%w: %s has another name too (it is a hard link), so writing to it could change another file", ErrAccess, name),
			"remove it: rm %s", quote(name))
	}
	return nil
}

// ownedBy refuses a file of any other user.
func ownedBy(users []int, name string, info fs.FileInfo) error {
	if owner, known := ownerOf(info); known && !slices.Contains(users, owner.UID) {
		return fault.Advise(fmt.Errorf("%w: %s belongs to %s and was not made by this process (%s)", ErrAccess, name, owner, Self()),
			"look at it and move it away")
	}
	return nil
}

// owned refuses a file of another user.
func owned(name string, info fs.FileInfo) error { return ownedBy([]int{Self().UID}, name, info) }

// inTheWay says what stands at a name that Keyhook needs.
func inTheWay(name string, err error) error {
	kind := "a file"
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		kind = map[fs.FileMode]string{
			fs.ModeSymlink: "a symbolic link", fs.ModeDir: "a directory", fs.ModeNamedPipe: "a named pipe", fs.ModeSocket: "a socket",
		}[info.Mode().Type()]
	}
	if kind == "" {
		kind = "no regular file"
	}
	sentence := fault.Advise(fmt.Errorf("%w: %s is in the way: it is %s, and Keyhook did not make it", ErrAccess, name, kind),
		"look at it and move it away")
	if err == nil {
		return sentence
	}
	return inTheWayError{sentence, err}
}

// inTheWayError keeps the error of the system for errors.Is. Its text would only repeat the sentence.
type inTheWayError struct {
	error
	cause error
}

func (e inTheWayError) Unwrap() []error { return []error{e.error, e.cause} }
