// Package cli owns the root command, the commands for the resources of the API, and the exit codes. It does not know how a
// server is put together: main adds the command serve.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/cli/about"
	"github.com/keyhook/keyhook/server/cli/apply"
	"github.com/keyhook/keyhook/server/cli/bench"
	"github.com/keyhook/keyhook/server/cli/database"
	"github.com/keyhook/keyhook/server/cli/demo"
	"github.com/keyhook/keyhook/server/cli/doctor"
	"github.com/keyhook/keyhook/server/cli/leak"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
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
	add(groupOther, demo.New(o.Schema), bench.New(), receive.NewListen(), receive.NewVerify(), about.NewLicenses(), about.NewVersion())
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		*started = true
		return run(cmd, args)
	}
}

// flagError adds to an error of the flag parser what was probably meant. args is the whole command line.
func flagError(cmd *cobra.Command, args []string, err error) error {
	if wrong, is := errors.AsType[*pflag.InvalidValueError](err); is {
		return wrongValue("--"+wrong.GetFlag().Name, wrong.GetValue(), wrong.Unwrap())
	}
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	if cmd.HasAvailableSubCommands() { // a group has few flags, so perhaps the command after it does not exist
		words := slices.DeleteFunc(slices.Clone(args), func(word string) bool { return strings.HasPrefix(word, "-") })
		words = words[min(len(words), strings.Count(cmd.CommandPath(), " ")):]
		if found, _, missing := cmd.Find(words); missing != nil || found == cmd {
			if err := refuseUnknown(cmd, words); err != nil {
				return err
			}
		}
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if meant := config.Nearest(unknown.GetSpecifiedName(), known); meant != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, meant)
	}
	return err
}

// wrongValue says what the value of a flag or an argument is, and what it must be. The value may be a credential in the wrong place.
func wrongValue(name, text string, requirement error) error {
	return fmt.Errorf("%s is %s, but %w", name, output.Quote(text), requirement)
}

// checkArguments compares the arguments with the Use of the command: "restore FILE", "backup [FILE]".
func checkArguments(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	for i, name := range names {
		if i >= len(args) && !strings.HasPrefix(name, "[") {
			return fmt.Errorf("%s is missing; write: %s", name, cmd.UseLine())
		}
	}
	if len(args) > len(names) {
		return fmt.Errorf("%s is one argument too many; write: %s", output.Quote(args[len(names)]), cmd.UseLine())
	}
	return nil
}

// refuseUnknown is for groups: an argument of a group is a command that does not exist.
func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		known = append(known, c.Name())
	}
	if meant := config.Nearest(args[0], known); meant != "" {
		return fmt.Errorf("unknown command %s; did you mean %s?", output.Quote(args[0]), meant)
	}
	return fmt.Errorf("unknown command %s", output.Quote(args[0]))
}

// The exit codes of all commands. The document "operating" has the same table, and a test compares.
const (
	ExitOK      = 0
	ExitFailure = 1  // the command began and failed
	ExitUsage   = 2  // the command line, the settings or the file of apply are wrong; another try cannot help
	ExitNewer   = 3  // the database was written by a newer version
	ExitFile    = 4  // the file is not the expected database, or it is damaged or lost
	ExitKey     = 5  // the encryption key is missing or wrong
	ExitInUse   = 6  // another process owns the database
	ExitPort    = 7  // an address cannot be listened on
	ExitPlace   = 8  // the directory, owner, mode or file system does not suit a database
	ExitDisk    = 74 // the disk or the files failed while the server ran (EX_IOERR of sysexits.h)
)

// codes maps the errors of commands to exit codes. The first match counts. Other errors are ExitFailure.
var codes = []struct {
	code   int
	errors []error
}{
	{ExitDisk, []error{storage.ErrFailed}},
	{ExitNewer, []error{storage.ErrNewerSchema}},
	{ExitFile, []error{storage.ErrForeignFile, storage.ErrSchema, storage.ErrLost, storage.ErrNoDatabase, storage.ErrDamaged}},
	{ExitKey, []error{storage.ErrKey, storage.ErrKeyMissing}},
	{ExitInUse, []error{storage.ErrInUse}},
	{ExitPort, []error{errListen}},
	{ExitPlace, []error{disk.ErrAccess, disk.ErrFileSystem}},
}

// exitCode returns the exit code for the error of a command that has begun.
func exitCode(err error) int {
	_, isSetting := errors.AsType[config.Problems](err)
	_, isFile := errors.AsType[apply.Problems](err)
	switch {
	case err == nil:
		return ExitOK
	case isSetting || isFile:
		return ExitUsage
	}
	for _, c := range codes {
		if slices.ContainsFunc(c.errors, func(is error) bool { return errors.Is(err, is) }) {
			return c.code
		}
	}
	return ExitFailure
}
