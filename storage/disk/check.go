package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Check reports whether this process may create and change the files of the database at path. Its errors are ErrAccess. One
// error names all files with a wrong owner or mode, with the commands that mend all of them.
func Check(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return Advise(dir, err)
	}
	if !info.IsDir() {
		return refuse(nil, fmt.Sprintf("storage.path is %s, but %s is not a directory", path, dir), "set storage.path to a file in a directory")
	}
	var found denied
	if err := found.check(dir, info, mayRead|mayWrite|maySearch); err != nil {
		return err
	}
	if err := found.checkFiles(path); err != nil {
		return err
	}
	if len(found.files) == 0 {
		return nil
	}
	// Key files are read later, and not if encryption.key is set.
	for _, name := range KeyFiles(path) {
		if info, err := os.Lstat(name); err == nil {
			_ = found.check(name, info, mayRead|mayWrite)
		}
	}
	return found.refusal()
}

// CheckKinds refuses files beside the database at path that SQLite must not open. These are links, pipes, directories
// and hard links to other files. So are files of users other than this one and the owner of the database. The error is
// ErrAccess.
func CheckKinds(path string) error {
	users := trusted(path)
	for _, name := range Database(path)[1:] {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Advise(name, err)
		}
		if err := errors.Join(checkPlain(name, info), checkOwnedBy(users, name, info)); err != nil {
			return err
		}
	}
	return nil
}

// trusted returns this user and the owner of the database.
func trusted(path string) []int {
	users := []int{Self().UID}
	if info, err := os.Lstat(path); err == nil {
		if owner, known := ownerOf(info); known {
			users = append(users, owner.UID)
		}
	}
	return users
}

// denied are the files that this process may not use, because of their owners or modes.
type denied struct{ files []deniedFile }

type deniedFile struct {
	name string
	info fs.FileInfo
}

// check adds the file if this process lacks the rights. Any other error of the system is the result.
func (d *denied) check(name string, info fs.FileInfo, rights uint32) error {
	err := access(name, rights)
	switch {
	case errors.Is(err, fs.ErrPermission):
		d.files = append(d.files, deniedFile{name, info})
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Advise(name, err)
	}
	return nil
}

// checkFiles checks the database, the files of SQLite beside it, and the lock file.
func (d *denied) checkFiles(path string) error {
	users := trusted(path)
	for _, name := range append(Database(path), path+Lock) {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Advise(name, err)
		}
		if name != path {
			if err := checkPlain(name, info); err != nil {
				return err
			}
			// Nobody else can make a file of root. A server that once ran as root has left it.
			if owner, known := ownerOf(info); known && owner.UID == 0 && checkOwnedBy(users, name, info) != nil {
				d.files = append(d.files, deniedFile{name, info})
				continue
			}
			if err := checkOwnedBy(users, name, info); err != nil {
				return err
			}
		}
		if err := d.check(name, info, mayRead|mayWrite); err != nil {
			return err
		}
	}
	return nil
}

// KeyFiles returns the names of the key file of the database at path, and of the files to which older keys were moved. They may include
// copies with similar names, but no links.
func KeyFiles(path string) (names []string) {
	entries, _ := os.ReadDir(filepath.Dir(path)) // an error means that they are not named now
	for _, e := range entries {
		if name := filepath.Join(filepath.Dir(path), e.Name()); strings.HasPrefix(name, path+Key) && e.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}

// refusal returns the error for all files, of which there is at least one.
func (d *denied) refusal() error {
	var names, owned, closed []string
	for _, f := range d.files {
		owner, _ := ownerOf(f.info)
		names = append(names, fmt.Sprintf("%s of %s (mode %s)", f.name, owner, octal(f.info)))
		if owner.UID != Self().UID {
			owned = append(owned, Quote(f.name))
		}
		needs := fs.FileMode(0o600)
		if f.info.IsDir() {
			needs = 0o700
		}
		if f.info.Mode()&needs != needs {
			closed = append(closed, Quote(f.name))
		}
	}
	var commands []string
	as := "run: "
	if len(owned) > 0 {
		as = "run as root: "
		commands = append(commands, fmt.Sprintf("chown %d:%d %s", Self().UID, Self().GID, strings.Join(owned, " ")))
	}
	if len(closed) > 0 {
		commands = append(commands, "chmod u+rwX "+strings.Join(closed, " "))
	}
	mend := as + strings.Join(commands, " && ")
	if len(commands) == 0 {
		mend = "look at the access rules of the system for these files (ACL, SELinux, AppArmor)"
	}
	return refuse(fs.ErrPermission, fmt.Sprintf("this process (%s) may not use %s", Self(), strings.Join(names, ", ")),
		mend+"; or set storage.path to another file")
}

// Secret returns the names of the files of the database at path that only its owner should read.
func Secret(path string) []string { return append(Database(path), KeyFiles(path)...) }

// Exposed returns those of the files that users other than their owners may read or change, with their modes. The mend is the
// command that changes all modes. Links are skipped, because an attacker may have made a link to a file of somebody else.
func Exposed(names []string) (found []string, mend string) {
	mend = "run: chmod 600"
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			found = append(found, name+" (mode "+octal(info)+")")
			mend += " " + Quote(name)
		}
	}
	return found, mend
}
