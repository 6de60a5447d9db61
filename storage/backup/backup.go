// Package backup owns the files of backups: where a copy goes, its temporary and final names, the removal of older copies, and the
// reports about them. It does not know SQL, or how a database is copied.
package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
)

// Contents describes the contents of a database.
type Contents struct {
	Events     int64 `db:"events"`
	Deliveries int64 `db:"deliveries"`
	Pending    int64 `db:"pending"` // pending deliveries
	// KeyID is the id of the encryption key of the signing secrets. A backup never has the key itself.
	KeyID string `db:"-"`
}

// Report describes a backup that was made and checked.
type Report struct {
	Database  string // absolute, with links resolved
	File      string // absolute
	Bytes     int64
	SHA256    string // in hexadecimal
	CreatedAt int64  // in milliseconds; the backup has everything that was acknowledged before
	Took      time.Duration
	Removed   []string // older backups that were deleted
	Warning   string   // what failed after the backup was made; empty if nothing did
	Contents
}

// Restored describes a backup that replaced a database.
type Restored struct {
	Database         string
	ReplacedDatabase string // the new name of the database from before; empty if there was none
	Contents
}

const dated = "20060102-150405.000"

// Name returns the default name of a backup. Sorted by name, backups are sorted by time.
func Name(database string, at time.Time) string {
	return stem(database) + "-" + at.UTC().Format(dated) + ".db"
}

// IsDated reports whether name is a default name for backups of the database.
func IsDated(name, database string) bool {
	rest, ours := strings.CutPrefix(name, stem(database)+"-")
	at, isDB := strings.CutSuffix(rest, ".db")
	_, err := time.Parse(dated, at)
	return ours && isDB && err == nil
}

func stem(database string) string { return strings.TrimSuffix(database, ".db") }

var bare = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.db$`)

// ValidName reports whether the API accepts this name of a backup: it has no directory, and is not that of another file of a database.
func ValidName(name string) bool { return bare.MatchString(name) }

// prune removes the oldest dated copies, so that keep of them are left, and returns their names. The copy that was just made
// stays, even if the clock was set back and it looks the oldest. Copies from the future go first: the clock was ahead when they were
// made, so they are older than they look. Files of other users are neither counted nor removed.
func prune(made, database string, keep int) ([]string, error) {
	if keep <= 0 {
		return nil, nil
	}
	dir := filepath.Dir(made)
	entries, err := os.ReadDir(dir) // sorted by name, and so by time
	if err != nil {
		return nil, fmt.Errorf("look for older copies: %w", err)
	}
	var dated, removed []string
	for _, e := range entries {
		if IsDated(e.Name(), database) && e.Name() != filepath.Base(made) && disk.IsOwn(filepath.Join(dir, e.Name())) {
			dated = append(dated, e.Name())
		}
	}
	later, _ := slices.BinarySearch(dated, Name(database, time.Now()))
	dated = slices.Concat(dated[later:], dated[:later])
	for _, name := range dated[:max(0, len(dated)-(keep-1))] {
		if failed := disk.Remove(filepath.Join(dir, name)); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}
