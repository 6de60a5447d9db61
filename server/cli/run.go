package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
)

// Run executes the command that args name and returns the exit code. An error is printed here, once, to the root's error
// stream. Commands without Args take none, and a command that only groups others shows its help. Call it once per root.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	begun := false
	arrange(root)
	prepare(root, &begun)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	var usage output.UsageError
	if !begun || errors.As(err, &usage) {
		// Whatever fails before a command begins is about how it was called: cobra has no type for that.
		fmt.Fprintf(root.ErrOrStderr(), "keyhook: %v; see %s --help\n", err, cmd.CommandPath())
		return ExitUsage
	}
	fmt.Fprintf(root.ErrOrStderr(), "keyhook: %v\n", withMend(err))
	return exitCode(err)
}

// prepare gives cmd and all below it the same manners, and has them say when they begin.
func prepare(cmd *cobra.Command, begun *bool) {
	for _, child := range cmd.Commands() {
		prepare(child, begun)
	}
	if !cmd.Runnable() {
		cmd.SuggestionsMinimumDistance = 2 // cobra sets its default only where it does the refusing
		cmd.Args = refuseUnknown
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs // cobra's own default takes and ignores any
	}
	run := cmd.RunE
	if run == nil {
		plain := cmd.Run
		run = func(cmd *cobra.Command, args []string) error { plain(cmd, args); return nil }
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		*begun = true
		return run(cmd, args)
	}
}

// refuseUnknown is for groups, where an argument can only be a command that does not exist.
func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	near := cmd.SuggestionsFor(args[0])
	begins := func(name string) bool { return strings.HasPrefix(name, args[0]) }
	if slices.ContainsFunc(near, begins) { // then it is hardly a slip of the finger
		near = slices.DeleteFunc(near, func(name string) bool { return !begins(name) })
	}
	if len(near) > 0 {
		return fmt.Errorf("unknown command %q, did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q", args[0])
}
