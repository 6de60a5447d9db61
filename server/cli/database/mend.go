package database

import (
	"errors"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/fault"
)

// mends says which flag helps against an error of the store. The store does not know the flags. An error with a mend of its own
// keeps it.
var mends = []struct {
	is   error
	mend string
}{
	{storage.ErrExists, "give another file, or replace it with --force"},                                        // of backup
	{storage.ErrKeyMissing, "give the file of the key that encrypted the signing secrets with --" + flagOldKey}, // of rekey
}

// WithMend adds the mend of the table to an error that has none.
func WithMend(err error) error {
	for _, m := range mends {
		if errors.Is(err, m.is) {
			return fault.AdviseMissing(err, "%s", m.mend)
		}
	}
	return err
}
