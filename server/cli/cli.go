// Package cli owns the root command, the commands for the resources of the API, and the exit codes. It does not know how a
// server is put together: main adds the command serve.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/cli/about"
	"github.com/keyhook/keyhook/server/cli/bench"
	"github.com/keyhook/keyhook/server/cli/database"
	"github.com/keyhook/keyhook/server/cli/demo"
	"github.com/keyhook/keyhook/server/cli/doctor"
	"github.com/keyhook/keyhook/server/cli/leak"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive"
)

// Options are what main gives to the commands.
type Options struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Example []byte // config.example.yaml, for `config init`
	Schema  string // the text of schema.sql, for the commands that work on a stopped file
}

// New returns the root command with all commands except serve. Run runs it.
func New(o Options) *cobra.Command {
	root := &cobra.Command{
		Use:   "keyhook",
		Short: "API keys and signed webhooks in one process and one file",
		Long: `API keys and signed webhooks in one process and one file.

"keyhook serve" runs the server. Most other commands call its API. On the machine of the server, they use the local
socket beside the database. They need no token there. The audit log shows such a command as "system". To call a
server on another machine, give --url and --token.`,
		Example: `  keyhook serve --dev
  keyhook subscriptions create --url http://127.0.0.1:9000/hook
  keyhook keys create --name backend --scope events:write
  keyhook events publish order.created '{"number": 1001}'`,
		Version:       build.Read().Version,
		SilenceUsage:  true, // an error is one line, not a page
		SilenceErrors: true, // Run prints it
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	root.AddGroup(&cobra.Group{ID: GroupServer, Title: "Run a server:"}, &cobra.Group{ID: groupClients, Title: "Talk to a server:"},
		&cobra.Group{ID: groupOther, Title: "Try and test:"})
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	add := func(group string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	files := database.Options{Schema: o.Schema, UntilSignal: UntilSignal}
	add(GroupServer, newConfig(o.Example), newAlert(), database.NewBackup(files), database.NewRestore(files), database.NewRekey(files),
		doctor.New(doctor.Options{Schema: o.Schema, Listen: Listen}), doctor.NewHealthcheck(), leak.New())
	add(groupClients, newApply(), newAPI(), newToken())
	add(groupOther, demo.New(o.Schema), bench.New(), receive.NewListen(), receive.NewVerify(),
		about.NewLicenses(), about.NewVersion())
	for _, n := range nouns {
		add(groupClients, n.command())
	}
	return root
}

// The groups of the help.
const (
	GroupServer  = "server" // run a server
	groupClients = "clients"
	groupOther   = "other"
)

// Run runs the command that args name, prints its error to the error stream of root, and returns the exit code. A command
// without Args takes the arguments in its Use. A command that only groups others prints its help. Call Run once per root.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	started := false
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
