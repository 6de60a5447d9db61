package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/database"
	"github.com/keyhook/keyhook/server/cli/output"
)

// Run runs the command that args name, prints its error to the error stream of root, and returns the exit code. A command
// without Args takes the arguments in its Use. A command that only groups others prints its help. Call Run once per root.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	started := false
	groupCommands(root)
	root.SetFlagErrorFunc(flagError)
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
	if !cmd.Runnable() {
		cmd.SuggestionsMinimumDistance = 2 // cobra sets its default only if it refuses the command itself
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

// inGroups returns the commands with a name in the groups below cmd, each after its group. It returns none for a name that many
// groups have, such as list.
func inGroups(cmd *cobra.Command, name string) (found []string) {
	for _, group := range cmd.Commands() {
		for _, c := range group.Commands() {
			if c.Name() == name {
				found = append(found, group.Name()+" "+name)
			}
		}
	}
	if len(found) > 2 {
		return nil
	}
	return found
}

// refuseUnknown is for groups: an argument of a group is a command that does not exist.
func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	near := cmd.SuggestionsFor(args[0])
	begins := func(name string) bool { return strings.HasPrefix(name, args[0]) }
	if slices.ContainsFunc(near, begins) { // the user began to type it
		near = slices.DeleteFunc(near, func(name string) bool { return !begins(name) })
	}
	if near = append(near, inGroups(cmd, args[0])...); len(near) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q", args[0])
}
