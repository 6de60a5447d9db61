package apply

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// problem is one mistake in the file.
type problem struct {
	line int    // 0 for the file as a whole
	what string // what is wrong, and what to write instead
}

// Problems are all mistakes in a file. Find it with errors.As.
type Problems struct {
	file     string
	problems []problem
}

// maxShown is how many mistakes are printed.
const maxShown = 50

// Error returns one line for each mistake, in the order of the file.
func (p Problems) Error() string {
	list := slices.SortedStableFunc(slices.Values(p.problems), func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var b strings.Builder
	if len(list) == 1 {
		return "nothing was changed; " + p.text(list[0])
	}
	fmt.Fprintf(&b, "nothing was changed; %d problems:", len(list))
	for i, one := range list {
		if i == maxShown {
			fmt.Fprintf(&b, "\n  … and %d more", len(list)-i)
			break
		}
		b.WriteString("\n  " + p.text(one))
	}
	return b.String()
}

func (p Problems) text(one problem) string {
	if one.line == 0 {
		return p.file + ": " + one.what
	}
	return fmt.Sprintf("%s:%d: %s", p.file, one.line, one.what)
}
