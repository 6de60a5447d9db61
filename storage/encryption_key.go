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
func (o Options) prepareKeys(ctx context.Context, start sqlite.Start) (k encryptionKeys, err error) {
	find := findKeys
	if o.findKeys != nil {
		find = o.findKeys
	}
	k, err = find(o, start)
	if isMissing := errors.Is(err, ErrKeyMissing); isMissing || errors.Is(err, ErrKey) {
		id := neededKey(ctx, o.Path)
		if isMissing && o.findKeys != nil && keyFileWith(o.Path, id) == "" {
			return k, err // rekey has a flag for that, which its command knows
		}
		err = fault.AdviseMissing(err, "%s", mendKey(o.Path, id, o.EncryptionKey != ""))
	}
	return k, err
}

// findKeys returns the configured key, otherwise the keys of the key file. It returns none if neither the database nor
// a key exists. Only a new database gets a new key file, because a later key could not open anything.
func findKeys(o Options, start sqlite.Start) (k encryptionKeys, err error) {
	if o.EncryptionKey != "" {
		key, err := parseKey(o.EncryptionKey, "encryption.key", !start.Empty)
		if err != nil {
			return k, err
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
	if start.Empty && (err == nil || errors.Is(err, ErrKey)) {
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
		err = fmt.Errorf("%w: %s is gone and encryption.key is not set", ErrKeyMissing, k.file.name)
	}
	return k, err
}

// parseKey parses a key; an empty text is no key. isInUse means that it must be the key of a database, so the error does not
// say how to make one.
func parseKey(text, name string, isInUse bool) (key seal.Key, err error) {
	if text == "" {
		return key, nil
	}
	key, err = seal.ParseKey(text)
	if err != nil && isInUse {
		what, _ := fault.Split(err)
		err = errors.New(what)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrKey, name, err)
	}
	return key, err
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
	hasKey := slices.ContainsFunc(k.keys, func(k seal.Key) bool { return k.ID() == id })
	switch {
	case errors.Is(err, ErrKeyMissing):
		err = fmt.Errorf("%w: %s needs the key %s", ErrKeyMissing, from, id)
	case err == nil && !hasKey:
		where := "encryption.key"
		if o.EncryptionKey == "" {
			where = k.file.path()
		}
		err = fmt.Errorf("%w: %s needs the key %s, and %s is the key %s", ErrKey, from, id, where, k.ids())
	}
	if errors.Is(err, ErrKey) || errors.Is(err, ErrKeyMissing) {
		err = fault.AdviseMissing(err, "%s", mendKey(o.Path, id, o.EncryptionKey != ""))
	}
	return k, err
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
	return seal.Key{}, fault.Advise(fmt.Errorf("%w: it needs the key %s, and the available key is %s", ErrKey, id, k.ids()),
		"%s", mendKey(path, id, k.file.name == ""))
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
