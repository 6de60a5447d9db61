package form

import (
	"context"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// referenceStore is what forms ask of the store: whether what a body names is there.
type LookupStore interface {
	Plan(ctx context.Context, name string) (access.Plan, error)
	Role(ctx context.Context, name string) (access.Role, error)
	OrganizationByID(ctx context.Context, id string) (access.Organization, error)
	// UnknownPermissions returns the part of a scope that is not in the vocabulary.
	UnknownPermissions(ctx context.Context, named access.Scope) (access.Scope, error)
}

// references read the fields that name something else. The store looks again in the transaction of the change; what is
// missing is told here already so that a caller learns all problems of a body at once.
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
	return lookUp(ctx, f, name, "organization", r.Store.OrganizationByID)
}

// existing returns the name or the id of something that find finds. A malformed one is as unknown as one that names
// nothing.
func lookUp[T any](ctx context.Context, f *Form, name, sort string, find func(context.Context, string) (T, error)) *string {
	text := f.Line(name, MaxName)
	if text == nil {
		return nil
	}
	switch _, err := find(ctx, *text); {
	case fault.KindOf(err) == fault.NotFound:
		f.Refuse(name, "unknown_"+sort, "There is no such %s; GET /api/v1/%ss/ lists them.", sort, sort)
		return nil
	case err != nil:
		f.Fail(fmt.Errorf("look up %s: %w", sort, err))
		return nil
	}
	return text
}

// permissions returns a list of permission keys.
func (r Lookup) Permissions(ctx context.Context, f *Form, name string) *access.Scope {
	list := f.Strings(name)
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
			f.Refuse(e.Field, CodeUnknownPermission, "There is no such permission; a permission has the form orders:read, and GET /api/v1/permissions/ lists them.")
		case unknown.Has(e.Text):
			f.Refuse(e.Field, CodeUnknownPermission, "There is no permission %s; an operator can add it to the vocabulary.", e.Text)
		}
	}
	return &scope
}

// How much of a scope an error shows.
const (
	maxShown     = 10       // words
	maxScope     = 64 << 10 // characters that are read
	maxShownWord = access.MaxPermissionKey
)

// scope returns a space-delimited list of permission keys. What is wrong with it is one problem: it is one field.
func (r Lookup) Scope(ctx context.Context, f *Form, name string) access.Scope {
	text := f.Text(name, maxScope)
	if text == nil {
		return access.Scope{}
	}
	scope, wrong := access.ParseScope(*text)
	if len(wrong) == 0 && scope.Empty() {
		f.Refuse(name, "blank", "Name at least one permission, with spaces between several.")
		return scope
	}
	wrong = append(wrong, r.unknown(ctx, f, scope).Keys()...)
	if len(wrong) == 0 {
		return scope
	}
	more := ""
	if len(wrong) > maxShown {
		more = fmt.Sprintf(" and %d more", len(wrong)-maxShown)
		wrong = wrong[:maxShown]
	}
	for i, word := range wrong {
		wrong[i] = Printable(word, maxShownWord)
	}
	f.Refuse(name, CodeUnknownPermission, "There is no permission %s%s; an operator can add to the vocabulary.", strings.Join(wrong, ", "), more)
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
