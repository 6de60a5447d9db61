package config

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong with the configuration. It never holds the text of a secret.
type Problem struct {
	Setting string // dotted name; empty where it is of no setting that exists
	Source  string // "keyhook.yaml:12", "KEYHOOK_LOG_LEVEL" or "--log.level"; empty for a Config made in code
	Message string // what is wrong, and what to write instead
}

// String returns the problem in one line.
func (p Problem) String() string {
	switch {
	case p.Setting == "":
		return p.Source + ": " + p.Message
	case p.Source == "" || p.Source == fromDefault:
		return p.Setting + ": " + p.Message
	default:
		return p.Setting + " (" + p.Source + "): " + p.Message
	}
}

// Problems is all that is wrong with the configuration at once; Load and Validate return it as their error. Find it with
// errors.As.
type Problems []Problem

// Error returns one line for a single problem, and else a line for each below a first one that counts them.
func (p Problems) Error() string {
	if len(p) == 1 {
		return "configuration: " + p[0].String()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "configuration: %d problems", len(p))
	for _, problem := range p {
		text.WriteString("\n  " + problem.String())
	}
	return text.String()
}

// orNil keeps an empty list from being an error that is not nil.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
