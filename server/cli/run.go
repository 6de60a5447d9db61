package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/database"
	"github.com/keyhook/keyhook/server/cli/output"
)

// Run runs the command that args name, prints its error to the error stream of root, and returns the exit code. A command
// without Args takes the arguments in its Use. A command that only groups others prints its help. Call Run once per root.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	started := false
	groupCommands(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, args, err) })
	prepare(root, &started)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	var usage output.UsageError
	if !started || errors.As(err, &usage) {
		// An error before the command begins is about the command line. Cobra has no type for that.
		fmt.Fprintf(root.ErrOrStderr(), "keyhook: %s (see %s --help)\n", output.EscapeLines(err.Error()), cmd.CommandPath())
		return ExitUsage
	}
	fmt.Fprintf(root.ErrOrStderr(), "keyhook: %s\n", output.EscapeLines(database.WithMend(err).Error()))
	return exitCode(err)
}

// prepare makes cmd and all commands below it refuse unknown arguments, and set started when they begin.
func prepare(cmd *cobra.Command, started *bool) {
	for _, child := range cmd.Commands() {
		prepare(child, started)
	}
	suggestCommands(cmd)
	if !cmd.Runnable() {
		cmd.Args = refuseUnknown
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if cmd.Args == nil {
		cmd.Args = checkArguments // the default of cobra ignores all arguments
	}
	run := cmd.RunE
	if run == nil {
		plain := cmd.Run
		run = func(cmd *cobra.Command, args []string) error { plain(cmd, args); return nil }
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		*started = true
		return run(cmd, args)
	}
}
