package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
)

func newConfig(example []byte) *cobra.Command {
	group := &cobra.Command{Use: "config", Short: "Show or begin the configuration"}
	group.AddCommand(newConfigShow(), newConfigInit(example))
	return group
}

func newConfigShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every setting as it is in force, and where it comes from",
		Long: `Show every setting as serve would see it when it is called with the same flags, environment and file,
and where each comes from. Secrets are not shown.

Every setting may be given as a flag of its name, as --webhooks.timeout=5s, to this command and to serve.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := config.Explain(cmd.Flags())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SETTING\tVALUE\tSOURCE")
			for _, s := range list {
				if s.Value == "" {
					s.Value = "-"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Source)
			}
			return w.Flush()
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

const defaultFile = "keyhook.yaml"

func newConfigInit(example []byte) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a file with every setting and its default (" + defaultFile + ")",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := defaultFile
			if len(args) == 1 {
				name = args[0]
			}
			if err := create(name, example); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Wrote %s. Change what you need, then: keyhook serve --config %s\n", name, name)
			return nil
		},
	}
}

// create writes a file that must not exist yet. Nobody else may read it, since secrets will be written into it.
func create(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already; name another file, or remove it first", name)
	} else if err != nil {
		return fmt.Errorf("create the file: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the file: %w", errors.Join(err, os.Remove(name)))
	}
	return nil
}
