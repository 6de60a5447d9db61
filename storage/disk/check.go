package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Check reports whether this process may create and change the files of the database at path. Its errors are ErrAccess, with the command
// that mends the first file with a wrong owner or mode.
func Check(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return Advise(dir, err)
	}
	if !info.IsDir() {
		return refuse(nil, fmt.Sprintf("storage.path is %s, but %s is not a directory", path, dir), "set storage.path to a file in a directory")
	}
	if err := mayUse(dir, mayRead|mayWrite|maySearch); err != nil {
		return err
	}
	users := trusted(path)
	return checkEach(append(Database(path), path+Lock), func(name string, info fs.FileInfo) (err error) {
		if name != path {
			err = checkOwn(name, info, users...)
			// Nobody else can make a file of root. A server that once ran as root has left it.
			if err != nil && ownerOf(info).UID == 0 && checkPlain(name, info) == nil {
				err = Advise(name, fs.ErrPermission)
			}
		}
		return cmp.Or(err, mayUse(name, mayRead|mayWrite))
	})
}

// checkEach returns the first error of a check of the files that exist.
func checkEach(names []string, check func(name string, info fs.FileInfo) error) error {
	for _, name := range names {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Advise(name, err)
		}
		if err := check(name, info); err != nil {
			return err
		}
	}
	return nil
}

func mayUse(name string, rights uint32) error {
	if err := access(name, rights); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Advise(name, err)
	}
	return nil
}

// CheckKinds refuses files beside the database at path that SQLite must not open. These are links, pipes, directories and
// hard links to other files. So are files of users other than this one and the owner of the database. The error is ErrAccess.
func CheckKinds(path string) error {
	users := trusted(path)
	return checkEach(Database(path)[1:], func(name string, info fs.FileInfo) error { return checkOwn(name, info, users...) })
}

// trusted returns this user and the owner of the database.
func trusted(path string) []int {
	users := []int{Self().UID}
	if info, err := os.Lstat(path); err == nil {
		users = append(users, ownerOf(info).UID)
	}
	return users
}

// Secret returns the names of the files of the database at path that only its owner should read: the database, its key file, and the
// files to which older keys were moved. They may include copies with similar names, but no links.
func Secret(path string) []string {
	names := Database(path)
	entries, _ := os.ReadDir(filepath.Dir(path)) // an error means that they are not named now
	for _, e := range entries {
		if name := filepath.Join(filepath.Dir(path), e.Name()); strings.HasPrefix(name, path+Key) && e.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}

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
