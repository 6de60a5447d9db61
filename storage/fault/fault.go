// Package fault owns the failures that callers and operators see. It does not know HTTP statuses or SQL: the server maps a
// kind to a status in one table, and storage maps a constraint to a kind in another.
//
// An Error is for a caller of the API. Any other error is internal: it is logged, and its text never reaches a caller.
//
// An Advice is for an operator. It keeps what happened apart from the mend, which is what to do about it. Storage states
// facts, and gives a mend only in terms that it knows, such as a file to move away. The mends by code, which are a sentence, a command or a
// button, stand in one table in server/explain; those of the commands on a file stand in server/cli/database, by error. So nobody has to
// cut an error text into parts.
package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Kind says what sort of failure it is, and so who can do something about it.
type Kind uint8

// The kinds. The zero value is Internal, so that an error without a kind is never shown.
const (
	Internal        Kind = iota // a fault of Keyhook; the caller gets only the request id
	Malformed                   // the request cannot be parsed
	Unauthenticated             // no credential, or an invalid one
	Forbidden                   // a valid credential without the permission
	NotFound                    // it does not exist, or this caller may not know that it does
	Conflict                    // the state of the resource forbids the request
	Invalid                     // one or more fields are wrong
	TooLarge                    // larger than the limit that the message names
	Gone                        // what the caller names existed and was deleted
	Limited                     // too many requests; try again later
	Unavailable                 // not possible now; the same request may succeed later
)

// Field is one problem with one field of a request.
type Field struct {
	Field   string // the name that the caller wrote, with dots between levels: "events.3.type"
	Code    string // stable, snake_case
	Message string // what to do, in a sentence
}

// Error is a failure that a caller may see. Message and Fields are public; the cause that Unwrap returns is not.
type Error struct {
	Kind     Kind
	Code     string // stable, snake_case: clients depend on it
	Message  string // what happened, and what to do if that is not in a table of mends
	Fields   []Field
	Existing string // of a Conflict with something that exists: its id, name or key
	cause    error
}

// New makes a fault. The message is formatted with args. It is public, so it must not have secrets or internal facts.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Fields makes an Invalid fault of all problems with a request, or nil if there are none.
func Fields(fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Error{Kind: Invalid, Code: "validation_failed", Message: "One or more fields are invalid.", Fields: fields}
}

// InField makes an Invalid fault of one problem with one field.
func InField(field, code, format string, args ...any) error {
	return Fields([]Field{{field, code, fmt.Sprintf(format, args...)}})
}

// Missing is the NotFound fault for a thing of the given sort ("API key", "subscription"). It is the same if the thing never
// existed, was deleted, or belongs to another organization.
func Missing(sort string) *Error { return New(NotFound, "not_found", "There is no such %s.", sort) }

// Because returns a copy of e with a private cause, for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Error returns the public message and the private cause. It is for logs, not for callers.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString(e.Code + ": " + e.Message)
	for _, f := range e.Fields {
		text.WriteString(" " + f.Field + ": " + f.Message)
	}
	if e.cause != nil {
		text.WriteString(" (" + e.cause.Error() + ")")
	}
	return text.String()
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.cause }

// As finds the fault in the chain of err. ok is false for an internal error.
func As(err error) (e *Error, ok bool) { return errors.AsType[*Error](err) }

// KindOf returns the kind of err, which is Internal if no fault is in its chain.
func KindOf(err error) Kind {
	if err == nil {
		return Internal // most requests ask about no error, and As would allocate
	}
	if e, ok := As(err); ok {
		return e.Kind
	}
	return Internal
}

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
