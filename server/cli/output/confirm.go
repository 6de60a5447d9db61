package output

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/storage/fault"
)

// FlagYes answers the question of a command.
const FlagYes = "yes"

// YesFlag gives cmd --yes.
func YesFlag(cmd *cobra.Command) {
	cmd.Flags().Bool(FlagYes, false, "do not ask for confirmation")
}

// CanAsk reports whether somebody can answer a question of cmd.
func CanAsk(cmd *cobra.Command) bool { return IsTerminal(cmd.InOrStdin()) }

// Confirm asks a question, and returns an error unless the user types yes. With --yes, it does not ask. Without a terminal, nobody can
// answer. Then the error is a UsageError.
func Confirm(cmd *cobra.Command, question string) error {
	if yes, _ := cmd.Flags().GetBool(FlagYes); yes {
		return nil
	}
	if !CanAsk(cmd) {
		return UsageError{Err: fault.Advise(errors.New("nothing was changed: the command asks before it does this, and there is no terminal to ask at"),
			"look at --dry-run or --help, and then give --%s", FlagYes)}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s Type yes: ", EscapeLines(question))
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err == nil && strings.TrimSpace(answer) == FlagYes {
		return nil
	}
	return fault.Advise(errors.New("not confirmed, so nothing was changed"), "type yes, or give --%s", FlagYes)
}
