package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

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
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "restored\t%s\n", r.Database)
	fmt.Fprintf(w, "from\t%s\n", from)
	fmt.Fprintf(w, "holds\t%s\n", contents(r.Contents))
	fmt.Fprintf(w, "key\t%s fits\n", r.KeyID)
	if r.Aside != "" {
		fmt.Fprintf(w, "before\tset aside as %s\n", filepath.Base(r.Aside))
	}
	fmt.Fprint(w, "queue\theld: nothing is sent until you say so\n")
	for i, waiting := range r.Waiting {
		name := ""
		if i == 0 {
			name = "waiting"
		}
		fmt.Fprintf(w, "%s\t%s for %s (%s)\n", name, counted(waiting.Pending, "delivery", "deliveries"), waiting.SubscriptionID, host(waiting.URL))
	}
	if err := w.Flush(); err != nil {
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

func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
