package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/cli/output"
)

// flagError returns an error of the flag parser in our own words: the flag, what is wrong, and what its value must be.
func flagError(_ *cobra.Command, err error) error {
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is {
		return fmt.Errorf("there is no flag %s", dashes(unknown.GetSpecifiedName()))
	}
	if bare, is := errors.AsType[*pflag.ValueRequiredError](err); is {
		return fmt.Errorf("%s needs a value", dashes(bare.GetSpecifiedName()))
	}
	if wrong, is := errors.AsType[*pflag.InvalidValueError](err); is {
		return wrongValue("--"+wrong.GetFlag().Name, wrong.GetValue(), requirement(wrong))
	}
	return err
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

// requirement says what the value of a flag must be. The types of pflag say only what their parser did.
func requirement(wrong *pflag.InvalidValueError) string {
	switch wrong.GetFlag().Value.Type() {
	case "bool":
		if _, ours := wrong.GetFlag().Value.(*flagValue); !ours {
			return "must be true or false"
		}
	case "int":
		return "must be a whole number"
	case "duration":
		if _, ours := wrong.GetFlag().Value.(*flagValue); !ours {
			return "must be a duration with a unit, such as 3s, 5m or 1h"
		}
	}
	return wrong.Unwrap().Error()
}

// checkArguments compares the arguments with the Use of the command: "restore FILE", "backup [FILE]".
func checkArguments(cmd *cobra.Command, args []string) error {
	for i, name := range strings.Fields(cmd.Use)[1:] {
		if len(args) > i {
			continue
		}
		if !strings.HasPrefix(name, "[") {
			return fmt.Errorf("%s is missing; write: %s %s", name, cmd.Parent().CommandPath(), cmd.Use)
		}
	}
	if most := len(strings.Fields(cmd.Use)) - 1; len(args) > most {
		return fmt.Errorf("%s is one argument too many", output.Quote(args[most]))
	}
	return checkExclusive(cmd)
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
