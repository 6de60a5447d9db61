package database

import (
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
)

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
			options.Path = c.Storage.Path
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

// keyPlace says where the encryption key is.
func keyPlace(c config.Config) string {
	if !c.Encryption.Key.IsZero() {
		return "the setting encryption.key"
	}
	return filepath.Base(c.Storage.Path) + disk.Key
}
