package server

import (
	"errors"

	"github.com/keyhook/keyhook/storage/fault"
)

// exists adapts a finder to a yes/no check.
func exists[T any](find func(*call) (T, error)) func(*call) error {
	return func(c *call) error {
		_, err := find(c)
		return err
	}
}

// orMissing returns what to answer to a request that has failed with err. One that is wrong in itself is told so only
// where there is what its path names: of what belongs to others, or does not exist, 404 is all that anybody learns. It is
// looked up this late so that no request that is right pays for it; what the handler asks of the store looks there first
// anyway.
func (c *call) missingInstead(err error) error {
	if c.route.exists == nil || !isInvalidRequest(err) {
		return err
	}
	if missing := c.route.exists(c); fault.KindOf(missing) == fault.NotFound {
		return missing
	}
	return err
}

// wrongInItself reports whether err is about the query or the body of a request and not about the state of things.
func isInvalidRequest(err error) bool {
	kind := fault.KindOf(err)
	var unsupported *refusal
	return kind == fault.Malformed || kind == fault.Invalid || kind == fault.TooLarge || errors.As(err, &unsupported)
}
