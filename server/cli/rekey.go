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
		Short: "Encrypt the signing secrets with another encryption key; the server must be stopped",
		Long: `Encrypt the signing secrets of all subscriptions with another encryption key. The server must be stopped.

Without flags, and without encryption.key in the settings, the command makes a new key in the key file beside the
database. If you keep the key in the settings, make a new key and give its file:

  (umask 077 && openssl rand -base64 32 > new.key)
  keyhook rekey --new-key-file new.key

The setting encryption.key is then the old key. Set it to the new key afterwards. If the setting is the new key
already, give the file of the old key with --old-key-file. The command changes all secrets or none. If it is interrupted
or killed, run it again in the same way.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRekey(cmd, schema, oldFile, newFile)
		},
	}
	databaseFlags(cmd)
	cmd.Flags().StringVar(&oldFile, flagOldKey, "", "the `file` of the old key, if encryption.key is the new key already")
	cmd.Flags().StringVar(&newFile, flagNewKey, "", "the `file` of the new key")
	return cmd
}

func runRekey(cmd *cobra.Command, schema, oldFile, newFile string) error {
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
	printRekeyed(cmd.OutOrStdout(), c, newFile, done)
	return nil
}

// keyOf reads the key file of a flag. An empty path is no key.
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

// printRekeyed prints what was done, and what the operator has to do now.
func printRekeyed(out io.Writer, c config.Config, newFile string, done storage.Rekeyed) {
	if done.PreviousKeyID == "" {
		fmt.Fprintf(out, "The signing secrets are already encrypted with the key %s.\n", done.KeyID)
		if newFile == "" && !c.Encryption.Key.IsZero() {
			fmt.Fprintf(out, "That key is encryption.key. To use another key, give its file with --%s.\n", flagNewKey)
		}
	} else {
		fmt.Fprintf(out, "Encrypted %d signing secrets with the key %s. Before, they were encrypted with %s.\n", done.Secrets, done.KeyID, done.PreviousKeyID)
	}
	switch {
	case done.KeyFile != "":
		fmt.Fprintf(out, "The key is in %s. Keep a copy of that file, in another place than backups of the database.\n", done.KeyFile)
	case newFile != "":
		fmt.Fprintf(out, "Before the next start, set encryption.key to the new key: KEYHOOK_ENCRYPTION_KEY_FILE=%s\n", newFile)
	}
	for _, name := range done.OldKeys {
		fmt.Fprintf(out, "The old key was moved to %s.\n", name)
	}
	if done.PreviousKeyID != "" {
		fmt.Fprintln(out, "Older backups need the old key. Keep it as long as you keep them.")
	}
	if len(done.Unreadable) > 0 {
		fmt.Fprintf(out, "\nThe secrets of %s could not be decrypted before, and cannot be decrypted now. Replace them: keyhook subscriptions rotate-secret ID\n", strings.Join(done.Unreadable, ", "))
	}
}
