package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
)

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
