package sqlite

import (
	"context"
	"sync/atomic"
)

// joinedKey is the key of the transaction in the context of Transact. Another file has another key.
type joinedKey struct{ *File }

// joinedTx is the transaction of Transact.
type joinedTx struct {
	*Tx
	failed error       // of the first write that has failed after it changed something
	ended  atomic.Bool // then a context that somebody has kept means no transaction
}

// Transact is Write for several writes and reads: those that fn makes with the context that it gets belong to its transaction. They
// run at once, as a part of w, so only w counts. If fn returns an error, nothing was written, and likewise if one of the writes failed after
// it changed something, though fn ignores that. fn must make all calls with that context, or it waits for itself, and not in another
// goroutine, because a transaction has one.
func (f *File) Transact(ctx context.Context, w Work, fn func(context.Context) error) error {
	return f.Write(ctx, w, func(t *Tx) error {
		j := &joinedTx{Tx: t}
		defer j.ended.Store(true)
		if err := fn(context.WithValue(ctx, joinedKey{f}, j)); err != nil {
			return err
		}
		return j.failed
	})
}

// joined returns the transaction of Transact that a context belongs to; nil outside of one.
func (f *File) joined(ctx context.Context) *joinedTx {
	j, _ := ctx.Value(joinedKey{f}).(*joinedTx)
	if j == nil || j.ended.Load() {
		return nil
	}
	return j
}

// write runs a write as a part of the transaction. Its errors stay as they are: Transact needs to know those of the file.
func (j *joinedTx) write(fn func(*Tx) error) error {
	before := j.dirty
	j.dirty = false
	err := fn(j.Tx)
	if err != nil && j.failed == nil && (j.dirty || code(err) != 0) {
		j.failed = err
	}
	j.dirty = j.dirty || before
	return err
}
