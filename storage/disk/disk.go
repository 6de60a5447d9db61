// Package disk owns where the database is: file names, owners, modes, safe opening, the file system and its free
// space. It does not know what the files contain.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/keyhook/keyhook/storage/fault"
)

// Reasons to refuse a place. Each error of this package that is one of them says what happened, why, and what to do.
var (
	ErrAccess     = errors.New("the files cannot be used")
	ErrFileSystem = errors.New("the file system cannot store a database safely")
)

// The bounds of warnings, in bytes.
const (
	LowSpace = 256 << 20 // of free space; with less, the operator is warned
	LongLog  = 256 << 20 // of the write-ahead log; with more, the operator is warned
)

// refusal is a complete sentence with the reasons that errors.Is finds; it skips nil. The sentence does not repeat their texts.
type refusal struct {
	sentence string
	reasons  []error
}

func (r refusal) Error() string   { return r.sentence }
func (r refusal) Unwrap() []error { return r.reasons }

// refuse returns an error that is ErrAccess and, if it is not nil, also cause.
func refuse(cause error, sentence, mend string) error {
	return fault.Advise(refusal{sentence, []error{ErrAccess, cause}}, "%s", mend)
}

// Modes of access(2).
const (
	mayRead   = 4
	mayWrite  = 2
	maySearch = 1
)

// Resolve follows symbolic links, so that a file has one name however it is reached. It also returns the user who must
// access it (see Locate). The file may be missing, but a missing directory is ErrAccess. It also follows a link to a
// missing file. So the files beside the database have the same names before and after its first start.
func Resolve(path string) (resolved string, user User, err error) {
	resolved, user, err = Locate(path)
	if err != nil {
		return "", user, err
	}
	if _, err := os.Lstat(filepath.Dir(resolved)); errors.Is(err, fs.ErrNotExist) {
		return "", user, refuse(nil, fmt.Sprintf("storage.path is %s, but there is no directory %s", path, filepath.Dir(path)),
			fmt.Sprintf("create the directory (mkdir -p %s), or set storage.path", Quote(filepath.Dir(path))))
	}
	if _, err := os.Lstat(resolved); user.UID == 0 && errors.Is(err, fs.ErrNotExist) {
		_, user, err = Locate(resolved + Key) // a lost database had the owner of its key
		return resolved, user, err
	}
	return resolved, user, nil
}

// Suffixes of the files beside a database.
const (
	WAL     = "-wal" // the write-ahead log of SQLite
	Journal = "-journal"

	Lock      = ".lock"
	Key       = ".key"
	FreshKey  = ".key.new"
	Socket    = ".sock"
	Reserve   = ".reserve"
	Partial   = ".partial"
	Restoring = ".restoring"
)

// Database returns the database at path and the files in which SQLite keeps part of it for a time. They move together.
func Database(path string) []string { return []string{path, path + WAL, path + "-shm", path + Journal} }

var keptKey = regexp.MustCompile(`\.key\.[0-9a-f]{8}$`) // the name of a key that a rekey has kept

// IsBeside reports whether Keyhook or SQLite gives such a name to a file beside a database. A copy must not take it.
func IsBeside(name string) bool {
	suffixes := []string{WAL, "-shm", Journal, Lock, Key, FreshKey, Socket, Reserve, Partial, Restoring}
	return keptKey.MatchString(name) || slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

const orAnother = ", or use another file; storage.path is the file of the database"

// Advise turns a system error about name into a sentence: which user asks, who owns the file, and the exact command
// that gives access. The result is ErrAccess and also wraps err.
func Advise(name string, err error) error {
	switch err = fault.WithoutPath(err); {
	case errors.Is(err, syscall.EROFS):
		return refuse(err, name+" is on a read-only file system", "mount the file system writable, or use a directory on another one")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return refuse(err, fmt.Sprintf("cannot write %s: %v", name, err), "free space on that disk, or use a directory on another disk")
	case errors.Is(err, fs.ErrPermission):
		why, mend := whyDenied(name)
		return refuse(err, fmt.Sprintf("this process (%s) may not use %s, because %s", Self(), name, why), mend+orAnother)
	}
	return refuse(err, fmt.Sprintf("cannot use %s: %v", name, err), "look at each directory of this path"+orAnother)
}

// whyDenied says why this process may not use name, and how to give it access. If this process may not enter a directory
// on the way to name, the answer is about that directory.
func whyDenied(name string) (why, mend string) {
	if target, err := os.Readlink(name); err == nil {
		// No chown, because it would give away the target of the link, and an attacker may have made the link.
		return "it is a symbolic link to " + target, "remove the link if you did not make it, or give this user access to its target"
	}
	subject := "it"
	info, err := os.Stat(name)
	isHidden := false // by a directory that this process may not search, not missing
	for err != nil && name != filepath.Dir(name) {
		isHidden = errors.Is(err, fs.ErrPermission)
		name = filepath.Dir(name)
		subject = name
		info, err = os.Stat(name)
	}
	if err != nil {
		return "it may not see the directories of this path", "look at each directory of this path"
	}
	owner := ownerOf(info)
	why = fmt.Sprintf("%s belongs to %s (mode %s)", subject, owner, octal(info))
	if owner.UID == os.Geteuid() {
		bits := "u+rw"
		if info.IsDir() {
			bits = "u+rwx"
		}
		return why, "run: chmod " + bits + " " + Quote(name)
	}
	chown := fmt.Sprintf("run as root: chown %d:%d %s", os.Geteuid(), os.Getegid(), Quote(name))
	if isHidden { // the directory may protect other files too, as /root and /var/lib/private do
		return why, "if only Keyhook uses " + Quote(name) + ", " + chown + "; if not, run the command in the container or mount namespace of the server (nsenter)"
	}
	if os.Geteuid() != 0 { // a chown would take the file from a server that runs as its owner
		return why, "run the command as that user or as root; if only this user needs it, " + chown
	}
	return why, chown
}

func octal(info fs.FileInfo) string { return fmt.Sprintf("%04o", info.Mode().Perm()) }

// Quote quotes a path for a shell.
func Quote(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,", r)
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
