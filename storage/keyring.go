package storage

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/keyhook/keyhook/storage/seal"
)

// Why Open refuses an encryption key. Each comes wrapped in a sentence that says what to do.
var (
	ErrKeyMissing = errors.New("encryption key is missing")
	ErrKey        = errors.New("encryption key does not fit the database")
)

// canary is sealed when the file is made, so that a wrong key is noticed at the start and not at the first delivery.
const canary = "keyhook canary"

// openRing finds the key that seals signing secrets: the configured one, else the file beside the database. That file is
// made with a new database only: one made later could open nothing that is already there.
func openRing(o Options, fresh bool) (*seal.Ring, error) {
	if o.EncryptionKey != "" {
		key, err := seal.ParseKey(o.EncryptionKey)
		if err != nil {
			return nil, fmt.Errorf("%w: encryption.key: %w", ErrKey, err)
		}
		return seal.NewRing(key), nil
	}
	name := o.Path + ".key"
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, os.ErrNotExist) && fresh:
		key := seal.NewKey()
		return seal.NewRing(key), createKeyFile(name, key)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: %s is gone and encryption.key is not set; put back the key file that belongs to this database, or set encryption.key", ErrKeyMissing, name)
	case err != nil:
		return nil, fmt.Errorf("read key file: %w", explain(err))
	case fresh:
		return nil, fmt.Errorf("%w: the database is empty or gone, but its key file %s is there; put the database back from a backup, or move the key file away to start anew", ErrKey, name)
	}
	key, err := seal.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKey, name, err)
	}
	return seal.NewRing(key), nil
}

// createKeyFile writes a new key and sees it onto the disk before anything is sealed with it.
func createKeyFile(name string, key seal.Key) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create key file: %w", explain(err))
	}
	_, err = f.WriteString(key.Reveal() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close(), syncDir(filepath.Dir(name))); err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	return nil
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// recognize reads what the file knows of itself and checks that the encryption key is its own.
func (s *Store) recognize() error {
	var sealed []byte
	if err := s.tx.get(&s.ids.salt, "SELECT value FROM instance WHERE name = 'salt'"); err != nil {
		return fmt.Errorf("read instance: %w", err)
	}
	err := s.tx.get(&sealed, "SELECT value FROM instance WHERE name = 'canary'")
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read instance: %w", err)
	}
	if text, err := s.ring.Open(sealed, canary); err != nil || string(text) != canary {
		return fmt.Errorf("%w: set encryption.key, or put back %s.key, as it was when the database was made (%w)", ErrKey, s.path, err)
	}
	return nil
}
