package database

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
)

// The flags of rekey.
const (
	flagOldKey = "old-key-file"
	flagNewKey = "new-key-file"
)

// NewRekey makes the command rekey.
func NewRekey(o Options) *cobra.Command {
	var oldFile, newFile string
	cmd := &cobra.Command{
		Use:   "rekey",
		Short: "Encrypt the signing secrets with a new encryption key (stop the server first)",
		Long: `Encrypt the signing secrets of all subscriptions with a new encryption key. Stop the server first.

If the key is in the key file beside the database, run the command without flags. It makes a new key and a new key file.

If the key is the setting encryption.key, make a new key and give its file:

  (umask 077 && openssl rand -base64 32 > new.key)
  keyhook rekey --new-key-file new.key

Then set encryption.key to the new key. If encryption.key is the new key already, give the file of the old key with
--old-key-file.

The command changes all secrets or none. If it was interrupted, run it again with the same flags.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			options := storage.Options{
				Path: c.Storage.Path, Schema: o.Schema, EncryptionKey: c.Encryption.Key.Reveal(), Logger: c.Log.Logger(cmd.ErrOrStderr(), nil),
			}
			var change storage.KeyChange
			if change.Old, err = keyOf(flagOldKey, oldFile); err != nil {
				return err
			}
			if change.New, err = keyOf(flagNewKey, newFile); err != nil {
				return err
			}
			done, err := storage.Rekey(o.UntilSignal(cmd.Context()), options, change)
			if err == nil {
				printRekeyed(cmd.OutOrStdout(), newFile, done)
			}
			return err
		},
	}
	addFlags(cmd)
	cmd.Flags().StringVar(&oldFile, flagOldKey, "", "`file` with the old key, if encryption.key is the new key already")
	cmd.Flags().StringVar(&newFile, flagNewKey, "", "`file` with the new key")
	return cmd
}

// keyOf reads the key file of a flag. An empty path is no key.
func keyOf(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	key, err := config.SecretFile(path)
	if err != nil {
		err = config.Problems{config.NewProblem("--"+flag, "", err)}
	}
	return key, err
}

// printRekeyed prints what was done, and what the operator has to do now.
func printRekeyed(out io.Writer, newFile string, done storage.Rekeyed) {
	if done.PreviousKeyID == "" {
		fmt.Fprintf(out, "The signing secrets are already encrypted with the key %s.\n", done.KeyID)
	} else {
		fmt.Fprintf(out, "Encrypted %d signing secrets with the key %s. The old key was %s.\n", done.Secrets, done.KeyID, done.PreviousKeyID)
		if done.Headers > 0 {
			fmt.Fprintf(out, "Encrypted the request headers of %d subscriptions, too.\n", done.Headers)
		}
	}
	switch {
	case done.PreviousKeyID == "" && done.KeyFile == "" && newFile == "":
		fmt.Fprintf(out, "Nothing was changed. For another key, make one, and give its file with --%s.\n", flagNewKey)
	case done.KeyFile != "":
		fmt.Fprintf(out, "The key is in %s. Keep a copy of that file, but not beside the backups of the database.\n", done.KeyFile)
	case newFile != "":
		fmt.Fprintf(out, "Before the next start, set encryption.key to the new key: KEYHOOK_ENCRYPTION_KEY_FILE=%s\n", newFile)
	}
	for _, name := range done.OldKeys {
		fmt.Fprintf(out, "The old key was moved to %s.\n", name)
	}
	if done.PreviousKeyID != "" {
		fmt.Fprintln(out, "Older backups need the old key. Keep the old key as long as you keep those backups.")
	}
}
