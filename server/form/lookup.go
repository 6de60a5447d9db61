package form

import (
	"context"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// LookupStore is the part of the store that finds resources by the names in a body.
type LookupStore interface {
	Plan(ctx context.Context, name string) (access.Plan, error)
	Role(ctx context.Context, name string) (access.Role, error)
	// Organization returns the organization with an id or an external id.
	Organization(ctx context.Context, id string) (access.Organization, error)
	// UnknownPermissions returns the permissions of a scope that do not exist.
	UnknownPermissions(ctx context.Context, named access.Scope) (access.Scope, error)
}

// Lookup reads fields that name stored resources: plans, roles, organizations and permissions. A resource that does not exist is a
// problem of the field, so a caller learns all problems of a body at once. The store checks again in the transaction.
type Lookup struct {
	Store LookupStore
}

func (r Lookup) Plan(ctx context.Context, f *Form, name string) *string {
	return lookUp(ctx, f, name, "plan", r.Store.Plan)
}

func (r Lookup) Role(ctx context.Context, f *Form, name string) *string {
	return lookUp(ctx, f, name, "role", r.Store.Role)
}

func (r Lookup) Organization(ctx context.Context, f *Form, name string) *string {
	return lookUp(ctx, f, name, "organization", r.Store.Organization)
}

// lookUp returns the name, the id or the external id of an existing resource. A malformed name is an unknown name.
func lookUp[T any](ctx context.Context, f *Form, name, sort string, find func(context.Context, string) (T, error)) *string {
	text := f.Line(name, access.MaxExternalID)
	if text == nil {
		return nil
	}
	switch _, err := find(ctx, *text); {
	case fault.KindOf(err) == fault.NotFound:
		f.Refuse(name, "unknown_"+sort, "There is no such %s; list them with GET /api/v1/%ss/.", sort, sort)
		return nil
	case err != nil:
		f.Fail(fmt.Errorf("look up %s: %w", sort, err))
		return nil
	}
	return text
}

// Permissions returns a list of permissions.
func (r Lookup) Permissions(ctx context.Context, f *Form, name string) *access.Scope {
	list := f.Strings(name, permissions)
	if list == nil {
		return nil
	}
	keys := make([]string, 0, len(list))
	for _, e := range list {
		if access.ValidPermissionKey(e.Text) {
			keys = append(keys, e.Text)
		}
	}
	scope := access.NewScope(keys...)
	unknown := r.unknown(ctx, f, scope)
	for _, e := range list {
		switch {
		case !access.ValidPermissionKey(e.Text):
			f.Refuse(e.Field, CodeUnknownPermission, "This is not a permission; permissions look like orders:read, and GET /api/v1/permissions/ lists them.")
		case unknown.Has(e.Text):
			f.Refuse(e.Field, CodeUnknownPermission, "There is no permission %s; correct it, or ask an operator to create it at /api/v1/permissions/.", e.Text)
		}
	}
	return &scope
}

// Limits of a scope, in characters.
const (
	maxScope = 64 << 10
	maxShown = 1000 // of the unknown ones in an error
)

// Scope returns a space-delimited list of permissions. It adds one problem at most, because it is one field.
func (r Lookup) Scope(ctx context.Context, f *Form, name string) access.Scope {
	text := f.text(name, f.take(name), maxScope, aScope)
	if text == nil {
		return access.Scope{}
	}
	scope, wrong := access.ParseScope(*text)
	if len(wrong) == 0 && scope.Empty() {
		f.Refuse(name, "blank", "This must name at least one permission; separate several with spaces.")
		return scope
	}
	wrong = append(wrong, r.unknown(ctx, f, scope).Keys()...)
	if len(wrong) == 0 {
		return scope
	}
	for i, word := range wrong {
		wrong[i] = Printable(word, access.MaxPermissionKey)
	}
	f.Refuse(name, CodeUnknownPermission, "Unknown permissions: %s. Use those that GET /api/v1/permissions/ lists, or ask an operator to create these there.",
		Printable(strings.Join(wrong, ", "), maxShown))
	return scope
}

func (r Lookup) unknown(ctx context.Context, f *Form, scope access.Scope) access.Scope {
	if scope.Empty() {
		return scope
	}
	unknown, err := r.Store.UnknownPermissions(ctx, scope)
	if err != nil {
		f.Fail(fmt.Errorf("look up permissions: %w", err))
	}
	return unknown
}

const CodeUnknownPermission = "unknown_permission"
