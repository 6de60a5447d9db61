// Package database owns backup, restore and rekey: the commands that work on the database file without the API.
package database

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
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
