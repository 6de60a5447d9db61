package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

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

// openRing finds the keys that signing secrets are sealed with: the configured one, else those of the file beside the
// database. That file is made with a new database only: one made later could open nothing that is already there.
func openRing(o Options, empty bool) (*seal.Ring, keyFile, error) {
	if o.rekeying != nil {
		return o.rekeying.openRing(o, empty)
	}
	if o.ring != nil {
		return o.ring, keyFile{}, nil
	}
	if o.EncryptionKey != "" {
		key, err := configuredKey(o)
		if err != nil {
			return nil, keyFile{}, err
		}
		return seal.NewRing(key), keyFile{}, nil
	}
	file := keyFile{name: o.Path + disk.Key}
	keys, err := file.read()
	if err == nil && empty {
		return nil, file, lostBesideKey(file.name)
	}
	if errors.Is(err, os.ErrNotExist) {
		file.fresh = true
		if empty {
			key := seal.NewKey()
			return seal.NewRing(key), file, file.write(key)
		}
		if keys, err = file.read(); errors.Is(err, os.ErrNotExist) {
			return nil, file, fmt.Errorf("%w: %s is gone and encryption.key is not set; put back the key file that belongs to this database, or set encryption.key", ErrKeyMissing, file.name)
		}
	}
	if err != nil {
		return nil, file, err
	}
	return seal.NewRing(keys[0], keys[1:]...), file, nil
}

// ringFor returns the keys at hand, among which must be those of these ids.
func ringFor(o Options, from string, ids []string) (*seal.Ring, error) {
	needed := "the key " + strings.Join(ids, " and the key ")
	ring, file, err := openRing(o, false)
	if errors.Is(err, ErrKeyMissing) {
		return nil, fmt.Errorf("%w: %s needs %s; put the key file that was kept apart from it at %s, or set encryption.key",
			ErrKeyMissing, from, needed, o.Path+".key")
	}
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if slices.Contains(ring.IDs(), id) {
			continue
		}
		where, mend := "encryption.key", fmt.Sprintf("set encryption.key, or put the key file at %s, as they were when the copy was made", o.Path+".key")
		if o.EncryptionKey == "" {
			where = file.path()
			if aside := file.aside(id); exists(aside) {
				mend = fmt.Sprintf("that key was set aside by rekey: run cat %s >> %s, and the two are used together", aside, file.path())
			}
		}
		return nil, fmt.Errorf("%w: %s needs %s, and %s is the key %s; %s", ErrKey, from, needed, where, strings.Join(ring.IDs(), " and "), mend)
	}
	return ring, nil
}

func lostBesideKey(key string) error {
	return fmt.Errorf("%w, but its key file %s is there; put the database back from a backup, or move the key file away to start anew", ErrLost, key)
}

// configuredKey is the key of the settings.
func configuredKey(o Options) (seal.Key, error) {
	key, err := seal.ParseKey(o.EncryptionKey)
	if err != nil {
		return key, fmt.Errorf("%w: encryption.key: %w", ErrKey, err)
	}
	return key, nil
}

// recognize reads what the file knows of itself and checks that the encryption key is its own, and that no other one is
// needed too. file is where the key came from.
func (s *Store) recognize(file keyFile) error {
	if err := s.tx.get(&s.ids.salt, "SELECT value FROM instance WHERE name = 'salt'"); err != nil {
		return fmt.Errorf("read instance: %w", err)
	}
	sealed, err := s.instance("canary")
	if err != nil {
		return err
	}
	needed, err := s.changing()
	if err != nil {
		return err
	}
	return s.fits(sealed, needed, file)
}

// goOnChanging has the file say that several keys are needed, where the one that seals from now on is not the one that has
// sealed so far: a change of the key was interrupted, or the file was restored from before one.
func (s *Store) goOnChanging() error {
	if s.rekeying != nil {
		return nil
	}
	before, err := s.sealedBefore()
	if err != nil || len(before) == 0 {
		return err
	}
	s.log.Warn("a change of the encryption key is not finished; stop this server and run keyhook rekey to finish it",
		"keys", append([]string{s.ring.ActiveID()}, before...))
	return s.beginChange(before)
}

// beginChange notes, before anything is sealed with another key, which ones are needed until everything is.
func (s *Store) beginChange(before []string) error {
	needed := strings.Join(append([]string{s.ring.ActiveID()}, before...), " ")
	if err := s.alone(func(t *tx) error {
		_, err := t.exec("INSERT INTO instance (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2", changingKeys, []byte(needed))
		return err
	}); err != nil {
		return fmt.Errorf("begin the change of the key: %w", err)
	}
	return nil
}

// fits checks the keys at hand: with the canary that was sealed when the file was made, or with the last change of the key,
// and with the ids of those that are needed while one takes the place of another. Then some secrets are sealed with this
// one, and some with that one.
func (s *Store) fits(sealed []byte, needed []string, file keyFile) error {
	for _, id := range needed {
		if !slices.Contains(s.ring.IDs(), id) {
			return fmt.Errorf("%w: a change from one key to another was interrupted, and the keys %s are both needed until it is finished; at hand is %s: run keyhook rekey again, as it was called before",
				ErrKey, strings.Join(needed, " and "), strings.Join(s.ring.IDs(), " and "))
		}
	}
	text, err := s.ring.Open(sealed, canary)
	var other *seal.UnknownKeyError
	switch {
	case errors.As(err, &other):
		mend := "put back the key file that holds that one, or set encryption.key to it"
		if file.name == "" {
			mend = "set encryption.key to that one, or, where " + s.path + ".key holds it, leave encryption.key out"
		}
		return fmt.Errorf("%w, which is sealed with the key %s, while at hand is %s; %s", ErrKey, other.ID, strings.Join(s.ring.IDs(), " and "), mend)
	case err != nil || string(text) != canary:
		return fmt.Errorf("%w: set encryption.key, or put back %s.key, as it was when the database was made (%w)", ErrKey, s.path, err)
	}
	return nil
}

// sealedWith is what a database says of the keys that it needs.
type sealedWith struct {
	Canary []byte `db:"canary"`
	Change []byte `db:"change"`
}

// readSealed reads it from a database that no store has open.
func readSealed(ctx context.Context, db *sqlx.DB) (sealed sealedWith, err error) {
	if err := db.GetContext(ctx, &sealed, `
		SELECT (SELECT value FROM instance WHERE name = 'canary') AS canary, (SELECT value FROM instance WHERE name = ?) AS change`,
		changingKeys); err != nil {
		return sealed, fmt.Errorf("read instance: %w", err)
	}
	return sealed, nil
}

// changing returns the ids of the keys that are needed while one takes the place of another; none otherwise.
func (s sealedWith) changing() []string { return strings.Fields(string(s.Change)) }

// changing returns the ids of the keys that are needed while one takes the place of another; none otherwise.
func (s *Store) changing() ([]string, error) {
	ids, err := s.instance(changingKeys)
	return strings.Fields(string(ids)), err
}

// changingKeys names the row of what changing reads. It stands there from before the first secret is sealed anew until
// the last one is.
const changingKeys = "rekey"

// instance reads what the file knows of itself under a name; nil where there is nothing.
func (s *Store) instance(name string) (value []byte, err error) {
	err = s.tx.get(&value, "SELECT value FROM instance WHERE name = ?", name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return value, nil
}
