package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
)

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
