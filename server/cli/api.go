package cli

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/apply"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// apiAction checks and completes the arguments of `api`.
var apiAction = action{verb: "api", arguments: []argument{
	{name: "METHOD", value: method}, {name: "PATH", value: apiPath}, {name: "JSON", value: anyJSON, optional: true},
}}

func newAPI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   apiAction.use(),
		Short: "Send any request to the API and print the response",
		Long: `Send any request to the API and print the response.

PATH may leave out /api/v1/ and the slash at the end. PATH may have a query. JSON is the body of the request. If JSON
is -, the command reads the body from the standard input. If the request fails, the command prints the response, and the
exit code is 1. Characters that a terminal would obey are printed as escapes, which mean the same in JSON.`,
		Example: `  keyhook api GET whoami
  keyhook api PATCH plans/growth '{"api_rate_limit_per_minute": 1200}'
  keyhook api POST events - <event.json
  keyhook api GET 'webhooks/stats?step=3600'`,
		Args:              apiAction.check,
		ValidArgsFunction: apiAction.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			values := []any{"", "", json.RawMessage(nil)}
			for i, text := range args {
				wanted := apiAction.arguments[i]
				value, err := wanted.value.read(cmd, text)
				if err != nil {
					return output.UsageError{Err: wanted.value.wrong(wanted.name, text, err)}
				}
				values[i] = value
			}
			c := newCall(apiAction, cmd, args)
			if err := c.connect(); err != nil {
				return err
			}
			got, err := c.client.Send(cmd.Context(), values[0].(string), values[1].(string), values[2].(json.RawMessage))
			if err != nil {
				return err
			}
			if len(got.Body) > 0 {
				err = c.out.WriteBody(got.Body)
			}
			if err == nil && !got.OK() {
				err = fmt.Errorf("%d %s", got.Status, http.StatusText(got.Status))
			}
			return err
		},
	}
	client.Flags(cmd)
	return cmd
}

func newApply() *cobra.Command {
	var o apply.Options
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make plans, organizations, users and subscriptions as a file says",
		Long: `Make plans, permissions, roles, organizations, users, members and subscriptions as a YAML file says. The command prints
the difference between the file and the server, and then has the server make all changes or none. A second run changes nothing.
A file with more changes than one request makes goes in parts, and the command says so.

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
