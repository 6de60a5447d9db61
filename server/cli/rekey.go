package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
)

// The flags of rekey.
const (
	flagOldKey = "old-key-file"
	flagNewKey = "new-key-file"
)

func newRekey(schema string) *cobra.Command {
	var oldFile, newFile string
	cmd := &cobra.Command{
		Use:   "rekey",
		Short: "Seal the signing secrets with another encryption key; the server must be stopped",
		Long: `Seal the signing secrets of all subscriptions with another encryption key. The server must be stopped.

Without flags, and without encryption.key in the settings, a new key is made in the key file beside the
database. Where you keep the key yourself, make one and name it:

  (umask 077 && openssl rand -base64 32 > new.key)
  keyhook rekey --new-key-file new.key

encryption.key is the old key then; set it to the new one afterwards. If it is the new one already, name
the file of the old one with --old-key-file. The command changes all secrets or none. If it is interrupted
or killed, call it again in the same way.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			o := storage.RekeyOptions{Options: storage.Options{
				Path: c.Storage.Path, Schema: schema, EncryptionKey: c.Encryption.Key.Reveal(), Logger: c.Log.Logger(cmd.ErrOrStderr()),
			}}
			if o.OldKey, err = keyOf(flagOldKey, oldFile); err != nil {
				return err
			}
			if o.NewKey, err = keyOf(flagNewKey, newFile); err != nil {
				return err
			}
			done, err := storage.Rekey(UntilSignal(cmd.Context()), o)
			if err != nil {
				return err
			}
			tell(cmd.OutOrStdout(), c, newFile, done)
			return nil
		},
	}
	config.Flags(cmd.Flags())
	cmd.Flags().StringVar(&oldFile, flagOldKey, "", "the `file` of the key that the secrets are sealed with, where the settings hold the new one")
	cmd.Flags().StringVar(&newFile, flagNewKey, "", "the `file` of the key to seal them with")
	return cmd
}

// keyOf reads the file that a flag names, if it names one.
func keyOf(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	secret, err := config.SecretFile(path)
	if err != nil {
		return "", config.Problems{config.NewProblem("--"+flag, "", err)}
	}
	return secret.Reveal(), nil
}

// tell says what was done, and what is left to the operator.
func tell(out io.Writer, c config.Config, newFile string, done storage.Rekeyed) {
	if done.Before == "" {
		fmt.Fprintf(out, "The signing secrets are sealed with the key %s already.\n", done.KeyID)
		if newFile == "" && !c.Encryption.Key.IsZero() {
			fmt.Fprintf(out, "That is encryption.key. To seal them with another one, name its file with --%s.\n", flagNewKey)
		}
	} else {
		fmt.Fprintf(out, "Sealed %d signing secrets with the key %s, which were sealed with %s.\n", done.Secrets, done.KeyID, done.Before)
	}
	switch {
	case done.KeyFile != "":
		fmt.Fprintf(out, "The key is in %s. Keep a copy of that file, apart from backups of the database.\n", done.KeyFile)
	case newFile != "":
		fmt.Fprintf(out, "Before the next start, set encryption.key to it: KEYHOOK_ENCRYPTION_KEY_FILE=%s\n", newFile)
	}
	for _, name := range done.OldKeys {
		fmt.Fprintf(out, "The old key was moved to %s.\n", name)
	}
	if done.Before != "" {
		fmt.Fprintln(out, "Backups made before now need the old key: keep it as long as you keep them.")
	}
	if len(done.Unreadable) > 0 {
		fmt.Fprintf(out, "\nNo key at hand opens the secrets of %s, neither before nor now. Rotate them (rotate-secret).\n", strings.Join(done.Unreadable, ", "))
	}
}
