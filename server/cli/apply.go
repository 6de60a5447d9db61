package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/apply"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

func newApply() *cobra.Command {
	var o apply.Options
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make plans, organizations, users and subscriptions as a file says",
		Long: `Make plans, permissions, roles, organizations, users, members and subscriptions as a YAML file says. The command prints
the difference between the file and the server, and then has the server make all changes or none. A second run changes nothing.
A file with more than 1,000 changes goes in parts, and the command says so.

If the file has mistakes, nothing is changed, and the exit code is 2. With --prune, the command asks before it removes anything.
Without a terminal, it needs --yes.

The document /docs/apply/ of the server has all fields.`,
		Example: `  keyhook apply -f customers.yaml --dry-run
  keyhook apply -f customers.yaml --secrets-file secrets.jsonl
  keyhook apply -f customers.yaml --prune --dry-run
  keyhook apply -f customers.yaml --prune`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed(client.FlagOrganization) {
				return output.UsageError{Err: fmt.Errorf("--%s has no meaning here: the file names the organizations", client.FlagOrganization)}
			}
			out, err := output.New(cmd)
			if err != nil {
				return err
			}
			c, err := client.Connect(cmd)
			if err != nil {
				return err
			}
			o.In = cmd.InOrStdin()
			o.Confirm = func(question string) error { return output.Confirm(cmd, question) }
			return apply.Run(UntilSignal(cmd.Context()), c, out, o)
		},
	}
	client.Flags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.File, "file", "f", "", "the YAML `file`; - reads the standard input")
	flags.BoolVar(&o.DryRun, "dry-run", false, "print the difference and change nothing")
	flags.BoolVar(&o.Prune, "prune", false, "also remove what an earlier apply created and the file no longer has")
	flags.StringVar(&o.SecretsFile, "secrets-file", "", "append the secrets of new subscriptions to this `file` (default: print them)")
	must(cmd.MarkFlagRequired("file"))
	output.YesFlag(cmd)
	must(cmd.PersistentFlags().MarkHidden(client.FlagOrganization))
	return cmd
}
