package output

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/storage/fault"
)

// UsageError is a mistake in the command line that is found after the command has begun. Its exit code is that of wrong usage.
type UsageError struct{ Err error }

// Error returns the text of the mistake.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.Err }

// Exclusive refuses a command line with more than one of these flags.
func Exclusive(cmd *cobra.Command, names ...string) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		var given []string
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) > 1 {
			return fmt.Errorf("%s exclude each other; give only one of them", strings.Join(given, " and "))
		}
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
}

// number is a flag for a whole number within bounds.
type number struct {
	value    *int
	min, max int
}

// IntFlag defines a flag for a whole number from min to max. The current value is the default. The help shows the bounds, and so
// does the error for another number.
func IntFlag(flags *pflag.FlagSet, value *int, name string, min, max int, usage string) {
	flags.Var(&number{value, min, max}, name, fmt.Sprintf("%s, %d to %d", usage, min, max))
}

// Set parses the flag.
func (n *number) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < n.min || v > n.max {
		return fmt.Errorf("must be a whole number from %d to %d", n.min, n.max)
	}
	*n.value = v
	return nil
}

// String returns the value, which the help shows as the default.
func (n *number) String() string { return strconv.Itoa(*n.value) }

// Type names the value in the help.
func (n *number) Type() string { return "n" }

// FlagYes answers the question of a command.
const FlagYes = "yes"

// YesFlag gives cmd --yes.
func YesFlag(cmd *cobra.Command) { cmd.Flags().Bool(FlagYes, false, "do not ask for confirmation") }

// CanAsk reports whether somebody can answer a question of cmd.
func CanAsk(cmd *cobra.Command) bool { return IsTerminal(cmd.InOrStdin()) }

// Confirm asks a question, and returns an error unless the user types yes. With --yes, it does not ask. Without a terminal, nobody can
// answer. Then the error is a UsageError.
func Confirm(cmd *cobra.Command, question string) error {
	if yes, _ := cmd.Flags().GetBool(FlagYes); yes {
		return nil
	}
	if !CanAsk(cmd) {
		return UsageError{Err: fault.Advise(errors.New("nothing was changed: the command asks before it does this, and there is no terminal to ask at"), "give --%s", FlagYes)}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s Type yes: ", EscapeLines(question))
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err == nil && strings.TrimSpace(answer) == FlagYes {
		return nil
	}
	return fault.Advise(errors.New("not confirmed, so nothing was changed"), "type yes, or give --%s", FlagYes)
}
