package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/backup"
)

func newRestore(schema string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the place of the database of a stopped server",
		Long: `Put a backup in the place of the database of a stopped server. FILE is checked first, whether it is whole
and whether the encryption key is its own: encryption.key, or the key file beside the database, which is
not in the backup. What was there before is set aside, not removed.

What FILE takes for undelivered may have been delivered since it was made. So its queue is held: the
server takes requests and events, and sends nothing until "keyhook queue release", which sends what waits,
or "keyhook queue discard", which drops it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			o := storage.Options{
				Path: c.Storage.Path, Schema: schema, EncryptionKey: c.Encryption.Key.Reveal(), Logger: slog.New(slog.DiscardHandler),
			}
			o.Policy.MaxAttempts, o.Policy.FailingAfter, o.Policy.DisabledAfter = c.Webhooks.MaxAttempts, c.Webhooks.FailingAfter, c.Webhooks.DisabledAfter
			restored, err := storage.Restore(UntilSignal(cmd.Context()), o, args[0])
			if err != nil {
				return err
			}
			return tellRestored(cmd.OutOrStdout(), restored, args[0])
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

// tellRestored says what was done, and what is left to the operator.
func tellRestored(out io.Writer, r backup.Restored, from string) error {
	t := output.Table{}
	t.Add("restored", r.Database)
	t.Add("from", from)
	t.Add("holds", contents(r.Contents))
	t.Add("key", r.KeyID+" fits")
	if r.Aside != "" {
		t.Add("before", "set aside as "+filepath.Base(r.Aside))
	}
	t.Add("queue", "held: nothing is sent until you say so")
	for i, waiting := range r.Waiting {
		name := ""
		if i == 0 {
			name = "waiting"
		}
		t.Add(name, fmt.Sprintf("%s for %s (%s)", output.Count(waiting.Pending, "delivery", "deliveries"), waiting.SubscriptionID, host(waiting.URL)))
	}
	if err := t.Write(out); err != nil {
		return err
	}
	_, err := fmt.Fprint(out, `
Start the server, look at what waits with "keyhook queue show", and then:

  keyhook queue release   sends it; receivers may get again what they have had since the backup was made
  keyhook queue discard   drops it, and sends only what is published from the restore on

Keys, tokens and signing secrets are those of the backup, too: what has been revoked or rotated since it was made is
good again until you do so once more. What is set aside knows what that was.
`)
	return err
}

// host is what of a receiver's address may be shown.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "?"
	}
	return u.Host
}
