package cli

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

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
