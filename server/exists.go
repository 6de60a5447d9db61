package server

import (
	"errors"

	"github.com/keyhook/keyhook/storage/fault"
)

// exists adapts a finder to a yes/no check.
func exists[T any](find func(*exchange) (T, error)) func(*exchange) error {
	return func(x *exchange) error {
		_, err := find(x)
		return err
	}
}

// missingInstead returns the error to show for a request that failed with err. If the query or the body is invalid, that is
// told only if the resource in the path exists. Otherwise the response is 404, so that nobody learns anything about resources
// of others. Only failed requests pay for this look-up; a handler's own store call finds the resource anyway.
func (x *exchange) missingInstead(err error) error {
	if x.route.exists == nil || !isInvalidRequest(err) {
		return err
	}
	if missing := x.route.exists(x); fault.KindOf(missing) == fault.NotFound {
		return missing
	}
	return err
}

// isInvalidRequest reports whether err is about the query or the body of the request, not about stored data.
func isInvalidRequest(err error) bool {
	kind := fault.KindOf(err)
	var unsupported *refusal
	return kind == fault.Malformed || kind == fault.Invalid || kind == fault.TooLarge || errors.As(err, &unsupported)
}
