package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// User is a user who accesses files.
type User struct{ UID, GID int }

// Self returns the user of this process.
func Self() User { return User{os.Geteuid(), os.Getegid()} }

func (u User) String() string { return fmt.Sprintf("uid %d, gid %d", u.UID, u.GID) }

// Locate follows the symbolic links in a path, as Resolve does, and returns the user who must access the file. The file
// and directories on the way may be missing.
//
// A process that is not root accesses files as itself. Root acts as the user who can change what the path leads to: the last owner on
// the way that is not root. Otherwise that user could replace a directory by a link between two system calls. Root would then write to
// the link's target. Root follows a link of another user with the rights of the link's owner. The owner of the target does not matter.
func Locate(path string) (resolved string, user User, err error) {
	user = Self()
	isDecided := user.UID != 0
	if !filepath.IsAbs(path) { // joined, not cleaned: ".." after a link is not the directory before the link
		dir, err := os.Getwd()
		if err != nil {
			return "", user, refuse(err, fmt.Sprintf("this process (%s) may not use its working directory", user), "change to another one, such as /, and name the files with their whole paths")
		}
		path = dir + "/" + path
	}
	resolved = "/"
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(resolved, name) // correct for "." and "..", because resolved contains no links
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(next, filepath.Join(rest...)), user, nil
		}
		if err != nil {
			return "", user, Advise(next, err)
		}
		isLink := info.Mode().Type() == fs.ModeSymlink
		if owner := ownerOf(info); !isDecided && owner.UID != 0 {
			user, isDecided = owner, isLink
		}
		if !isLink {
			resolved = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", user, Advise(next, err)
		}
		if links++; links > maxLinks {
			return "", user, Advise(path, syscall.ELOOP)
		}
		if filepath.IsAbs(target) {
			resolved = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return resolved, user, nil
}

// maxLinks is how many links are followed, like in the kernel.
const maxLinks = 40

func ownerOf(info fs.FileInfo) User {
	stat := info.Sys().(*syscall.Stat_t)
	return User{int(stat.Uid), int(stat.Gid)}
}

// CheckReplaceable refuses a directory in which other users could replace the files of root by links. That is a directory
// of root that its group or everybody may write to, without the sticky bit. The directories above it count too.
func (u User) CheckReplaceable(dir string) error {
	if Self().UID != 0 || u.UID != 0 {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Advise(dir, err)
		}
		if err == nil && isReplaceable(info) {
			return refuse(nil, fmt.Sprintf("users other than root may replace files in %s (mode %s), so root does not create a file there", dir, octal(info)),
				fmt.Sprintf("run: chmod go-w %s, or run: chmod +t %s, or give another directory", Quote(dir), Quote(dir)))
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// isReplaceable reports whether users other than the owner and root may rename and remove files in a directory.
func isReplaceable(dir fs.FileInfo) bool {
	if dir.Mode()&fs.ModeSticky != 0 {
		return false
	}
	return dir.Mode()&0o002 != 0 || dir.Mode()&0o020 != 0 && ownerOf(dir).GID != 0
}

// Become gives the whole process the rights of the user permanently. It does nothing in a process that is not root.
func (u User) Become() error {
	if Self().UID != 0 || u.UID == 0 {
		return nil
	}
	if err := u.become(); err != nil {
		return u.refused(err)
	}
	return nil
}

// Do runs fn with the rights of the user if the process is root. All goroutines have those rights during that time. In
// any other process it only runs fn.
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
	return refuse(err, fmt.Sprintf("the files belong to %s, and root could not act as that user: %v", u, err), "run the command as that user")
}
