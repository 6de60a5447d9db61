package sqlite

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
// nothing. It looks less far into a file that was left open, which only its next owner may read. Of the hooks it calls
// Prepare and Recognize.
func Examine(ctx context.Context, o Options) (_ State, err error) {
	o = o.withDefaults()
	if o.Path, _, err = disk.Resolve(o.Path); err != nil {
		return None, err
	}
	if err := disk.CheckKinds(o.Path); err != nil {
		return None, err
	}
	var lockFile *os.File
	if file, err := disk.OpenOwn(o.Path+disk.Lock, os.O_RDONLY); err == nil {
		defer file.Close()
		lockFile = file
	}
	i, err := inspect(o, lockFile)
	if err != nil {
		return None, err
	}
	if i.size == 0 {
		return None, i.prepare()
	}
	shared, err := lockDatabase(o.Path, syscall.LOCK_SH)
	if err != nil {
		return None, err
	}
	defer shared.Close() // gives up the lock
	if err := o.examineHeader(); err != nil {
		return None, err
	}
	if err := i.prepare(); err != nil {
		return None, err
	}
	if i.leftOpen {
		return LeftOpen, nil
	}
	return i.state(ctx)
}

// inspection is what a start has found out about a file before anything is written.
type inspection struct {
	o        Options
	size     int64
	leftOpen bool // its last owner has not closed it: who closes it removes the write-ahead log
	wasMade  bool // the lock file says that a database was made here

	noTables bool
	outdated int64 // the schema version, where it is an older one
}

// inspect looks at the file from outside. lockFile is the one beside it; nil where there is none.
func inspect(o Options, lockFile *os.File) (*inspection, error) {
	i := &inspection{o: o}
	var err error
	if i.size, err = fileSize(o.Path); err != nil {
		return nil, err
	}
	log, err := fileSize(o.Path + disk.WAL)
	i.leftOpen = log > 0
	i.wasMade = lockFile != nil && readLock(lockFile).made
	return i, err
}

func (i *inspection) prepare() error {
	return i.o.Prepare(i.o.Path, Start{Empty: i.size == 0, WasMade: i.wasMade})
}

// state looks into a file that was closed.
func (i *inspection) state(ctx context.Context) (State, error) {
	db, err := connectTo(ctx, i.o.Path, 1, readerPragmas(), "immutable=1", "mode=ro")
	if err != nil {
		return None, Explain(err)
	}
	defer db.Close()
	if err := i.compare(ctx, db); err != nil || i.noTables {
		return None, Explain(err)
	}
	if err := i.o.Recognize(ctx, i.o.Path, db); err != nil {
		return None, Explain(err)
	}
	if i.outdated > 0 {
		return Outdated, nil
	}
	return Closed, nil
}

// examineHeader reads the first bytes of a file as SQLite does (sqlite.org/fileformat2.html section 1.3).
func (o Options) examineHeader() error {
	const size, versionAt, applicationAt = 100, 60, 68
	f, err := disk.OpenRegular(o.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	header := make([]byte, size)
	if _, err := io.ReadFull(f, header); err != nil || !bytes.HasPrefix(header, []byte(magic)) {
		return fmt.Errorf("%w: %s is no database at all; set storage.path to another file, or put the database back from a backup", ErrForeignFile, o.Path)
	}
	if app := binary.BigEndian.Uint32(header[applicationAt:]); app != applicationID && app != 0 {
		return fmt.Errorf("%w: %s holds another application's tables; set storage.path to another file", ErrForeignFile, o.Path)
	}
	if user := binary.BigEndian.Uint32(header[versionAt:]); int64(user) > o.version() {
		return o.newer(int64(user))
	}
	return nil
}
