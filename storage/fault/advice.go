package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Advice is an error that says what to do about it. Find it with errors.As, or take an error apart with Split.
type Advice struct {
	What  string // what happened and why, without a full stop
	Mend  string // what to do: the exact command, setting or field
	cause error
}

// Advise adds a mend to an error, which stays in the chain. It returns nil if err is nil.
func Advise(err error, mend string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Advice{What: err.Error(), Mend: fmt.Sprintf(mend, args...), cause: err}
}

// AdviseMissing adds a mend to an error that has none. It returns any other error unchanged, because the package that found
// the error knows the best mend.
func AdviseMissing(err error, mend string, args ...any) error {
	if _, has := errors.AsType[*Advice](err); has {
		return err
	}
	return Advise(err, mend, args...)
}

// Error returns what happened, a semicolon, and what to do.
func (a *Advice) Error() string { return a.What + a.end() }

func (a *Advice) end() string { return "; " + a.Mend }

// Unwrap returns the error that the mend is for.
func (a *Advice) Unwrap() error { return a.cause }

// Split returns the text of an error without its mend, and the mend. The mend is empty if there is none.
func Split(err error) (what, mend string) {
	what = err.Error()
	if a, has := errors.AsType[*Advice](err); has {
		return strings.TrimSuffix(what, a.end()), a.Mend
	}
	return what, ""
}

// WithoutPath returns the error of the system in a *fs.PathError, for a sentence that names the path, or must not show it. Any other error
// stays as it is.
func WithoutPath(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
