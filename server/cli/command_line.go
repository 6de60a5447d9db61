package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/cli/output"
)

// flagError returns an error of the flag parser in our own words: the flag, what is wrong, and what its value must be. args is the
// whole command line.
func flagError(cmd *cobra.Command, args []string, err error) error {
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is {
		if cmd.HasAvailableSubCommands() {
			return misplacedFlag(cmd, args, unknown.GetSpecifiedName())
		}
		return unknownFlag(cmd, unknown.GetSpecifiedName())
	}
	if bare, is := errors.AsType[*pflag.ValueRequiredError](err); is {
		return fmt.Errorf("%s needs a value", dashes(bare.GetSpecifiedName()))
	}
	if wrong, is := errors.AsType[*pflag.InvalidValueError](err); is {
		return wrongValue("--"+wrong.GetFlag().Name, wrong.GetValue(), requirement(wrong))
	}
	return err
}

// misplacedFlag says why a group has no such flag: the command after it does not exist, or the flag stands before the command.
func misplacedFlag(group *cobra.Command, args []string, name string) error {
	words := slices.DeleteFunc(slices.Clone(args), func(word string) bool { return strings.HasPrefix(word, "-") })
	if depth := strings.Count(group.CommandPath(), " "); len(words) > depth {
		found, _, err := group.Find(words[depth:])
		if err != nil || found == group {
			return refuseUnknown(group, words[depth:])
		}
		return fmt.Errorf("%s stands before the command; write it at the end: %s … %s", dashes(name), found.CommandPath(), dashes(name))
	}
	return unknownFlag(group, name)
}

// wrongValue says what the value of a flag or an argument is, and what it must be.
func wrongValue(name, text, requirement string) error {
	return fmt.Errorf("%s is %s, but %s", name, output.Quote(text), requirement)
}

// dashes returns a flag as the user writes it.
func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// requirements say what the values of the types of pflag must be. Their own errors say only what their parser did.
var requirements = map[string]string{
	"bool": "must be true or false", "int": "must be a whole number", "duration": "must be a duration with a unit, such as 3s, 5m or 1h",
}

// requirement says what the value of a flag must be.
func requirement(wrong *pflag.InvalidValueError) string {
	value := wrong.GetFlag().Value
	if _, ours := value.(*flagValue); ours || requirements[value.Type()] == "" {
		return wrong.Unwrap().Error()
	}
	return requirements[value.Type()]
}

// checkArguments compares the arguments with the Use of the command: "restore FILE", "backup [FILE]".
func checkArguments(cmd *cobra.Command, args []string) error {
	if err := checkSwitches(cmd, args); err != nil {
		return err
	}
	names := strings.Fields(cmd.Use)[1:]
	for i, name := range names {
		if i >= len(args) && !strings.HasPrefix(name, "[") {
			return fmt.Errorf("%s is missing; write: %s", name, usageLine(cmd))
		}
	}
	if len(args) > len(names) {
		return fmt.Errorf("%s is one argument too many; write: %s", output.Quote(args[len(names)]), usageLine(cmd))
	}
	if err := checkRequired(cmd); err != nil {
		return err
	}
	return checkExclusive(cmd)
}

// isRequired reports whether a command needs a flag.
func isRequired(f *pflag.Flag) bool { return f.Annotations[cobra.BashCompOneRequiredFlag] != nil }

// checkRequired names all missing flags at once.
func checkRequired(cmd *cobra.Command) error {
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if isRequired(f) && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
	})
	switch len(missing) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s is missing; write: %s", missing[0], usageLine(cmd))
	}
	return fmt.Errorf("%s are missing; write: %s", strings.Join(missing, " and "), usageLine(cmd))
}

// checkSwitches refuses "--is-active false": the flag alone means true, and "false" would be an argument.
func checkSwitches(cmd *cobra.Command, args []string) (err error) {
	at := slices.IndexFunc(args, func(word string) bool {
		return slices.Contains([]string{"true", "false", "yes", "no", "on", "off"}, word)
	})
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if at >= 0 && f.NoOptDefVal == "true" && f.Value.String() == "true" {
			value := strings.NewReplacer("yes", "true", "on", "true", "no", "false", "off", "false").Replace(args[at])
			err = fmt.Errorf("%s stands alone after a flag that is true or false; write --%s=%s", output.Quote(args[at]), f.Name, value)
		}
	})
	return err
}

// exclusiveGroups is the annotation in which cobra keeps the groups of flags that exclude each other. Its own error comes later
// and is hard to read.
const exclusiveGroups = "cobra_annotation_mutually_exclusive"

// checkExclusive refuses two flags that exclude each other.
func checkExclusive(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, group := range f.Annotations[exclusiveGroups] {
			for other := range strings.FieldsSeq(group) {
				if other != f.Name && cmd.Flags().Changed(other) {
					err = fmt.Errorf("--%s and --%s exclude each other; give only one of them", other, f.Name)
				}
			}
		}
	})
	return err
}
