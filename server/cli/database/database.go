// Package database owns backup, restore and rekey: the commands that work on the database file without the API.
package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// Options are what the commands need. All fields are required.
type Options struct {
	Schema string // the text of schema.sql

	// UntilSignal returns a context that ends with the first signal to stop.
	UntilSignal func(ctx context.Context) context.Context
}

// addFlags gives a command that works on the database file the flags of all settings. The help shows only those of its place.
func addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	config.Flags(flags)
	for _, name := range []string{"dev", "listen"} {
		flags.Lookup(name).Hidden = true
	}
	flags.Lookup("storage.path").Hidden = false
}

const backupNeeded = `name a file that "keyhook backup" has made`

// mends says which command or flag helps against an error of the store, which does not know them. An error with its own mend keeps it.
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

// NewBackup makes the command backup.
func NewBackup(o Options) *cobra.Command {
	var options storage.BackupOptions
	cmd := &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Copy the database, with or without a running server",
		Long: `Copy the database as it is at one moment, and check the copy. The copy gets its name only after the check. A server
may run and write at the same time. The server does not wait for the copy.

FILE is the name of the copy, or a directory. In a directory, the name of the copy contains the date. Without FILE, the
copy goes to the directory "backups" beside the database. With --keep, the command deletes the oldest dated copies. The
command uses only one setting: storage.path.

The copy does not contain the encryption key. Keep the key in another place. Without the key, nobody can restore the
copy. With the copy and the key, anybody can read the signing secrets.`,
		Example: `  keyhook backup
  keyhook backup /var/backups/keyhook --keep 7
  keyhook backup before-upgrade.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				options.To = args[0]
			}
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			options.Path, options.KeySet = c.Storage.Path, !c.Encryption.Key.IsZero()
			report, err := storage.Backup(o.UntilSignal(cmd.Context()), options)
			if err != nil {
				return err
			}
			return printBackup(cmd.OutOrStdout(), report, keyPlace(c))
		},
	}
	addFlags(cmd)
	cmd.Flags().BoolVar(&options.Replace, "force", false, "replace FILE if it exists")
	output.IntFlag(cmd.Flags(), &options.Keep, "keep", 0, 10_000, "number of dated copies to keep, including the new one; 0 keeps all")
	return cmd
}

// printBackup prints the report for people. key says where the encryption key is.
func printBackup(out io.Writer, r backup.Report, key string) error {
	t := output.Table{}
	t.Add("copied to", r.File)
	t.Add("size", fmt.Sprintf("%d bytes", r.Bytes))
	t.Add("sha256", r.SHA256)
	t.Add("contains", contents(r.Contents))
	t.Add("took", r.Took.Round(time.Millisecond).String())
	if len(r.Removed) > 0 {
		t.Add("removed", strings.Join(r.Removed, ", "))
	}
	if r.Warning != "" {
		t.Add("warning", r.Warning)
	}
	t.Add("key", fmt.Sprintf("%s, which is NOT in the copy. Keep %s in another place.", r.KeyID, key))
	return t.Write(out)
}

func contents(c backup.Contents) string {
	return fmt.Sprintf("%s, %s (%d pending)", output.Count(c.Events, "event", "events"), output.Count(c.Deliveries, "delivery", "deliveries"), c.Pending)
}

// keyPlace says where the encryption key is. Without a key file it is a setting, which this command may not have been given.
func keyPlace(c config.Config) string {
	path, _, err := disk.Resolve(c.Storage.Path)
	if err == nil && c.Encryption.Key.IsZero() && disk.Exists(path+disk.Key) {
		return filepath.Base(path) + disk.Key
	}
	return "the setting encryption.key"
}
