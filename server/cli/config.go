package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
)

func newConfig(example []byte) *cobra.Command {
	group := &cobra.Command{Use: "config", Short: "Show the settings, or create a settings file"}
	group.AddCommand(newConfigShow(), newConfigInit(example))
	return group
}

func newConfigShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the value of each setting, and where it comes from",
		Long: `Show the value of each setting, and where it comes from. Use the same flags, environment and file as for serve. The
command does not show secrets.

Each setting is also a flag of this command and of serve, such as --webhooks.timeout=5s.`,
		Example: "  keyhook config show --config keyhook.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := config.Sources(cmd.Flags())
			if err != nil {
				return err
			}
			var t output.Table
			t.Add("SETTING", "VALUE", "SOURCE")
			for _, s := range list {
				t.Add(s.Name, cmp.Or(s.Value, absent), s.Source)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

const defaultFile = "keyhook.yaml"

func newConfigInit(example []byte) *cobra.Command {
	return &cobra.Command{
		Use:     "init [FILE]",
		Short:   "Create a file with every setting and its default",
		Long:    "Create a file with every setting and its default.\n\nWithout FILE, the file is " + defaultFile + ". The command does not replace a file.",
		Example: "  keyhook config init\n  keyhook config init /etc/keyhook/keyhook.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := defaultFile
			if len(args) == 1 {
				name = args[0]
			}
			if err := create(name, example); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Wrote %s. Change the settings that you need, then run: keyhook serve --config %s\n", name, name)
			return nil
		},
	}
}

// create writes a new file that only its owner may read, because the settings may contain secrets.
func create(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.Advise(fmt.Errorf("%s exists already", name), "remove it, or give another file")
	} else if err != nil {
		return fault.Advise(fmt.Errorf("cannot create the file: %w", err), "give a file in an existing directory that you may write to")
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("cannot write the file: %w", errors.Join(err, os.Remove(name)))
	}
	return nil
}
