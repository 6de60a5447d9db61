// Package encryption owns the encryption key of a database: where the key comes from, whether it fits the database, and how
// another key replaces it. It knows what is sealed in the database, and nothing else about the tables.
package encryption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The reasons why there is no key for a database. Each error is wrapped with advice on what to do.
var (
	ErrKeyMissing = errors.New("encryption key is missing")
	ErrKey        = errors.New("encryption key does not fit the database")
	ErrLost       = errors.New("database is empty or gone") // but its key file or its lock file exists
)

// canary is a text that every database contains sealed, with the same key as all signing secrets. It reveals a wrong
// key at the start, and not at the first delivery.
const canary = "keyhook canary"

// Canary returns the canary of a new database, sealed with the active key of ring.
func Canary(ring *seal.Ring) []byte { return ring.Seal([]byte(canary), canary) }

// Keys are the keys that may fit a database. Its canary shows which of them does.
type Keys struct {
	keys []seal.Key
	file keyFile // the source of the keys; zero if they come from elsewhere
}

// ids lists the key ids for an error text.
func (k Keys) ids() string {
	var ids []string
	for _, key := range k.keys {
		ids = append(ids, key.ID())
	}
	return strings.Join(slices.Compact(ids), " and ")
}

// Source says where the key of a database is.
type Source struct {
	Path string // of the database
	Key  string // the setting encryption.key; if empty, the key is in the key file Path + ".key"
}

// Find finds the keys that may fit the database, and writes nothing. It returns no keys if neither the database nor a key exists.
//
// It returns ErrKey, ErrKeyMissing or ErrLost, with advice on what to do.
func (s Source) Find(start sqlite.Start) (Keys, error) {
	k, err := s.read(start)
	return k, adviseKey(err, s.Path, "", s.Key != "")
}

// FindOrCreate is Find, but a new database without a key gets one, in a new key file.
func (s Source) FindOrCreate(start sqlite.Start) (Keys, error) {
	k, err := s.Find(start)
	if err == nil && len(k.keys) == 0 {
		k.keys = []seal.Key{seal.NewKey()}
		err = k.file.write(k.keys...)
	}
	return k, err
}

// ForCopy returns the keys for a copy of a database at the path from. One of them has that id. They are not in a key file of the copy.
func (s Source) ForCopy(from, id string) (Keys, error) {
	k, err := s.read(sqlite.Start{})
	switch {
	case errors.Is(err, ErrKeyMissing):
		err = fmt.Errorf("%w: %s needs the key %s", ErrKeyMissing, from, id)
	case err == nil && !hasKey(k.keys, id):
		where := "encryption.key"
		if s.Key == "" {
			where = k.file.path()
		}
		err = fmt.Errorf("%w: %s needs the key %s, and %s is the key %s", ErrKey, from, id, where, k.ids())
	}
	return Keys{keys: k.keys}, adviseKey(err, s.Path, id, s.Key != "")
}

// adviseKey adds to an error of the key how to get the key of that id for the database at path. The id is empty if it is unknown. isSet
// means that encryption.key is set. A new key cannot open the secrets of a database, so no mend advises to make one.
func adviseKey(err error, path, id string, isSet bool) error {
	if !errors.Is(err, ErrKey) && !errors.Is(err, ErrKeyMissing) {
		return err
	}
	which := "the key that its signing secrets are encrypted with"
	if id != "" {
		which = "the key " + id
	}
	file, kept := path+disk.Key, path+disk.Key+"."+id // see keepOnly
	_, inFile, _ := findKeyFile(path)                 // another error matters more
	switch {
	case isSet && hasKey(inFile, id):
		return fault.AdviseMissing(err, "remove encryption.key, because %s has %s", file, which)
	case isSet:
		return fault.AdviseMissing(err, "set encryption.key to %s, from your copy; a new key cannot open the signing secrets", which)
	case disk.Exists(kept) && disk.Exists(file): // a Change has moved it there; the key in the file must stay
		return fault.AdviseMissing(err, "add that key, which was kept when it was replaced: cat %s >> %s", kept, file)
	case len(inFile) > 0:
		return fault.AdviseMissing(err, "append %s from your copy to %s, or set encryption.key to it; the key that is there must stay, because other backups need it", which, file)
	}
	return fault.AdviseMissing(err, "restore %s with %s from your copy, or set encryption.key to it; a new key cannot open the signing secrets", file, which)
}

// read returns the configured key, otherwise the keys of the key file. It returns none if neither the database nor
// a key exists. Only a new database gets a new key file, because a later key could not open anything.
func (s Source) read(start sqlite.Start) (k Keys, err error) {
	if s.Key != "" {
		key, err := parseKey(s.Key, "encryption.key", !start.Empty)
		if err != nil {
			return k, err
		}
		if start.Empty && start.WasMade {
			return k, fault.Advise(fmt.Errorf("%w, but %s says that it existed", ErrLost, s.Path+disk.Lock),
				"put the database and its -wal file back, or restore a backup; to start with an empty database, remove that file")
		}
		k.keys = []seal.Key{key}
		return k, nil
	}
	k.file, k.keys, err = findKeyFile(s.Path)
	switch {
	case start.Empty && k.file.isNew: // a key in it is of a first start that was interrupted
		return Keys{file: k.file}, nil
	case start.Empty && (err == nil || errors.Is(err, ErrKey)):
		return k, fault.Advise(fmt.Errorf("%w, but its key file %s is there", ErrLost, k.file.name),
			"put the database and its -wal file back, or restore a backup; to start with an empty database, move the key file away")
	case errors.Is(err, os.ErrNotExist):
		err = missingKey(k.file)
	}
	return k, err
}

func missingKey(file keyFile) error {
	return fmt.Errorf("%w: %s is gone and encryption.key is not set", ErrKeyMissing, file.name)
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

// First returns the key of a new database.
func (k Keys) First() seal.Key { return k.keys[0] }

// Keep gives a new key file its final name, after the database exists.
func (k Keys) Keep() error { return k.file.finalize() }

// Recognize returns the key that fits the database at path: it opens the canary. It returns ErrKey if none does.
func (k Keys) Recognize(ctx context.Context, path string, db *sqlx.DB) (seal.Key, error) {
	sealed, err := readCanary(ctx, db)
	if err != nil {
		return seal.Key{}, err
	}
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
	return seal.Key{}, adviseKey(fmt.Errorf("%w: it needs the key %s, and the available key is %s", ErrKey, id, k.ids()), path, id, k.file.name == "")
}

func readCanary(ctx context.Context, db *sqlx.DB) (sealed []byte, err error) {
	if err := db.GetContext(ctx, &sealed, "SELECT value FROM instance WHERE name = 'canary'"); err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return sealed, nil
}

// KeyID returns the id of the key that a database needs.
func KeyID(ctx context.Context, db *sqlx.DB) (string, error) {
	sealed, err := readCanary(ctx, db)
	if err != nil {
		return "", err
	}
	return seal.KeyID(sealed)
}

// headersOwner is the associated data of sealed headers: the subscription, and that the text is its headers. So nobody who can
// write the file can make a header out of a signing secret.
func headersOwner(subscription string) string { return subscription + ".headers" }

// SealHeaders seals the values of the own headers of a subscription.
func SealHeaders(ring *seal.Ring, subscription string, headers []webhook.Header) ([]byte, error) {
	values := make([]string, len(headers))
	for i, h := range headers {
		values[i] = h.Value.Reveal()
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	return ring.Seal(text, headersOwner(subscription)), nil
}

// SealedHeaders are the own headers of a subscription as they are stored.
type SealedHeaders struct {
	Names  webhook.HeaderNames `db:"header_names"`
	Sealed []byte              `db:"headers"` // empty: the subscription has none
}

// Open returns the headers of a subscription.
func (h SealedHeaders) Open(ring *seal.Ring, subscription string) ([]webhook.Header, error) {
	if len(h.Sealed) == 0 {
		return nil, nil
	}
	text, err := ring.Open(h.Sealed, headersOwner(subscription))
	if err != nil {
		return nil, err
	}
	var values []string
	if err := json.Unmarshal(text, &values); err != nil || len(values) != len(h.Names) {
		return nil, fmt.Errorf("%w: %d values for %d headers", seal.ErrDamaged, len(values), len(h.Names))
	}
	headers := make([]webhook.Header, len(values))
	for i, value := range values {
		headers[i] = webhook.Header{Name: h.Names[i], Value: redact.New(value)}
	}
	return headers, nil
}
