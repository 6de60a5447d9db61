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

// The reasons why Open refuses an encryption key. Each error is wrapped with advice on what to do.
var (
	ErrKeyMissing = errors.New("encryption key is missing")
	ErrKey        = errors.New("encryption key does not fit the database")
)

// canary is a text that every database contains sealed, with the same key as all signing secrets. It reveals a wrong
// key at the start, and not at the first delivery.
const canary = "keyhook canary"

// encryptionKeys are the keys that may fit a file. The canary of the file shows which of them does.
type encryptionKeys struct {
	keys []seal.Key
	file keyFile // the source of the keys; zero if they were configured
}

// ids lists the key ids for an error text.
func (k encryptionKeys) ids() string {
	var ids []string
	for _, key := range k.keys {
		ids = append(ids, key.ID())
	}
	return strings.Join(slices.Compact(ids), " and ")
}

// prepareKeys finds the keys that may fit the file. It writes nothing. If there are no keys yet, the caller calls
// create.
func (o Options) prepareKeys(start sqlite.Start) (encryptionKeys, error) {
	if o.findKeys != nil {
		return o.findKeys(o, start)
	}
	return findKeys(o, start)
}

// findKeys returns the configured key, otherwise the keys of the key file. It returns none if neither the database nor
// a key exists. Only a new database gets a new key file, because a later key could not open anything.
func findKeys(o Options, start sqlite.Start) (k encryptionKeys, err error) {
	if o.EncryptionKey != "" {
		key, err := seal.ParseKey(o.EncryptionKey)
		if err != nil {
			return k, fmt.Errorf("%w: encryption.key: %w", ErrKey, err)
		}
		if start.Empty && start.WasMade {
			return k, fault.Advise(fmt.Errorf("%w, but %s says that it existed", ErrLost, o.Path+disk.Lock),
				"restore a backup, or remove that file to start with an empty database")
		}
		k.keys = []seal.Key{key}
		return k, nil
	}
	k.file.name = o.Path + disk.Key
	k.keys, err = k.file.read()
	if err == nil && start.Empty {
		return k, fault.Advise(fmt.Errorf("%w, but its key file %s is there", ErrLost, k.file.name),
			"restore a backup, or move the key file away to start with an empty database")
	}
	if !errors.Is(err, os.ErrNotExist) {
		return k, err
	}
	k.file.isNew = true
	if start.Empty {
		return k, nil
	}
	if k.keys, err = k.file.read(); errors.Is(err, os.ErrNotExist) {
		return k, fault.Advise(fmt.Errorf("%w: %s is gone and encryption.key is not set", ErrKeyMissing, k.file.name),
			"put back the key file that belongs to this database, or set encryption.key")
	}
	return k, err
}

// create creates the key of a new database.
func (k *encryptionKeys) create() error {
	key := seal.NewKey()
	k.keys = []seal.Key{key}
	return k.file.write(key)
}

// findKeyOf returns the keys for a copy of a database. One of them has that id.
func findKeyOf(o Options, from, id string) (encryptionKeys, error) {
	k, err := findKeys(o, sqlite.Start{})
	if errors.Is(err, ErrKeyMissing) {
		return k, fault.Advise(fmt.Errorf("%w: %s needs the key %s", ErrKeyMissing, from, id),
			"put the key file of the copy at %s, or set encryption.key", o.Path+disk.Key)
	}
	if err != nil || slices.ContainsFunc(k.keys, func(k seal.Key) bool { return k.ID() == id }) {
		return k, err
	}
	where, mend := "encryption.key", fmt.Sprintf("set encryption.key, or put the key file at %s, as they were when the copy was made", o.Path+disk.Key)
	if o.EncryptionKey == "" {
		where = k.file.path()
		if old := k.file.oldKeyPath(id); disk.Exists(old) {
			mend = fmt.Sprintf("the key was moved to another file: run cat %s >> %s, and restore again", old, where)
		}
	}
	return k, fault.Advise(fmt.Errorf("%w: %s needs the key %s, and %s is the key %s", ErrKey, from, id, where, k.ids()),
		"%s", mend)
}

// keyFor returns the key that fits sealed, the canary of the database at path.
func (k encryptionKeys) keyFor(path string, sealed []byte) (seal.Key, error) {
	id, err := seal.KeyID(sealed)
	if err != nil {
		return seal.Key{}, fault.Advise(fmt.Errorf("%w: the database does not say which key it needs (%w)", ErrKey, err), "restore a backup")
	}
	for _, key := range k.keys {
		text, err := seal.NewRing(key).Open(sealed, canary)
		if err == nil && string(text) == canary {
			return key, nil
		}
	}
	mend := "put back the key file with that key, or set encryption.key to it"
	if k.file.name == "" {
		mend = "set encryption.key to that key, or unset it if " + path + disk.Key + " has the key"
	}
	return seal.Key{}, fault.Advise(fmt.Errorf("%w: it needs the key %s, and the available key is %s", ErrKey, id, k.ids()),
		"%s", mend)
}

// recognize returns the key that fits the database at path.
func (k encryptionKeys) recognize(ctx context.Context, path string, db *sqlx.DB) (seal.Key, error) {
	sealed, err := readCanary(ctx, db)
	if err != nil {
		return seal.Key{}, err
	}
	return k.keyFor(path, sealed)
}

// readCanary reads the sealed canary of a database.
func readCanary(ctx context.Context, db *sqlx.DB) (sealed []byte, err error) {
	if err := db.GetContext(ctx, &sealed, "SELECT value FROM instance WHERE name = 'canary'"); err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return sealed, nil
}

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
