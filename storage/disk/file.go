package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// safeOpenFlags are for every name that another user may have planted. A link is an error, and a pipe without a writer does not block.
const safeOpenFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Create creates a file of mode 0600 for this process to write. If the name exists, the error is fs.ErrExist and ErrAccess.
func Create(name string) (*os.File, error) { return OpenOwn(name, os.O_RDWR|os.O_CREATE|os.O_EXCL) }

// OpenOwn opens a file that this user created in an earlier run: a regular file of this user without other hard links.
// Anything else is ErrAccess. A missing file is fs.ErrNotExist, or is created with the mode 0600 if flag has os.O_CREATE.
func OpenOwn(name string, flag int) (*os.File, error) {
	f, err := os.OpenFile(name, flag|safeOpenFlags, 0o600)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENXIO) {
		return nil, nameTaken(name, err)
	}
	if err != nil {
		return nil, Advise(name, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = checkOwn(name, info, Self().UID)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenRegular opens a file for reading and follows links. Anything except a regular file is ErrAccess.
func OpenRegular(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Advise(name, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(refuse(nil, name+" is not a regular file", "move it away, or give another file"), err, f.Close())
	}
	return f, nil
}

// IsOwn reports whether OpenOwn would accept the file.
func IsOwn(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && checkOwn(name, info, Self().UID) == nil
}

// Remove removes the name of a file if it exists. Unlike os.Remove, it never removes a directory.
func Remove(name string) error {
	err := syscall.Unlink(name)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EPERM):
		return nameTaken(name, err)
	}
	return Advise(name, err)
}

// checkPlain refuses anything except a regular file without other hard links.
func checkPlain(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nameTaken(name, nil)
	}
	if info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return refuse(nil, name+" is a hard link, so a write to it could change another file", "run: rm "+Quote(name))
	}
	return nil
}

// checkOwn is checkPlain, and refuses a file of any user but these.
func checkOwn(name string, info fs.FileInfo, users ...int) error {
	err := checkPlain(name, info)
	if owner := ownerOf(info); !slices.Contains(users, owner.UID) {
		other := refuse(nil, fmt.Sprintf("%s belongs to another user (%s), and this process is %s", name, owner, Self()), "look at the file and move it away")
		err = errors.Join(err, other)
	}
	return err
}

// nameTaken describes the file that has a name which Keyhook needs.
func nameTaken(name string, err error) error {
	return refuse(err, name+" is in the way, and Keyhook did not make it", "look at it and move it away")
}

// Exists reports whether the name exists, even as a link without a target.
func Exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// SyncFile sees what was written to a file of ours onto the disk.
func SyncFile(name string) error {
	f, err := OpenOwn(name, os.O_RDWR)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncDir sees the names in a directory onto the disk.
func SyncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
