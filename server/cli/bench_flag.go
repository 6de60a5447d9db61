package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// number is a flag for a whole number within bounds. It refuses any other while the command line is read, in words that
// say what is allowed.
type number struct {
	value    *int
	min, max int
}

// bounded defines such a flag. What value holds is the default.
func bounded(flags *pflag.FlagSet, value *int, name string, least, most int, usage string) {
	flags.Var(&number{value, least, most}, name, fmt.Sprintf("%s, %d to %d", usage, least, most))
}

func (n *number) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < n.min || v > n.max {
		return fmt.Errorf("it takes a whole number from %d to %d", n.min, n.max)
	}
	*n.value = v
	return nil
}

func (n *number) String() string { return strconv.Itoa(*n.value) }
func (n *number) Type() string   { return "n" }
