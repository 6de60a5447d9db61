package config

import (
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
)

// Problem is one wrong setting. It never contains the text of a secret.
type Problem struct {
	Setting string // dotted name; empty if there is no such setting
	Source  string // "keyhook.yaml:12", "KEYHOOK_LOG_LEVEL" or "--log.level"; empty if none is known
	What    string // what is wrong
	Mend    string // what to write instead; may be empty
}

// NewProblem makes a Problem from an error. The mend comes from the fault.Advice in the error.
func NewProblem(setting, source string, err error) Problem {
	what, mend := fault.Split(err)
	return Problem{setting, source, what, mend}
}

// Where returns the setting and its source.
func (p Problem) Where() string {
	switch {
	case p.Setting == "" || p.Source == "--"+p.Setting: // a flag with the name of the setting
		return p.Source
	case p.Source == "" || p.Source == fromDefault:
		return p.Setting
	default:
		return p.Setting + " (" + p.Source + ")"
	}
}

// String returns the problem in one line.
func (p Problem) String() string {
	text := p.Where() + ": " + p.What
	if p.Mend != "" {
		text += "; " + p.Mend
	}
	return text
}

// Problems are all wrong settings. Load returns it as its error. Find it with errors.As.
type Problems []Problem

// Error returns one line for a single problem. For several it returns a line with their number, and one line for each.
func (p Problems) Error() string {
	if len(p) == 1 {
		return "wrong setting: " + p[0].String()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d wrong settings:", len(p))
	for _, problem := range p {
		text.WriteString("\n  " + problem.String())
	}
	return text.String()
}
