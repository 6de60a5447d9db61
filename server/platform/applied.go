package platform

import (
	"context"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// appliedStore is the part of the store that knows which objects apply has created.
type appliedStore interface {
	// Applied lists these objects newest first, with row ids below before; 0 starts at the newest.
	Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error)
	AppliedObject(ctx context.Context, kind, key string) (access.Applied, error)
	// ForgetApplied forgets that apply has created an object, which stays.
	ForgetApplied(ctx context.Context, actor access.Actor, kind, key string) error
}

// Applied are the endpoints of the objects that `keyhook apply` has created.
type Applied struct{ store appliedStore }

type appliedBody struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// List lists the objects that apply has created, newest first.
func (h Applied) List(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.store.Applied, func(a access.Applied) appliedBody { return appliedBody{a.Kind, a.Key} },
		func(a access.Applied) int64 { return a.RowID })
}

// Find returns the object in the path.
func (h Applied) Find(x *exchange.Exchange) (found access.Applied, err error) {
	kind, key := x.Path.Value("kind"), x.Path.Value("key")
	if !access.IsAppliedKind(kind) || !utf8.ValidString(key) {
		return found, fault.Missing("applied object")
	}
	return h.store.AppliedObject(x.Request.Context(), kind, key)
}

// Forget makes apply forget that it created an object. The object stays.
func (h Applied) Forget(x *exchange.Exchange) error {
	found, err := h.Find(x)
	if err != nil {
		return err
	}
	return x.Done(h.store.ForgetApplied(x.Request.Context(), x.Actor(), found.Kind, found.Key))
}
