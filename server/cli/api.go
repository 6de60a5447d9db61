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
var apiAction = action{arguments: []argument{
	{name: "METHOD", value: method}, {name: "PATH", value: apiPath}, {name: "JSON", value: anyJSON, fallback: "null"},
}}

func newAPI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "api METHOD PATH [JSON|-]",
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
		RunE:              runAPI,
	}
	client.Flags(cmd)
	return cmd
}

func runAPI(cmd *cobra.Command, args []string) error {
	verb, err := method.parse(args[0])
	if err != nil {
		return output.UsageError{Err: err}
	}
	path, err := apiPath.parse(args[1])
	if err != nil {
		return output.UsageError{Err: err}
	}
	var body json.RawMessage
	if len(args) == 3 {
		value, err := anyJSON.read(cmd, args[2])
		if err != nil {
			return output.UsageError{Err: anyJSON.wrong("JSON", args[2], err)}
		}
		body = value.(json.RawMessage)
	}
	c, err := connect(cmd)
	if err != nil {
		return err
	}
	out, err := output.New(cmd)
	if err != nil {
		return err
	}
	got, err := c.Send(cmd.Context(), verb.(string), path.(string), body)
	if err != nil {
		return err
	}
	if len(got.Body) > 0 {
		if err := out.WriteBody(got.Body); err != nil {
			return err
		}
	}
	if !got.OK() {
		return fmt.Errorf("%d %s", got.Status, http.StatusText(got.Status))
	}
	return nil
}
