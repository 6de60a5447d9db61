// Package database owns backup, restore and rekey: the commands that work on the database file without the API.
package database

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/fault"
)

// Options are what the commands need. All fields are required.
type Options struct {
	Schema string // the text of schema.sql

	// UntilSignal returns a context that ends with the first signal to stop.
	UntilSignal func(ctx context.Context) context.Context
}

// addFlags gives a command that works on the file of the database the flags of all settings. The help shows only the
// flags that say where the file is.
func addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	config.Flags(flags)
	for _, name := range []string{"dev", "listen"} {
		flags.Lookup(name).Hidden = true
	}
	flags.Lookup("storage.path").Hidden = false
}

const backupNeeded = `name a file that "keyhook backup" has made`

// mends says which command or flag helps against an error of the store. The store does not know them. An error with a mend of its own
// keeps it.
var mends = []struct {
	is   error
	mend string
}{
	{storage.ErrNoFile, backupNeeded},                                                                           // of restore
	{storage.ErrForeignFile, backupNeeded},                                                                      // of restore; those of a server have a mend
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
