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

// RekeyOptions select the file and its new encryption key. OldKey and NewKey have the form of EncryptionKey and may be
// empty.
type RekeyOptions struct {
	Options
	OldKey string // decrypts too, like EncryptionKey and the key file
	NewKey string // the new key; if empty, EncryptionKey; if that is empty too, a key that Rekey creates in the key file
}

// Rekeyed is the result of Rekey.
type Rekeyed struct {
	KeyID         string   // id of the new key
	PreviousKeyID string   // id of the key before; empty if it is the same
	Secrets       int      // number of secrets that were sealed with the new key
	Unreadable    []string // ids of subscriptions with a secret that none of the keys opens; their secrets must be rotated
	Headers       int      // number of subscriptions whose own headers were sealed with the new key
	// UnreadableHeaders are the ids of subscriptions with own headers that none of the keys opens; they must be set again.
	UnreadableHeaders []string
	KeyFile           string   // path of the key file; empty if the operator configured the key
	OldKeys           []string // files to which the old keys of the key file were moved
}

// ErrNoDatabase means that the file does not exist or is empty.
var ErrNoDatabase = errors.New("there is no database")

// Rekey seals every signing secret and every own header of a subscription with another encryption key, in one transaction. If the file has an owner, it
// returns ErrInUse. It does not change a secret that none of the keys opens.
//
// Before the transaction, Rekey adds the new key to the key file. Afterwards it removes the old one. The database says
// which of them is in use. So after a crash at any time, the database opens with the key file as it is.
func Rekey(ctx context.Context, o RekeyOptions) (result Rekeyed, err error) {
	// Check this first, because the engine creates a lock file.
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
	change.file.isNew = false // Open has renamed the file
	result.KeyID = change.newKey.ID()
	if change.inFile {
		result.KeyFile = change.file.name
	}
	if s.key.ID() != change.newKey.ID() {
		result.PreviousKeyID = s.key.ID()
		if err := change.sealSecrets(ctx, s, &result); err != nil {
			return result, fmt.Errorf("nothing has changed, and the old key is still in use: seal the signing secrets with the new key: %w", err)
		}
	}
	result.OldKeys, err = change.file.keepOnly(change.newKey)
	return result, err
}

// keyChange is a change of the encryption key, with the keys that it needs.
type keyChange struct {
	RekeyOptions
	file     keyFile
	fileKeys []seal.Key // keys in the key file
	allKeys  []seal.Key // keys that may open a secret
	newKey   seal.Key
	inFile   bool // newKey must be in the key file
}

// findKeys finds the new key and all keys that may open a secret. It writes nothing.
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
	old, err1 := parseKey(c.OldKey, "the old key", true)
	configured, err2 := parseKey(o.EncryptionKey, "encryption.key", c.NewKey != "")
	newKey, err3 := parseKey(c.NewKey, "the new key", false)
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
		c.newKey, c.inFile = c.fileKeys[0], true // an interrupted Rekey or the operator put it there
	default:
		c.newKey, c.inFile = seal.NewKey(), true
	}
	return encryptionKeys{c.allKeys, c.file}, nil
}

// sealSecrets seals the canary, every signing secret and all own headers with the new key.
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
				return fault.Advise(errors.New("interrupted"), "run the command again with the same flags")
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

// rekeyBatch is how many subscriptions Rekey reads at a time.
const rekeyBatch = 200

// sealedRow is a subscription with its sealed secrets and headers.
type sealedRow struct {
	Row      int64  `db:"id"`
	ID       string `db:"public_id"`
	Deleted  bool   `db:"deleted"`
	Secret   []byte `db:"secret"`
	Previous []byte `db:"previous_secret"`
	Headers  []byte `db:"headers"`
}

func sealedRows(t *tx, after int64) (rows []sealedRow, err error) {
	err = t.List(&rows, `
		SELECT id, public_id, deleted_at IS NOT NULL AS deleted, secret, previous_secret,
		       (SELECT sealed FROM subscription_headers WHERE subscription_id = subscriptions.id) AS headers
		FROM subscriptions WHERE id > ? ORDER BY id LIMIT ?`, after, rekeyBatch)
	return rows, err
}

// sealWith seals the secrets and the headers of a subscription with the active key of ring. It does not change a secret that no key of
// the ring opens.
func (r sealedRow) sealWith(t *tx, ring *seal.Ring, result *Rekeyed) error {
	readable, err := r.seal(t, ring, r.Secret, r.ID, "UPDATE subscriptions SET secret = ? WHERE id = ?", &result.Secrets)
	if err == nil && len(r.Previous) > 0 {
		var previous bool
		previous, err = r.seal(t, ring, r.Previous, r.ID, "UPDATE subscriptions SET previous_secret = ? WHERE id = ?", &result.Secrets)
		readable = readable && previous
	}
	if !readable && !r.Deleted {
		result.Unreadable = append(result.Unreadable, r.ID)
	}
	if err != nil || len(r.Headers) == 0 {
		return err
	}
	readable, err = r.seal(t, ring, r.Headers, headersOwner(r.ID), "UPDATE subscription_headers SET sealed = ? WHERE subscription_id = ?", &result.Headers)
	if !readable {
		result.UnreadableHeaders = append(result.UnreadableHeaders, r.ID)
	}
	return err
}

// seal seals one text of a subscription again, and counts it.
func (r sealedRow) seal(t *tx, ring *seal.Ring, sealed []byte, owner, update string, count *int) (readable bool, err error) {
	plain, err := ring.Open(sealed, owner)
	if err != nil {
		return false, nil
	}
	*count++
	_, err = t.Exec(update, ring.Seal(plain, owner), r.Row)
	return true, err
}
