package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// RekeyOptions say which file gets which encryption key. OldKey and NewKey are texts as EncryptionKey is, and may be
// empty.
type RekeyOptions struct {
	Options
	OldKey string // opens too, beside EncryptionKey and the key file
	NewKey string // seals from now on; empty: EncryptionKey, and without that a key that is made in the key file
}

// Rekeyed is what Rekey has done.
type Rekeyed struct {
	KeyID      string   // of the key that all is sealed with now
	Before     string   // the id of the key that all was sealed with; empty where it is the same
	Secrets    int      // that were sealed with the new key
	Unreadable []string // ids of subscriptions with a secret that no key at hand opens, as before; to be rotated
	KeyFile    string   // where the key is, if it is in the key file and not in the operator's hands
	OldKeys    []string // files that hold the old keys, which stood in the key file
}

// ErrNoDatabase is returned for work on a file that is not there.
var ErrNoDatabase = errors.New("there is no database")

// Rekey seals every signing secret with another encryption key, in one transaction. The file must have no owner: ErrInUse.
// A secret that no key at hand opens is left as it is.
//
// A new key is in the key file before the transaction, beside the old one, and the old one leaves the key file after it.
// The database says which of them it is sealed with. So after a crash at any moment it opens with the key file as it is.
func Rekey(ctx context.Context, o RekeyOptions) (done Rekeyed, err error) {
	// Before the engine makes a lock file where there is nothing to lock.
	if info, err := os.Stat(o.Path); errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return done, fault.Advise(fmt.Errorf("%w at %s", ErrNoDatabase, o.Path),
			"set storage.path to the file whose key is to change")
	}
	change := &keyChange{RekeyOptions: o}
	o.findKeys = change.findKeys
	s, err := newStore(o.Options)
	if err != nil {
		return done, err
	}
	if err := s.openFile(ctx, o.Options); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	change.file.fresh = false // Open has given it its name
	done.KeyID = change.to.ID()
	if change.inFile {
		done.KeyFile = change.file.name
	}
	if s.key.ID() != change.to.ID() {
		done.Before = s.key.ID()
		if err := change.sealSecrets(ctx, s, &done); err != nil {
			return done, fmt.Errorf("seal the signing secrets with the new key: %w; nothing was changed, and the old key is still the one to start with", err)
		}
	}
	done.OldKeys, err = change.file.reduce(change.to)
	return done, err
}

// keyChange is a change of the encryption key, and the keys that it has found.
type keyChange struct {
	RekeyOptions
	file   keyFile
	stored []seal.Key // in the key file
	known  []seal.Key // all that may open a secret
	to     seal.Key
	inFile bool // to belongs in the key file
}

// findKeys finds the key that is to seal and all that may be needed to open. It writes nothing.
func (c *keyChange) findKeys(o Options, _ sqlite.Start) (encryptionKeys, error) {
	c.file = keyFile{name: o.Path + disk.Key}
	var err error
	if c.stored, err = c.file.read(); errors.Is(err, os.ErrNotExist) {
		c.file.fresh = true
		c.stored, err = c.file.read()
	}
	if errors.Is(err, os.ErrNotExist) {
		c.file.fresh, err = false, nil
	}
	if err != nil {
		return encryptionKeys{}, err
	}
	old, err1 := parseKey(c.OldKey, "the old key")
	configured, err2 := parseKey(o.EncryptionKey, "encryption.key")
	wanted, err3 := parseKey(c.NewKey, "the new key")
	if err := errors.Join(err1, err2, err3); err != nil {
		return encryptionKeys{}, err
	}
	c.known = append(slices.Clone(c.stored), old, configured, wanted)
	c.known = slices.DeleteFunc(c.known, seal.Key.IsZero)
	if len(c.known) == 0 {
		return encryptionKeys{}, fmt.Errorf("%w: %s is gone and encryption.key is not set", ErrKeyMissing, c.file.name)
	}
	switch {
	case !wanted.IsZero():
		c.to = wanted
	case !configured.IsZero():
		c.to = configured
	case len(c.stored) > 1, len(c.stored) == 1 && !old.IsZero() && old.ID() != c.stored[0].ID():
		c.to, c.inFile = c.stored[0], true // a run that was cut off has made it, or the operator
	default:
		c.to, c.inFile = seal.NewKey(), true
	}
	return encryptionKeys{c.known, c.file}, nil
}

// parseKey reads a key that may be left out.
func parseKey(text, name string) (key seal.Key, err error) {
	if text == "" {
		return key, nil
	}
	if key, err = seal.ParseKey(text); err != nil {
		return key, fmt.Errorf("%w: %s: %w", ErrKey, name, err)
	}
	return key, nil
}

// sealSecrets seals the canary and every signing secret with the new key.
func (c *keyChange) sealSecrets(ctx context.Context, s *Store, done *Rekeyed) error {
	if c.inFile {
		others := slices.DeleteFunc(slices.Clone(c.stored), func(k seal.Key) bool { return k.ID() == c.to.ID() })
		if err := c.file.write(append([]seal.Key{c.to}, others...)...); err != nil {
			return err
		}
	}
	ring := seal.NewRing(c.to, c.known...)
	return s.alone(func(t *tx) error {
		for after := int64(0); ; {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			rows, err := sealedRows(t, after)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				_, err := t.Exec("UPDATE instance SET value = ? WHERE name = 'canary'", ring.Seal([]byte(canary), canary))
				return err
			}
			for _, row := range rows {
				if err := row.sealWith(t, ring, done); err != nil {
					return err
				}
				after = row.Row
			}
		}
	})
}

// rekeyBatch is how many subscriptions Rekey has in memory at a time.
const rekeyBatch = 1000

// sealedRow is a subscription as its secrets are kept.
type sealedRow struct {
	Row      int64  `db:"id"`
	ID       string `db:"public_id"`
	Deleted  bool   `db:"deleted"`
	Secret   []byte `db:"secret"`
	Previous []byte `db:"previous_secret"`
}

func sealedRows(t *tx, after int64) (rows []sealedRow, err error) {
	err = t.List(&rows, `
		SELECT id, public_id, deleted_at IS NOT NULL AS deleted, secret, previous_secret
		FROM subscriptions WHERE id > ? ORDER BY id LIMIT ?`, after, rekeyBatch)
	return rows, err
}

// sealWith seals the secrets of a subscription with the active key of a ring. What no key of the ring opens stays as it is.
func (r sealedRow) sealWith(t *tx, ring *seal.Ring, done *Rekeyed) error {
	readable, err := r.sealSecret(t, ring, r.Secret, "UPDATE subscriptions SET secret = ? WHERE id = ?", done)
	if err == nil && len(r.Previous) > 0 {
		var previous bool
		previous, err = r.sealSecret(t, ring, r.Previous, "UPDATE subscriptions SET previous_secret = ? WHERE id = ?", done)
		readable = readable && previous
	}
	if !readable && !r.Deleted {
		done.Unreadable = append(done.Unreadable, r.ID)
	}
	return err
}

func (r sealedRow) sealSecret(t *tx, ring *seal.Ring, secret []byte, update string, done *Rekeyed) (readable bool, err error) {
	plain, err := ring.Open(secret, r.ID)
	if err != nil {
		return false, nil
	}
	done.Secrets++
	_, err = t.Exec(update, ring.Seal(plain, r.ID), r.Row)
	return true, err
}
