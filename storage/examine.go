package storage

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// State is what stands at a path.
type State = sqlite.State

// The states of a file that Open would take.
const (
	None     = sqlite.None
	Closed   = sqlite.Closed
	LeftOpen = sqlite.LeftOpen
	Outdated = sqlite.Outdated
)

// Owner tells which process owns the file at path; see sqlite.Owner.
func Owner(path string) (pid string, running bool) { return sqlite.Owner(path) }

// Examine looks at a file that nobody owns as Open would, and refuses it as Open would, but changes nothing and makes
// nothing. It looks less far into a file that was left open, which only its next owner may read.
func Examine(ctx context.Context, o Options) (State, error) {
	var found encryptionKeys
	e := o.engine()
	e.Prepare = func(path string, start sqlite.Start) (err error) {
		o.Path = path
		found, err = o.prepareKeys(start)
		return err
	}
	e.Recognize = func(ctx context.Context, path string, db *sqlx.DB) error {
		_, err := found.recognize(ctx, path, db)
		return err
	}
	return sqlite.Examine(ctx, e)
}
