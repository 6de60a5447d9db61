package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// State is what stands at a path.
type State int

// The states of a file that Open would take.
const (
	None     State = iota // there is no database yet
	Closed                // its last owner has closed it
	LeftOpen              // it has not: the next start checks the file
	Outdated              // its schema is an older one: the next start upgrades it
)

// Owner tells which process owns the file at path, by the lock beside it; running is false where none does. The database is
// not opened. The caller must have the rights of its owner.
func Owner(path string) (pid string, running bool) {
	f, err := disk.OpenOwn(path+disk.Lock, os.O_RDONLY)
	if err != nil {
		return "", false
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return "", false // closing gives a lock back that was had
	}
	return readLock(f).owner, true
}

// Examine looks at a file that nobody owns as Open would, and refuses it as Open would, but changes nothing and makes
// nothing. It looks less far into a file that was left open, which only its next owner may read.
func Examine(ctx context.Context, o Options) (State, error) {
	path, _, err := disk.Resolve(o.Path)
	if err != nil {
		return None, err
	}
	if err := disk.CheckKinds(path); err != nil {
		return None, err
	}
	o.Path = path
	size, err := fileSize(path)
	if err != nil {
		return None, err
	}
	if size == 0 {
		if _, err := os.Stat(path + disk.Key); err == nil && o.EncryptionKey == "" {
			return None, lostBesideKey(path + disk.Key)
		}
		if f, err := disk.OpenOwn(path+disk.Lock, os.O_RDONLY); err == nil && o.EncryptionKey != "" {
			defer f.Close()
			if readLock(f).made {
				return None, lostUnderLock(path)
			}
		}
		return None, nil
	}
	shared, err := lockFile(path, syscall.LOCK_SH)
	if err != nil {
		return None, err
	}
	defer shared.Close() // gives up the lock
	known := o.knownUpgrades()
	if err := known.examineHeader(path); err != nil {
		return None, err
	}
	found, err := findKeys(o, false)
	if err != nil {
		return None, err
	}
	if left, err := leftOpen(path); left || err != nil {
		return LeftOpen, err
	}
	name, err := dsn(path, readerPragmas(), "immutable=1", "mode=ro")
	if err != nil {
		return None, err
	}
	db, err := connect(ctx, name, 1, readerPragmas())
	if err != nil {
		return None, unreadable(err)
	}
	defer db.Close()
	s := &Store{path: path, upgrades: known}
	if empty, err := s.compare(ctx, db, o.Schema); err != nil || empty {
		return None, unreadable(err)
	}
	sealed, err := readCanary(ctx, db)
	if err != nil {
		return None, unreadable(err)
	}
	if _, err := found.choose(path, sealed); err != nil {
		return None, err
	}
	if s.outdated > 0 {
		return Outdated, nil
	}
	return Closed, nil
}

// examineHeader reads the first bytes of a file as SQLite does (sqlite.org/fileformat2.html section 1.3).
func (u upgrades) examineHeader(path string) error {
	const size, versionAt, applicationAt = 100, 60, 68
	f, err := disk.OpenRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	header := make([]byte, size)
	if _, err := io.ReadFull(f, header); err != nil || !bytes.HasPrefix(header, []byte("SQLite format 3\x00")) {
		return fault.Advise(fmt.Errorf("%w: %s is no database at all", ErrForeignFile, path),
			"set storage.path to another file, or put the database back from a backup")
	}
	if app := binary.BigEndian.Uint32(header[applicationAt:]); app != applicationID && app != 0 {
		return fault.Advise(fmt.Errorf("%w: %s holds another application's tables", ErrForeignFile, path),
			"set storage.path to another file")
	}
	if user := binary.BigEndian.Uint32(header[versionAt:]); int64(user) > u.version() {
		return u.newer(path, int64(user))
	}
	return nil
}
