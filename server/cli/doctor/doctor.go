// Package doctor owns the commands that look for what is wrong: doctor and healthcheck. It changes nothing, and does not know
// how a server is put together.
package doctor

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
)

// Options are what the checks need from the other commands.
type Options struct {
	Schema string                                              // the text of schema.sql
	Listen func(setting, address string) (net.Listener, error) // how serve listens on the address of a setting
}

// New returns the command doctor.
func New(o Options) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Find problems of the installation or of a receiver, and say how to fix them",
		Long: `Find problems of the installation or of a receiver, and say how to fix them. Doctor checks settings, secrets, directory,
disk, database, certificate and clock. Doctor changes nothing. If a server is running, doctor asks the server for its
settings and does not open the database. If no server is running, use the same flags, environment and file as for serve.

With a URL, doctor also checks that receiver: name, addresses, certificate, redirects, response times and clock. Doctor
connects as a delivery does. It sends one HEAD request without a body, and nothing else.

The exit code is 1 if there is a problem.`,
		Example: `  keyhook doctor
  keyhook doctor https://example.com/hook
  keyhook doctor --dev http://127.0.0.1:9000/hook`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, r := cmd.Context(), &report{}
			c, err := config.Load(cmd.Flags())
			if r.checkSettings(cmd.Flags(), err) {
				r.checkSecrets(c)
				c = r.checkDatabase(ctx, c, o)
				r.checkServing(c)
				r.checkHardwareClock()
				if len(args) == 1 {
					r.checkReceiver(ctx, c, args[0])
				}
			}
			return r.write(cmd.OutOrStdout(), asJSON)
		},
	}
	config.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// NewHealthcheck returns the command healthcheck.
func NewHealthcheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the running server whether it is ready",
		Long: `Ask the running server whether it is ready, and wait at most three seconds. The exit code is 0 if the server is ready.
The exit code is 1 if the server is not ready or not running. Use the same flags, environment and file as for serve. The
command does not open the database.`,
		Example: `  keyhook healthcheck
  keyhook healthcheck --config keyhook.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return errors.New(err.Error()) // exit code 1, because containers give 2 another meaning
			}
			ready, err := askReady(cmd.Context(), c)
			if err != nil {
				return err
			}
			if failures := ready.failures(); len(failures) > 0 {
				return fmt.Errorf("%s is not ready: %s", ready.where, strings.Join(failures, "; "))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ready: %s\n", ready.where)
			return nil
		},
	}
	config.Flags(cmd.Flags())
	cmd.Flags().Lookup("dev").Hidden = true // it makes no difference here
	return cmd
}
