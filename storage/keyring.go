package storage

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/seal"
)

// Why Open refuses an encryption key. Each comes wrapped in a sentence that says what to do.
var (
	ErrKeyMissing = errors.New("encryption key is missing")
	ErrKey        = errors.New("encryption key does not fit the database")
)

// canary is sealed when the file is made, so that a wrong key is noticed at the start and not at the first delivery.
const canary = "keyhook canary"

// keyFile is where the key stands that nobody configured. It gets its name only once the database that it belongs to is
// there: until then it is name + fresh. So a first start that was cut off is not taken for a database that was lost.
type keyFile struct {
	name  string
	fresh bool
}

const freshSuffix = ".new"

func (f keyFile) path() string {
	if f.fresh {
		return f.name + freshSuffix
	}
	return f.name
}

// openRing finds the key that seals signing secrets: the configured one, else the file beside the database. That file is
// made with a new database only: one made later could open nothing that is already there.
func openRing(o Options, empty bool) (*seal.Ring, keyFile, error) {
	if o.EncryptionKey != "" {
		key, err := seal.ParseKey(o.EncryptionKey)
		if err != nil {
			return nil, keyFile{}, fmt.Errorf("%w: encryption.key: %w", ErrKey, err)
		}
		return seal.NewRing(key), keyFile{}, nil
	}
	file := keyFile{name: o.Path + ".key"}
	text, err := os.ReadFile(file.path())
	if err == nil && empty {
		return nil, file, lostBesideKey(file.name)
	}
	if errors.Is(err, os.ErrNotExist) {
		file.fresh = true
		if empty {
			key := seal.NewKey()
			return seal.NewRing(key), file, createKeyFile(file.path(), key)
		}
		if text, err = os.ReadFile(file.path()); errors.Is(err, os.ErrNotExist) {
			return nil, file, fmt.Errorf("%w: %s is gone and encryption.key is not set; put back the key file that belongs to this database, or set encryption.key", ErrKeyMissing, file.name)
		}
	}
	if err != nil {
		return nil, file, disk.Explain(file.path(), err)
	}
	key, err := seal.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, file, fmt.Errorf("%w: %s: %w", ErrKey, file.path(), err)
	}
	return seal.NewRing(key), file, nil
}

func lostBesideKey(key string) error {
	return fmt.Errorf("%w, but its key file %s is there; put the database back from a backup, or move the key file away to start anew", ErrLost, key)
}

// createKeyFile writes a new key and sees it onto the disk before anything is sealed with it.
func createKeyFile(path string, key seal.Key) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return disk.Explain(path, err)
	}
	_, err = f.WriteString(key.Reveal() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close(), syncDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	return nil
}

// keep gives a fresh key file its name, now that its database is there.
func (f keyFile) keep() error {
	if !f.fresh {
		return nil
	}
	if err := errors.Join(os.Rename(f.path(), f.name), syncDir(filepath.Dir(f.name))); err != nil {
		return fmt.Errorf("name key file: %w", err)
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
	return s.fits(sealed)
}

// fits checks the encryption key with the canary that was sealed when the file was made.
func (s *Store) fits(sealed []byte) error {
	if text, err := s.ring.Open(sealed, canary); err != nil || string(text) != canary {
		return fmt.Errorf("%w: set encryption.key, or put back %s.key, as it was when the database was made (%w)", ErrKey, s.path, err)
	}
	return nil
}
