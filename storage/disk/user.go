package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/keyhook/keyhook/storage/fault"
)

// User is a user with whose rights files are used.
type User struct{ UID, GID int }

// Self is the user of this process.
func Self() User { return User{os.Geteuid(), os.Getegid()} }

func (u User) String() string { return fmt.Sprintf("uid %d, gid %d", u.UID, u.GID) }

// Locate follows the symbolic links in a path, as Resolve does, and says with whose rights the file is to be used. The file
// and directories on the way to it may be missing.
//
// For a process that is not root, that is the process itself. Root acts as the user who can change what the path leads to:
// the last owner on the way that is not root. If root kept its own rights there, that user could replace a directory by a
// link between two system calls, and root would write wherever the link leads. A link that is not root's is followed with
// the rights of its owner, whoever owns its target.
func Locate(path string) (resolved string, user User, err error) {
	user = Self()
	settled := user.UID != 0
	path, err = absolute(path)
	if err != nil {
		return "", user, err
	}
	resolved = "/"
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(resolved, name) // also for "." and "..": resolved holds no links
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(next, filepath.Join(rest...)), user, nil
		}
		if err != nil {
			return "", user, Explain(next, err)
		}
		isLink := info.Mode().Type() == fs.ModeSymlink
		if owner, known := ownerOf(info); known && !settled && owner.UID != 0 {
			user, settled = owner, isLink
		}
		if !isLink {
			resolved = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", user, Explain(next, err)
		}
		if links++; links > maxLinks {
			return "", user, Explain(path, syscall.ELOOP)
		}
		if filepath.IsAbs(target) {
			resolved = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return resolved, user, nil
}

// maxLinks bounds how many links are followed, as the kernel does.
const maxLinks = 40

// absolute puts the working directory before a relative path. It does not clean the path: where a directory is a link,
// its ".." is not the directory before it.
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := os.Getwd()
	return dir + "/" + path, err
}

// ownerOf returns whose a file is; known is false where the system does not tell.
func ownerOf(info fs.FileInfo) (owner User, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return User{}, false
	}
	return User{int(stat.Uid), int(stat.Gid)}, true
}

// CheckReplaceable refuses a directory in which root is to make files as itself, where other users could replace them by
// links: one of root's that its group or all may write to, without the sticky bit. The directories above count too.
func (u User) CheckReplaceable(dir string) error {
	if Self().UID != 0 || u.UID != 0 {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Explain(dir, err)
		}
		if err == nil && isReplaceable(info) {
			return fault.Advise(fmt.Errorf("%w: others than root may replace files in %s (mode %s), so root makes none there", ErrAccess, dir, octal(info)),
				"run: chmod go-w %s, or: chmod +t %s, or name another directory", quote(dir), quote(dir))
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// isReplaceable reports whether users other than its owner and root may rename and remove what is in a directory.
func isReplaceable(dir fs.FileInfo) bool {
	if dir.Mode()&fs.ModeSticky != 0 {
		return false
	}
	owner, known := ownerOf(dir)
	return dir.Mode()&0o002 != 0 || dir.Mode()&0o020 != 0 && known && owner.GID != 0
}

// Become gives the whole process the rights of the user, for good. It does nothing in a process that is not root.
func (u User) Become() error {
	if Self().UID != 0 || u.UID == 0 {
		return nil
	}
	if err := u.become(); err != nil {
		return u.refused(err)
	}
	return nil
}

// Do runs fn with the rights of the user, in a process that is root; all goroutines have those rights meanwhile. In any
// other process it only runs fn.
func (u User) Do(fn func() error) error {
	if Self().UID != 0 || u.UID == 0 {
		return fn()
	}
	undo, err := u.borrow()
	if err != nil {
		return u.refused(errors.Join(err, undo()))
	}
	err = fn()
	return errors.Join(err, undo())
}

func (u User) refused(err error) error {
	return fault.Advise(fmt.Errorf("%w: they belong to %s, and this process is root but may not act as that user (%w)", ErrAccess, u, err),
		"run the command as that user")
}
