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
	KeyID         string   // of the key that all is sealed with now
	PreviousKeyID string   // the id of the key that all was sealed with; empty where it is the same
	Secrets       int      // that were sealed with the new key
	Unreadable    []string // ids of subscriptions with a secret that no key at hand opens, as before; to be rotated
	KeyFile       string   // where the key is, if it is in the key file and not in the operator's hands
	OldKeys       []string // files that hold the old keys, which stood in the key file
}

// ErrNoDatabase is returned for work on a file that is not there.
var ErrNoDatabase = errors.New("there is no database")

// Rekey seals every signing secret with another encryption key, in one transaction. The file must have no owner: ErrInUse.
// A secret that no key at hand opens is left as it is.
//
// A new key is in the key file before the transaction, beside the old one, and the old one leaves the key file after it.
// The database says which of them it is sealed with. So after a crash at any moment it opens with the key file as it is.
func Rekey(ctx context.Context, o RekeyOptions) (result Rekeyed, err error) {
	// Before the engine makes a lock file where there is nothing to lock.
	if info, err := os.Stat(o.Path); errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return result, fault.Advise(fmt.Errorf("%w at %s", ErrNoDatabase, o.Path),
			"set storage.path to the file whose key is to change")
	}
	change := &keyChange{RekeyOptions: o}
	o.findKeys = change.findKeys
	s, err := newStore(o.Options)
	if err != nil {
		return result, err
	}
	if err := s.openFile(ctx, o.Options); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	change.file.isNew = false // Open has given it its name
	result.KeyID = change.newKey.ID()
	if change.inFile {
		result.KeyFile = change.file.name
	}
	if s.key.ID() != change.newKey.ID() {
		result.PreviousKeyID = s.key.ID()
		if err := change.sealSecrets(ctx, s, &result); err != nil {
			return result, fmt.Errorf("seal the signing secrets with the new key: %w; nothing was changed, and the old key is still the one to start with", err)
		}
	}
	result.OldKeys, err = change.file.keepOnly(change.newKey)
	return result, err
}

// keyChange is a change of the encryption key, and the keys that it has found.
type keyChange struct {
	RekeyOptions
	file     keyFile
	fileKeys []seal.Key // in the key file
	allKeys  []seal.Key // all that may open a secret
	newKey   seal.Key
	inFile   bool // to belongs in the key file
}

// findKeys finds the key that is to seal and all that may be needed to open. It writes nothing.
func (c *keyChange) findKeys(o Options, _ sqlite.Start) (encryptionKeys, error) {
	c.file = keyFile{name: o.Path + disk.Key}
	var err error
	if c.fileKeys, err = c.file.read(); errors.Is(err, os.ErrNotExist) {
		c.file.isNew = true
		c.fileKeys, err = c.file.read()
	}
	if errors.Is(err, os.ErrNotExist) {
		c.file.isNew, err = false, nil
	}
	if err != nil {
		return encryptionKeys{}, err
	}
	old, err1 := parseKey(c.OldKey, "the old key")
	configured, err2 := parseKey(o.EncryptionKey, "encryption.key")
	newKey, err3 := parseKey(c.NewKey, "the new key")
	if err := errors.Join(err1, err2, err3); err != nil {
		return encryptionKeys{}, err
	}
	c.allKeys = append(slices.Clone(c.fileKeys), old, configured, newKey)
	c.allKeys = slices.DeleteFunc(c.allKeys, seal.Key.IsZero)
	if len(c.allKeys) == 0 {
		return encryptionKeys{}, fmt.Errorf("%w: %s is gone and encryption.key is not set", ErrKeyMissing, c.file.name)
	}
	switch {
	case !newKey.IsZero():
		c.newKey = newKey
	case !configured.IsZero():
		c.newKey = configured
	case len(c.fileKeys) > 1, len(c.fileKeys) == 1 && !old.IsZero() && old.ID() != c.fileKeys[0].ID():
		c.newKey, c.inFile = c.fileKeys[0], true // a run that was cut off has made it, or the operator
	default:
		c.newKey, c.inFile = seal.NewKey(), true
	}
	return encryptionKeys{c.allKeys, c.file}, nil
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
func (c *keyChange) sealSecrets(ctx context.Context, s *Store, result *Rekeyed) error {
	if c.inFile {
		others := slices.DeleteFunc(slices.Clone(c.fileKeys), func(k seal.Key) bool { return k.ID() == c.newKey.ID() })
		if err := c.file.write(append([]seal.Key{c.newKey}, others...)...); err != nil {
			return err
		}
	}
	ring := seal.NewRing(c.newKey, c.allKeys...)
	return s.changeBeforeRun(func(t *tx) error {
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
				if err := row.sealWith(t, ring, result); err != nil {
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
func (r sealedRow) sealWith(t *tx, ring *seal.Ring, result *Rekeyed) error {
	readable, err := r.sealSecret(t, ring, r.Secret, "UPDATE subscriptions SET secret = ? WHERE id = ?", result)
	if err == nil && len(r.Previous) > 0 {
		var previous bool
		previous, err = r.sealSecret(t, ring, r.Previous, "UPDATE subscriptions SET previous_secret = ? WHERE id = ?", result)
		readable = readable && previous
	}
	if !readable && !r.Deleted {
		result.Unreadable = append(result.Unreadable, r.ID)
	}
	return err
}

func (r sealedRow) sealSecret(t *tx, ring *seal.Ring, secret []byte, update string, result *Rekeyed) (readable bool, err error) {
	plain, err := ring.Open(secret, r.ID)
	if err != nil {
		return false, nil
	}
	result.Secrets++
	_, err = t.Exec(update, ring.Seal(plain, r.ID), r.Row)
	return true, err
}
