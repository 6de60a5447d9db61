// Package instance owns the table of single values, such as the salt of the ids. Each has a name. The package does not know what they mean.
package instance

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// Value returns the value of a name, or nil if there is none or it is empty.
func Value(from sqlite.Reader, name string) (value []byte, err error) {
	err = from.Get(&value, "SELECT value FROM instance WHERE name = ?", name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}

// Set writes the value of a name.
func Set(t *sqlite.Tx, name string, value []byte) error {
	if _, err := t.Exec("INSERT OR REPLACE INTO instance (name, value) VALUES (?, ?)", name, value); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
