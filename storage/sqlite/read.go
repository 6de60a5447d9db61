package sqlite

import "context"

// Reader reads: a *Tx in its transaction, or a Pool.In beside the writer.
type Reader interface {
	Get(dest any, text string, args ...any) error
	List(dest any, text string, args ...any) error
}

// poolReader is a pool with the context of its reads.
type poolReader struct {
	*Pool
	ctx context.Context
}

// In returns the pool as a Reader whose reads end with a context.
func (p *Pool) In(ctx context.Context) Reader { return poolReader{p, ctx} }

func (r poolReader) Get(dest any, text string, args ...any) error {
	return r.Pool.Get(r.ctx, dest, text, args...)
}

func (r poolReader) List(dest any, text string, args ...any) error {
	return r.Pool.List(r.ctx, dest, text, args...)
}

// One reads one row. Faults: NotFound for a thing of the sort if there is none.
func One[T any](from Reader, sort, text string, args ...any) (found T, err error) {
	err = from.Get(&found, text, args...)
	return found, Missing(err, sort)
}

// All reads all rows. The slice is not nil, even if it is empty.
func All[T any](from Reader, text string, args ...any) ([]T, error) {
	rows := []T{}
	err := from.List(&rows, text, args...)
	return rows, err
}
