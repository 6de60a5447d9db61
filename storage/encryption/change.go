package encryption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Change replaces the encryption key of a database. Its keys, and that of the source, may be empty.
//
// First, Find finds the keys that may fit the database. Then, Apply changes the open database. Before its transaction, it adds the
// new key to the key file. Afterwards it removes the old one. The database says which of them is in use. So after a crash at any
// time, the database opens with the key file as it is.
type Change struct {
	Old string // decrypts too, like the keys of the source and the key file
	New string // the new key; if empty, that of the source; if that is empty too, a key that Change creates in the key file

	file     keyFile
	fileKeys []seal.Key // keys in the key file
	allKeys  []seal.Key // keys that may open a secret
	newKey   seal.Key
	inFile   bool // newKey must be in the key file
}

// Changed is the result of a Change.
type Changed struct {
	KeyID         string   // id of the new key
	PreviousKeyID string   // id of the key before; empty if it is the same
	Secrets       int      // number of secrets that were sealed with the new key
	Headers       int      // number of subscriptions whose own headers were sealed with the new key
	KeyFile       string   // path of the key file; empty if the operator configured the key
	OldKeys       []string // files to which the old keys of the key file were moved
}

// Find finds the new key, and all keys that may open a secret. It writes nothing. The caller advises how to give a missing key.
func (c *Change) Find(s Source, start sqlite.Start) (Keys, error) {
	if start.Empty {
		_, err := s.Find(start) // says what is lost
		return Keys{}, cmp.Or(err, fault.Advise(fmt.Errorf("%w: %s has no tables", ErrLost, s.Path), "put the database and its -wal file back, or restore a backup"))
	}
	k, err := c.find(s)
	if errors.Is(err, ErrKeyMissing) {
		return k, err
	}
	return k, adviseKey(err, s.Path, "", s.Key != "")
}

func (c *Change) find(s Source) (_ Keys, err error) {
	c.file, c.fileKeys, err = findKeyFile(s.Path)
	if errors.Is(err, os.ErrNotExist) {
		c.file.isNew, err = false, nil
	}
	if err != nil {
		return Keys{}, err
	}
	old, err1 := parseKey(c.Old, "the old key", true)
	configured, err2 := parseKey(s.Key, "encryption.key", c.New != "")
	newKey, err3 := parseKey(c.New, "the new key", false)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Keys{}, err
	}
	c.allKeys = append(slices.Clone(c.fileKeys), old, configured, newKey)
	c.allKeys = slices.DeleteFunc(c.allKeys, seal.Key.IsZero)
	if len(c.allKeys) == 0 {
		return Keys{}, missingKey(c.file)
	}
	switch {
	case !newKey.IsZero():
		c.newKey = newKey
	case !configured.IsZero():
		c.newKey = configured
	case len(c.fileKeys) > 1, len(c.fileKeys) == 1 && !old.IsZero() && old.ID() != c.fileKeys[0].ID():
		c.newKey, c.inFile = c.fileKeys[0], true // an interrupted Change or the operator put it there
	default:
		c.newKey, c.inFile = seal.NewKey(), true
	}
	return Keys{c.allKeys, c.file}, nil
}

// Apply seals the secrets and headers of all subscriptions with the new key, in one transaction. The database has the key current,
// which Find's keys recognized. Apply does not change a secret that none of the keys opens.
func (c *Change) Apply(ctx context.Context, file *sqlite.File, current seal.Key) (result Changed, err error) {
	c.file.isNew = false // the open database has named the key file
	result.KeyID = c.newKey.ID()
	if c.inFile {
		result.KeyFile = c.file.name
	}
	if current.ID() != c.newKey.ID() {
		result.PreviousKeyID = current.ID()
		if err := c.sealSecrets(ctx, file, &result); err != nil {
			return result, fmt.Errorf("nothing has changed, and the old key is still in use: seal the signing secrets with the new key: %w", err)
		}
	}
	result.OldKeys, err = c.file.keepOnly(c.newKey)
	return result, err
}

// sealSecrets seals the canary, every signing secret and all own headers with the new key.
func (c *Change) sealSecrets(ctx context.Context, file *sqlite.File, result *Changed) error {
	if c.inFile {
		others := slices.DeleteFunc(slices.Clone(c.fileKeys), func(k seal.Key) bool { return k.ID() == c.newKey.ID() })
		if err := c.file.write(append([]seal.Key{c.newKey}, others...)...); err != nil {
			return err
		}
	}
	ring := seal.NewRing(c.newKey, c.allKeys...)
	return file.Alone(func(t *sqlite.Tx) error {
		for after := int64(0); ; {
			if ctx.Err() != nil {
				return fault.Advise(errors.New("interrupted"), "run the command again with the same flags")
			}
			rows, err := sealedRows(t, after)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return t.Exec("UPDATE instance SET value = ? WHERE name = 'canary'", Canary(ring))
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

// changeBatch is how many subscriptions a Change reads at a time.
const changeBatch = 200

// sealedRow is a subscription with its sealed secrets and headers.
type sealedRow struct {
	Row      int64  `db:"id"`
	ID       string `db:"public_id"`
	Secret   []byte `db:"secret"`
	Previous []byte `db:"previous_secret"`
	Headers  []byte `db:"headers"`
}

func sealedRows(t *sqlite.Tx, after int64) ([]sealedRow, error) {
	return sqlite.All[sealedRow](t, `
		SELECT id, public_id, secret, previous_secret,
		       (SELECT sealed FROM subscription_headers WHERE subscription_id = subscriptions.id) AS headers
		FROM subscriptions WHERE id > ? ORDER BY id LIMIT ?`, after, changeBatch)
}

// sealWith seals the secrets and the headers of a subscription with the active key of ring. What no key of the ring opens stays as it
// is: its subscription was blocked before, and says so.
func (r sealedRow) sealWith(t *sqlite.Tx, ring *seal.Ring, result *Changed) error {
	again := func(sealed []byte, owner, update string, count *int) error {
		plain, err := ring.Open(sealed, owner)
		if err != nil {
			return nil
		}
		*count++
		return t.Exec(update, ring.Seal(plain, owner), r.Row)
	}
	return errors.Join(
		again(r.Secret, r.ID, "UPDATE subscriptions SET secret = ? WHERE id = ?", &result.Secrets),
		again(r.Previous, r.ID, "UPDATE subscriptions SET previous_secret = ? WHERE id = ?", &result.Secrets),
		again(r.Headers, headersOwner(r.ID), "UPDATE subscription_headers SET sealed = ? WHERE subscription_id = ?", &result.Headers))
}
