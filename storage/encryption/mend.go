package encryption

import (
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// A database needs the key that sealed its secrets. A new key cannot open them. So each mend here names that key and the file
// that has it, and none advises to make a key.

// keyFileWith returns the file beside the database at path that has the key of that id: the key file, a file to which a Change
// moved an old key, or a copy with a similar name. It returns "" if there is none.
func keyFileWith(path, id string) string {
	for _, name := range disk.KeyFiles(path) { // sorted, so the key file itself comes first
		keys, err := (keyFile{name: name}).read()
		if err == nil && slices.ContainsFunc(keys, func(k seal.Key) bool { return k.ID() == id }) {
			return name
		}
	}
	return ""
}

// mendKey says how to get the key of that id for the database at path. The id is empty if it is unknown. isSet means that
// encryption.key is set, so that the key file does not count.
func mendKey(path, id string, isSet bool) string {
	own, which := path+disk.Key, "the key "+id
	if id == "" {
		which = "the key that this database was made with"
	}
	switch name := keyFileWith(path, id); {
	case isSet && name == own:
		return "unset encryption.key, because " + own + " has " + which
	case isSet && name != "":
		return "set encryption.key to " + which + ", which is in " + name
	case isSet:
		return "set encryption.key to " + which + ", from your copy; a new key cannot open the signing secrets"
	case name != "" && disk.Exists(own):
		if _, err := (keyFile{name: own}).read(); err != nil {
			return which + " is in " + name + ", so run: mv " + disk.Quote(own) + " " + disk.Quote(own+".wrong") + " && cp -p " + disk.Quote(name) + " " + disk.Quote(own)
		}
		return which + " is in " + name + ", so run: cat " + disk.Quote(name) + " >> " + disk.Quote(own)
	case name != "":
		return which + " is in " + name + ", so run: cp -p " + disk.Quote(name) + " " + disk.Quote(own)
	}
	return "restore " + own + " with " + which + " from your copy, or set encryption.key to it; a new key cannot open the signing secrets"
}

// neededKey returns the id of the key that the database at path needs. It returns "" if it cannot tell: a server that was
// killed soon after its first start leaves the tables in the write-ahead log, which only an owner may read.
func neededKey(ctx context.Context, path string) (id string) {
	_ = sqlite.Peek(ctx, path, func(db *sqlx.DB) (err error) {
		id, err = KeyID(ctx, db)
		return err
	})
	return id
}
