package server

import (
	"context"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// applyHeader marks the requests of `keyhook apply`. Keyhook remembers what they create. Its value is "true".
const applyHeader = "X-Keyhook-Apply"

// isApplying reports whether the request comes from `keyhook apply`.
func (x *exchange) isApplying() bool { return len(x.request.Header[applyHeader]) > 0 }

// needed returns the permissions that the request needs. What apply creates may be removed by a later apply, so a customer must
// not be able to say that something was applied.
func (x *exchange) needed() access.Scope {
	if !x.isApplying() {
		return x.route.needs
	}
	return x.route.needs.Union(access.NewScope(access.PlatformWrite))
}

// checkApplyHeader refuses another value than true: a client that sends "false" means the opposite.
func (x *exchange) checkApplyHeader() error {
	for _, value := range x.request.Header[applyHeader] {
		if value != "true" {
			return fault.New(fault.Malformed, form.CodeInvalidParameter, "The header %s may only be true; correct it or leave it out.", applyHeader)
		}
	}
	return nil
}

// appliedStore is the part of the store that lists what apply has created.
type appliedStore interface {
	// Applied lists it newest first, with row ids below before; 0 starts at the newest.
	Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error)
	AppliedObject(ctx context.Context, kind, key string) (access.Applied, error)
	// ForgetApplied forgets that apply has created an object, which stays.
	ForgetApplied(ctx context.Context, actor access.Actor, kind, key string) error
}

// applied is the endpoint of what `keyhook apply` has created.
type applied struct{ store appliedStore }

type appliedBody struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

func (h applied) list(x *exchange) error {
	return listRows(x, h.store.Applied, func(a access.Applied) appliedBody { return appliedBody{a.Kind, a.Key} },
		func(a access.Applied) int64 { return a.RowID })
}

// find returns the object in the path.
func (h applied) find(x *exchange) (found access.Applied, err error) {
	kind, key := x.params.ByName("kind"), x.params.ByName("key")
	if !access.IsAppliedKind(kind) || !utf8.ValidString(key) {
		return found, fault.Missing("applied object")
	}
	return h.store.AppliedObject(x.request.Context(), kind, key)
}

// forget makes an object belong to apply no longer. The object stays.
func (h applied) forget(x *exchange) error {
	found, err := h.find(x)
	if err != nil {
		return err
	}
	if err := h.store.ForgetApplied(x.request.Context(), x.actor(), found.Kind, found.Key); err != nil {
		return err
	}
	return x.noContent()
}
