package storage

import (
	"database/sql"
	"errors"
	"fmt"
)

// instanceValue returns the value of a row of table instance, or nil if there is none.
func instanceValue(t *tx, name string) (value []byte, err error) {
	err = t.Get(&value, "SELECT value FROM instance WHERE name = ?", name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return value, nil
}

// setInstanceValue writes a row of table instance.
func setInstanceValue(t *tx, name string, value []byte) error {
	if _, err := t.Exec("INSERT OR REPLACE INTO instance (name, value) VALUES (?, ?)", name, value); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
