package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"
	modernc "modernc.org/sqlite" // also registers the driver
)

func init() {
	modernc.StrictPragmas(true)
	// Closing any descriptor of the file drops a process's POSIX locks on it; open-file-description locks survive that.
	// The only error is "too late", which cannot be before the first open.
	if _, err := modernc.OFDLocking(true); err != nil {
		panic(err)
	}
}

// RegisterFunction gives statements a function of a text and a blob. It returns what fn does. Connections that are open already do not have
// it, and the name must be new.
func RegisterFunction(name string, fn func(text string, blob []byte) (bool, error)) error {
	return modernc.RegisterDeterministicScalarFunction(name, 2, func(_ *modernc.FunctionContext, args []sqldriver.Value) (sqldriver.Value, error) {
		text, isText := args[0].(string)
		blob, isBlob := args[1].([]byte)
		if !isText || !isBlob {
			return nil, fmt.Errorf("%s takes a text and a blob, not %T and %T", name, args[0], args[1])
		}
		return fn(text, blob)
	})
}

const (
	driver = "sqlite"

	// applicationID marks the file as Keyhook's: "keyh" in ASCII (PRAGMA application_id).
	applicationID = 0x6b657968

	// walPages is the length of the write-ahead log, 58 MB, from which on each commit makes a checkpoint by itself. Such
	// commits take longer, so it is above LogBounds.Restart. It keeps a burst of large events far below LogBounds.Warn.
	walPages = 14_000
)

// Synchronous levels of PRAGMA synchronous. Full loses nothing that was acknowledged when the power fails; Normal may
// lose the last moments, but never corrupts.
const (
	Full   = "full"
	Normal = "normal"
)

// pragma is a setting of a connection and the value that it must read back as.
type pragma struct {
	name, value, reads string
}

func commonPragmas() []pragma {
	return []pragma{
		{"busy_timeout", "5000", "5000"},
		{"foreign_keys", "on", "1"},
		{"trusted_schema", "0", "0"},
		{"temp_store", "MEMORY", "2"}, // a read-only root has no place for temporary files
		{"mmap_size", "0", "0"},
		{"cell_size_check", "1", "1"},
		{"secure_delete", "fast", "2"},
		{"journal_size_limit", "67108864", "67108864"},
	}
}

func writerPragmas(synchronous string) []pragma {
	level := map[string]string{Full: "2", Normal: "1"}[synchronous]
	return append(commonPragmas(),
		pragma{"journal_mode", "WAL", "wal"},
		pragma{"synchronous", strings.ToUpper(synchronous), level},
		pragma{"wal_autocheckpoint", strconv.Itoa(walPages), strconv.Itoa(walPages)},
		pragma{"cache_size", "-4000", "-4000"},
	)
}

func readerPragmas() []pragma {
	return append(commonPragmas(),
		pragma{"query_only", "1", "1"},
		pragma{"cache_size", "-2000", "-2000"},
	)
}

func replace(pragmas []pragma, by pragma) []pragma {
	pragmas[slices.IndexFunc(pragmas, func(p pragma) bool { return p.name == by.name })] = by
	return pragmas
}

// connect opens a pool of n permanent connections to the database at path, which is absolute. options are more of its data source
// name. The driver ignores a misspelt pragma in silence, so all of them are read back.
func connect(ctx context.Context, path string, n int, pragmas []pragma, options ...string) (*sqlx.DB, error) {
	query := append([]string{"_defensive=1", "_dqs=0", "_error_rc=1"}, options...)
	for _, p := range pragmas {
		query = append(query, "_pragma="+p.name+"("+p.value+")")
	}
	db, err := sqlx.Open(driver, (&url.URL{Scheme: "file", Path: path, RawQuery: strings.Join(query, "&")}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	for _, p := range pragmas {
		var got string
		if err := db.GetContext(ctx, &got, "PRAGMA "+p.name); err != nil {
			return nil, errors.Join(fmt.Errorf("read pragma %s: %w", p.name, err), db.Close())
		}
		if got != p.reads {
			err := fmt.Errorf("pragma %s is %s, but must be %s: this file system or build does not support the database", p.name, got, p.reads)
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

func readDatabase(ctx context.Context, path string, read func(*sqlx.DB) error, options ...string) error {
	db, err := connect(ctx, path, 1, readerPragmas(), options...)
	if err != nil {
		return err
	}
	return errors.Join(read(db), db.Close())
}
