// Package fault owns the failures that callers and operators are told about. It knows neither HTTP statuses nor SQL: the
// server maps a kind to a status in one table, and storage maps a constraint to a kind in another.
//
// An Error is for a caller of the API. An error that is not an Error is internal: it is logged, and its text never reaches
// a caller.
//
// An Advice is for an operator. It keeps what happened apart from the mend, which is what to do about it. A lower floor
// states facts, and gives a mend only in terms of its own, such as a file to move away. The floor that knows paths of the
// API, headers, flags and commands adds mends that name them: it has one table, from a code or a sentinel error to the mend.
// So no error text is ever cut into parts.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says whose move it is after a failure.
type Kind uint8

// The kinds. The zero value is Internal, so that an error nobody classified is never shown.
const (
	Internal        Kind = iota // ours; the caller learns nothing but the request id
	Malformed                   // the request cannot be parsed
	Unauthenticated             // no credential, or one that does not hold
	Forbidden                   // the credential holds, but not for this
	NotFound                    // nothing there, or nothing that this caller may know of
	Conflict                    // the state of the resource forbids it
	Invalid                     // parsed, but one or more fields are wrong
	TooLarge                    // larger than the limit that the message names
	Limited                     // too many requests; later is fine
	Unavailable                 // cannot be done now; the same request may succeed later
)

// Field is one thing wrong with one field of a request.
type Field struct {
	Field   string // name as the caller wrote it, nested with dots: "events.3.type"
	Code    string // stable, snake_case
	Message string // what to do, in a sentence
}

// Error is a failure that may be shown to a caller. Message and Fields are public; the cause behind Unwrap is not.
type Error struct {
	Kind    Kind
	Code    string // stable, snake_case: clients branch on it
	Message string // one sentence that says what to do
	Fields  []Field
	cause   error
}

// New makes a fault. The message is formatted with args and is public: put nothing into it that the caller may not see.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Fields makes an Invalid fault out of all that is wrong with a request, or nil where nothing is.
func Fields(fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Error{
		Kind: Invalid, Code: "validation_failed",
		Message: "One or more fields are invalid; see errors.",
		Fields:  fields,
	}
}

// Missing is the NotFound fault for a thing of the given sort ("api key", "subscription"). It is the same whether the
// thing never existed, is gone, or belongs to another organization.
func Missing(sort string) *Error {
	return New(NotFound, "not_found", "There is no such %s.", sort)
}

// Because returns a copy of e that remembers the private cause, for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Error returns the public message, followed by the private cause if there is one: it is for logs, not for callers.
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

// As finds the fault in err's chain; ok is false for an internal error.
func As(err error) (e *Error, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}

// KindOf returns the kind of err: Internal unless a fault is in its chain.
func KindOf(err error) Kind {
	if err == nil {
		return Internal // without the allocation that As costs, since most requests ask it about no error at all
	}
	if e, ok := As(err); ok {
		return e.Kind
	}
	return Internal
}
