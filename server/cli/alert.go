package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
)

func newAlert() *cobra.Command {
	group := &cobra.Command{Use: "alert", Short: "Test the channels that tell you what needs a person"}
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a test message through each channel of alerts.urls",
		Long: `Send a test message through each channel of alerts.urls. Use the same flags, environment and file as for serve. A
running server is not needed. The command does not show the URLs: the number of a channel is its place in alerts.urls.

The exit code is 1 if a message was not sent.`,
		Example: "  keyhook alert test --config keyhook.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			channels, err := alert.Channels(c.Alerts.URLs)
			if err != nil {
				return err
			}
			if len(channels) == 0 {
				return output.UsageError{Err: fault.Advise(errors.New("alerts.urls is not set, so there is no channel to test"), "set it to the URL of a service, such as ntfy://ntfy.sh/TOPIC; if the server has it, give this command the same environment and flags")}
			}
			var t output.Table
			t.Add("CHANNEL", "RESULT", "ERROR")
			failed := 0
			for _, channel := range channels {
				result, text := "sent", absent
				if err := channel.SendTest(cmd.Context(), c.Server.URL(c.Server.Listen)); err != nil {
					failed++
					result, text = "failed", err.Error()
				}
				t.Add(channel.String(), result, text)
			}
			if err := t.Write(cmd.OutOrStdout()); err != nil || failed == 0 {
				return err
			}
			return fault.Advise(fmt.Errorf("%d of %d test messages were not sent", failed, len(channels)), "correct alerts.urls or the service")
		},
	}
	config.Flags(cmd.Flags())
	group.AddCommand(cmd)
	return group
}
