package pending

import "context"

// SharedRead makes a shared read of a number, for tests.
func SharedRead() func(context.Context, func(context.Context) (int, error)) (int, error) {
	r := newSharedRead[int]()
	return r.get
}
