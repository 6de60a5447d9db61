package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// apiArguments are those of `api`, in the manner of an action.
var apiArguments = action{arguments: []argument{
	{name: "METHOD", kind: method}, {name: "PATH", kind: apiPath}, {name: "JSON", kind: raw, fallback: none},
}}

func newAPI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "api METHOD PATH [JSON|-]",
		Short: "Make any request of the API and print the answer as it is",
		Long: `Make any request of the API and print the answer as it is.

PATH may leave out /api/v1/ and the slashes at its ends, and may have a query. JSON is the body; - reads it
from the standard input. The command fails where the answer is no success; the status then goes to the
error stream, and the answer still to the output.`,
		Example: `  keyhook api GET whoami
  keyhook api PATCH plans/growth '{"api_rate_limit_per_minute": 1200}'
  keyhook api POST events - <event.json
  keyhook api GET 'webhooks/stats?step=3600'`,
		Args:              apiArguments.check,
		ValidArgsFunction: apiArguments.complete,
		RunE:              runAPI,
	}
	client.Flags(cmd)
	return cmd
}

func runAPI(cmd *cobra.Command, args []string) error {
	verb, err := method.read(args[0])
	if err != nil {
		return output.UsageError{Err: err}
	}
	path, err := apiPath.read(args[1])
	if err != nil {
		return output.UsageError{Err: err}
	}
	var body json.RawMessage
	if len(args) == 3 {
		value, err := raw.value(cmd, args[2])
		if err != nil {
			return output.UsageError{Err: fmt.Errorf("JSON: %w", err)}
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
		if err := out.Write(string(bytes.TrimRight(got.Body, "\n")) + "\n"); err != nil {
			return err
		}
	}
	if !got.OK() {
		return fmt.Errorf("%d %s", got.Status, http.StatusText(got.Status))
	}
	return nil
}
