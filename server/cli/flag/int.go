// Package flag owns the flags that several commands define, and the files that hold the values of flags. It does not know the
// commands.
package flag

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// number is a flag for a whole number within bounds.
type number struct {
	value    *int
	min, max int
}

// Int defines a flag for a whole number from min to max. The current value is the default. The help shows the bounds, and so
// does the error for another number.
func Int(flags *pflag.FlagSet, value *int, name string, min, max int, usage string) {
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
