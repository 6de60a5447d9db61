package sqlite

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite/ownership"
)

// State describes the file at a path.
type State int

// The states of a file that Open accepts.
const (
	None     State = iota // there is no database yet
	Closed                // its last owner has closed it
	LeftOpen              // its last owner did not close it; the next start checks it
	Outdated              // its schema is older; the next start upgrades it
)

// Examine checks a file that has no owner as Open would, and returns the errors that Open would return. It changes and creates nothing. It
// checks less if the last owner left the file open: only the next owner may read all of it. Of the hooks, it calls Prepare and Recognize.
func Examine(ctx context.Context, o Options) (_ State, err error) {
	o = o.withDefaults()
	if o.Path, _, err = disk.Resolve(o.Path); err != nil {
		return None, err
	}
	if err := disk.CheckKinds(o.Path); err != nil {
		return None, err
	}
	i := inspection{o: o}
	if err := i.look(); err != nil {
		return None, err
	}
	if i.size == 0 {
		return None, i.prepare()
	}
	shared, err := ownership.Share(o.Path)
	if err != nil {
		return None, err
	}
	defer shared.Close() // releases the lock
	if err := i.checkHeader(); err != nil {
		return None, err
	}
	if err := i.prepare(); err != nil {
		return None, err
	}
	if i.leftOpen {
		return LeftOpen, nil
	}
	if err := i.read(ctx, func(*sqlx.DB) error { return nil }, "immutable=1", "mode=ro"); err != nil {
		return None, Advise(err)
	}
	switch {
	case i.noTables:
		return None, nil
	case i.outdated > 0:
		return Outdated, nil
	}
	return Closed, nil
}

// inspection is what Open and Examine learn about a file before the first write. Both do these steps in this order:
// look, checkHeader, prepare, read.
type inspection struct {
	o        Options // with defaults and with the resolved path
	size     int64
	leftOpen bool // its last owner did not close it, because closing removes the write-ahead log

	noTables bool
	outdated int64 // the schema version if it is older
}

// look checks the file from outside.
func (i *inspection) look() (err error) {
	if i.size, err = fileSize(i.o.Path); err != nil {
		return err
	}
	log, err := fileSize(i.o.Path + disk.WAL)
	i.leftOpen = log > 0
	if i.leftOpen && i.size == 0 && ownership.WasMade(i.o.Path) { // SQLite would write over it
		return fault.Advise(fmt.Errorf("%w: %s is gone, and its write-ahead log is there", ErrDamaged, i.o.Path),
			"put the database back beside %s, or move that file away, and restore a backup", i.o.Path+disk.WAL)
	}
	return err
}

// prepare asks for the key. A file without tables may have lost its log, with all that was written since the database was made.
func (i *inspection) prepare() error {
	return i.o.Prepare(i.o.Path, Start{Empty: i.size == 0 || i.noTables, WasMade: ownership.WasMade(i.o.Path)})
}

// read compares the database with the schema. check may read the whole file before Recognize decides.
// options are the options of the connection.
func (i *inspection) read(ctx context.Context, check func(*sqlx.DB) error, options ...string) error {
	return readDatabase(ctx, i.o.Path, func(db *sqlx.DB) error {
		if err := i.compare(ctx, db); err != nil {
			return err
		}
		if i.noTables {
			return i.prepare()
		}
		if err := check(db); err != nil {
			return err
		}
		return i.o.Recognize(ctx, i.o.Path, db)
	}, options...)
}

// checkHeader refuses a file that is not ours, or is newer, before anything asks for its key.
func (i *inspection) checkHeader() error {
	if i.size == 0 {
		return nil
	}
	version, err := readHeader(i.o.Path)
	if err == nil && version > i.o.version() {
		return i.o.newer(version)
	}
	return err
}

// readHeader reads the first bytes of a file as SQLite does (sqlite.org/fileformat2.html sections 1.3 and 1.6). It returns the
// schema version, and refuses a file that is not ours. It does not judge a file that SQLite would roll back first.
func readHeader(path string) (version int64, err error) {
	const size, versionAt, applicationAt, cellsAt = 108, 60, 68, 103
	if journal, err := fileSize(path + disk.Journal); err != nil || journal > 0 {
		return 0, err
	}
	f, err := disk.OpenRegular(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	header := make([]byte, size)
	if _, err := io.ReadFull(f, header); err != nil || !bytes.HasPrefix(header, []byte(magic)) {
		return 0, noDatabase(path)
	}
	hasTables := binary.BigEndian.Uint16(header[cellsAt:]) > 0 // the first page is the list of tables
	if app := binary.BigEndian.Uint32(header[applicationAt:]); app != applicationID && (app != 0 || hasTables) {
		return 0, otherApplication(path)
	}
	return int64(binary.BigEndian.Uint32(header[versionAt:])), nil
}

func noDatabase(path string) error {
	return fault.Advise(fmt.Errorf("%w: %s is no database at all, and was left as it is", ErrForeignFile, path),
		"set storage.path to another file, or put the database back from a backup")
}

func otherApplication(path string) error {
	return fault.Advise(fmt.Errorf("%w: %s has another application's tables, and was left as it is", ErrForeignFile, path),
		"set storage.path to another file")
}
