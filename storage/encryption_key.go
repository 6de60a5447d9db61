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
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Why Open refuses an encryption key. Each comes wrapped in a sentence that says what to do.
var (
	ErrKeyMissing = errors.New("encryption key is missing")
	ErrKey        = errors.New("encryption key does not fit the database")
)

// canary is a text that every database holds sealed. Its key is the one key that all signing secrets are sealed with. A
// wrong key is noticed at the start, and not at the first delivery.
const canary = "keyhook canary"

// encryptionKeys are the keys that a file may be sealed with. The canary of the file tells which of them it is.
type encryptionKeys struct {
	keys []seal.Key
	file keyFile // that holds them; zero where they do not come from a key file
}

// ids names the keys for a sentence.
func (k encryptionKeys) ids() string {
	var ids []string
	for _, key := range k.keys {
		ids = append(ids, key.ID())
	}
	return strings.Join(slices.Compact(ids), " and ")
}

// prepareKeys finds the keys that the file may be sealed with. It writes nothing. Where there are none yet, the caller
// makes one with create.
func (o Options) prepareKeys(start sqlite.Start) (encryptionKeys, error) {
	if o.findKeys != nil {
		return o.findKeys(o, start)
	}
	return findKeys(o, start)
}

// findKeys returns the configured key, else those of the file beside the database; none where the database and its key are
// still to be made. Only a new database gets a key file: one that is made later could open nothing.
func findKeys(o Options, start sqlite.Start) (found encryptionKeys, err error) {
	if o.EncryptionKey != "" {
		key, err := seal.ParseKey(o.EncryptionKey)
		if err != nil {
			return found, fmt.Errorf("%w: encryption.key: %w", ErrKey, err)
		}
		if start.Empty && start.WasMade {
			return found, fault.Advise(fmt.Errorf("%w, but %s says that one was made here", ErrLost, o.Path+disk.Lock),
				"put the database back from a backup, or remove that file to start anew")
		}
		found.keys = []seal.Key{key}
		return found, nil
	}
	found.file.name = o.Path + disk.Key
	found.keys, err = found.file.read()
	if err == nil && start.Empty {
		return found, fault.Advise(fmt.Errorf("%w, but its key file %s is there", ErrLost, found.file.name),
			"put the database back from a backup, or move the key file away to start anew")
	}
	if !errors.Is(err, os.ErrNotExist) {
		return found, err
	}
	found.file.fresh = true
	if start.Empty {
		return found, nil
	}
	if found.keys, err = found.file.read(); errors.Is(err, os.ErrNotExist) {
		return found, fault.Advise(fmt.Errorf("%w: %s is gone and encryption.key is not set", ErrKeyMissing, found.file.name),
			"put back the key file that belongs to this database, or set encryption.key")
	}
	return found, err
}

// create makes a key for a database that is still to be made.
func (k *encryptionKeys) create() error {
	key := seal.NewKey()
	k.keys = []seal.Key{key}
	return k.file.write(key)
}

// findKeyOf returns the key that a copy of a database is sealed with: the one of that id.
func findKeyOf(o Options, from, id string) (encryptionKeys, error) {
	found, err := findKeys(o, sqlite.Start{})
	if errors.Is(err, ErrKeyMissing) {
		return found, fault.Advise(fmt.Errorf("%w: %s needs the key %s", ErrKeyMissing, from, id),
			"put the key file that was kept apart from it at %s, or set encryption.key", o.Path+disk.Key)
	}
	if err != nil || slices.ContainsFunc(found.keys, func(k seal.Key) bool { return k.ID() == id }) {
		return found, err
	}
	where, mend := "encryption.key", fmt.Sprintf("set encryption.key, or put the key file at %s, as they were when the copy was made", o.Path+disk.Key)
	if o.EncryptionKey == "" {
		where = found.file.path()
		if old := found.file.oldKey(id); disk.Exists(old) {
			mend = fmt.Sprintf("rekey moved that key to another file: run cat %s >> %s, and restore again", old, where)
		}
	}
	return found, fault.Advise(fmt.Errorf("%w: %s needs the key %s, and %s is the key %s", ErrKey, from, id, where, found.ids()),
		"%s", mend)
}

// choose returns the key that sealed is sealed with, which is the canary of the database at path.
func (k encryptionKeys) choose(path string, sealed []byte) (seal.Key, error) {
	id, err := seal.KeyID(sealed)
	if err != nil {
		return seal.Key{}, fault.Advise(fmt.Errorf("%w: the database does not say which key it is sealed with (%w)", ErrKey, err), "restore a backup")
	}
	for _, key := range k.keys {
		text, err := seal.NewRing(key).Open(sealed, canary)
		if err == nil && string(text) == canary {
			return key, nil
		}
	}
	mend := "put back the key file that holds that one, or set encryption.key to it"
	if k.file.name == "" {
		mend = "set encryption.key to that one, or, where " + path + disk.Key + " holds it, leave encryption.key out"
	}
	return seal.Key{}, fault.Advise(fmt.Errorf("%w, which is sealed with the key %s, while at hand is %s", ErrKey, id, k.ids()),
		"%s", mend)
}

// recognize returns the key that the database at path is sealed with.
func (k encryptionKeys) recognize(ctx context.Context, path string, db *sqlx.DB) (seal.Key, error) {
	sealed, err := readCanary(ctx, db)
	if err != nil {
		return seal.Key{}, err
	}
	return k.choose(path, sealed)
}

// readCanary reads the sealed canary of a database.
func readCanary(ctx context.Context, db *sqlx.DB) (sealed []byte, err error) {
	if err := db.GetContext(ctx, &sealed, "SELECT value FROM instance WHERE name = 'canary'"); err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return sealed, nil
}

// instance reads what the file knows of itself under a name; nil where there is nothing.
func instance(t *tx, name string) (value []byte, err error) {
	err = t.Get(&value, "SELECT value FROM instance WHERE name = ?", name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return value, nil
}
