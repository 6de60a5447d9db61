// Package disk owns what can be told of the place where the database stands before anything is opened there: who may write
// to it, what kind of file system it is, and how much room is left. It knows nothing of SQLite, and
// changes nothing but, for root, whose a file is.
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

// Why a place is refused. Each comes wrapped in a sentence that says what to do.
var (
	ErrAccess     = errors.New("the files cannot be used")
	ErrFileSystem = errors.New("the file system cannot hold a database")
)

// The modes of access(2).
const (
	mayRead   = 4
	mayWrite  = 2
	maySearch = 1
)

// Resolve follows symbolic links, so that a file has one name however it is reached. The file need not exist, its directory
// must: ErrAccess otherwise. A link to a file that is still to be made is followed too, or what stands beside the database
// would be looked for elsewhere once it is there.
func Resolve(path string) (string, error) {
	for range maxLinks {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Abs(target)
		}
		target, err := os.Readlink(path)
		if err != nil {
			return resolveNew(path)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Dir(path) + "/" + target // not Join: where Dir is a link itself, ".." is not what it seems
		}
		path = target
	}
	return "", Explain(path, syscall.ELOOP)
}

// maxLinks bounds how many links are followed, as the kernel does.
const maxLinks = 40

// resolveNew names a file that is not there.
func resolveNew(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: storage.path is %s, but there is no directory %s; create it (mkdir -p %s), or set storage.path",
			ErrAccess, path, filepath.Dir(path), quote(filepath.Dir(path)))
	}
	if err != nil {
		return "", Explain(filepath.Dir(path), err)
	}
	return filepath.Abs(filepath.Join(dir, filepath.Base(path)))
}

// Beside returns the files that stand with the database at path while it is used, itself included. There may be others: a
// key, a socket.
func Beside(path string) []string {
	return []string{path, path + "-wal", path + "-shm", path + ".lock"}
}

// Check asks whether this process may make and change the files of the database at path. Its errors are ErrAccess.
func Check(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return Explain(dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: storage.path is %s, but %s is not a directory; set storage.path to a file in one", ErrAccess, path, dir)
	}
	if err := syscall.Access(dir, mayRead|mayWrite|maySearch); err != nil {
		return Explain(dir, err)
	}
	for _, name := range Beside(path) {
		if err := syscall.Access(name, mayRead|mayWrite); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Explain(name, err)
		}
	}
	return nil
}

// Readable asks whether this process may read a file: ErrAccess otherwise.
func Readable(name string) error {
	if err := syscall.Access(name, mayRead); err != nil {
		return Explain(name, err)
	}
	return nil
}

// Adopt gives a file that root has made to the owner of another one, which it belongs with: whoever serves the database may
// be somebody else. For anybody but root, and where the other one is not there, it does nothing.
func Adopt(name, like string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(like)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return Explain(like, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Lchown(name, int(stat.Uid), int(stat.Gid))
	}
	return nil
}

// Explain makes a sentence of an error of the system about name: who asks, whose it is, and the very command that mends
// it. It is ErrAccess, and wraps err too.
func Explain(name string, err error) error {
	if pathed, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathed.Err // the sentence names the path
	}
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s is on a read-only file system; mount it writable, or set storage.path to a file elsewhere (%w)", ErrAccess, name, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: there is no room for %s; make room on that disk, or set storage.path to a file elsewhere (%w)", ErrAccess, name, err)
	case errors.Is(err, fs.ErrPermission):
		who := fmt.Sprintf("uid %d, gid %d", os.Geteuid(), os.Getegid())
		owner, mend := owner(name)
		return fmt.Errorf("%w: %s may not be used by this process (%s): %s; %s, or set storage.path to a file elsewhere (%w)", ErrAccess, name, who, owner, mend, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrAccess, name, err)
}

// owner tells whose name is and what mends that this process may not use it. Where name cannot even be seen, that is about
// the directory that hides it.
func owner(name string) (belongs, mend string) {
	info, err := os.Stat(name)
	for err != nil && name != filepath.Dir(name) {
		name = filepath.Dir(name)
		info, err = os.Stat(name)
	}
	if err != nil {
		return "it cannot be seen", "look at its directories"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "mode " + octal(info), "change its owner"
	}
	belongs = fmt.Sprintf("%s belongs to uid %d, gid %d, mode %s", name, stat.Uid, stat.Gid, octal(info))
	if int(stat.Uid) == os.Geteuid() {
		bits := "u+rw"
		if info.IsDir() {
			bits = "u+rwx"
		}
		return belongs, "run: chmod " + bits + " " + quote(name)
	}
	return belongs, fmt.Sprintf("run as root: chown %d:%d %s", os.Geteuid(), os.Getegid(), quote(name))
}

func octal(info fs.FileInfo) string { return fmt.Sprintf("%04o", info.Mode().Perm()) }

// quote writes a path as a shell takes it.
func quote(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,", r)
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
