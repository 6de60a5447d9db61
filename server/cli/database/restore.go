package database

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/backup"
)

// NewRestore makes the command restore.
func NewRestore(o Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the database with a backup (stop the server first)",
		Long: `Replace the database with a backup. Stop the server first.

The command first checks that FILE is complete and that the encryption key is right. The backup does not contain the
key. The key is the setting encryption.key, or the key file beside the database. The command does not delete the
present database. It renames it.

Some deliveries that are pending in FILE may have succeeded after the backup. So the queue is held after a restore: the
server accepts requests and events, but sends nothing. To end the hold, run one of these two commands:

  keyhook queue release   sends all pending deliveries
  keyhook queue discard   drops the deliveries that are pending in the backup, and sends only new ones`,
		Example: "  keyhook restore backups/keyhook-20300131-120000.000.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			options := storage.Options{
				Path: c.Storage.Path, Schema: o.Schema, EncryptionKey: c.Encryption.Key.Reveal(), Logger: slog.New(slog.DiscardHandler),
			}
			options.Policy = c.Webhooks.Policy
			restored, err := storage.Restore(o.UntilSignal(cmd.Context()), options, args[0])
			if err != nil {
				return err
			}
			return printRestored(cmd.OutOrStdout(), restored, args[0])
		},
	}
	addFlags(cmd)
	return cmd
}

// printRestored prints what was done, and what the operator has to do now.
func printRestored(out io.Writer, r backup.Restored, from string) error {
	t := output.Table{}
	t.Add("restored", r.Database)
	t.Add("from", from)
	t.Add("contains", contents(r.Contents))
	t.Add("key", r.KeyID+" is right")
	if r.ReplacedDatabase != "" {
		t.Add("old database", "renamed to "+filepath.Base(r.ReplacedDatabase))
	}
	t.Add("queue", "held: the server sends nothing until you release or discard the queue")
	if err := t.Write(out); err != nil {
		return err
	}
	lost := "The audit log of the renamed database lists them."
	if r.ReplacedDatabase == "" {
		lost = "The audit log of the lost database listed them."
	}
	_, err := fmt.Fprintf(out, `
Start the server. Look at the pending deliveries with "keyhook queue show". Then run one of these two commands:

  keyhook queue release   sends the pending deliveries; receivers may get events a second time
  keyhook queue discard   drops the pending deliveries, and sends only events that are published from now on

Sessions and sign-in links of the backup have ended. Its keys, tokens and signing secrets are valid again. If you revoked
or rotated some of them after the backup, do that again. %s
`, lost)
	return err
}
