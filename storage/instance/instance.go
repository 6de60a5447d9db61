// Package instance owns the table of single values, such as the salt of the ids. Each has a name. The package does not know what they mean.
package instance

import (
	"database/sql"
	"encoding/json"
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
	if err := t.Exec("INSERT OR REPLACE INTO instance (name, value) VALUES (?, ?)", name, value); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Load reads the value of a name as JSON. If there is none, it leaves v as it is, and found is false.
func Load(from sqlite.Reader, name string, v any) (found bool, err error) {
	text, err := Value(from, name)
	if err != nil || text == nil {
		return false, err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}

// Save writes the value of a name as JSON.
func Save(t *sqlite.Tx, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return Set(t, name, text)
}
