package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// referenceStore is what forms ask of the store: whether what a body names is there.
type referenceStore interface {
	Plan(ctx context.Context, name string) (access.Plan, error)
	Role(ctx context.Context, name string) (access.Role, error)
	OrganizationByID(ctx context.Context, id string) (access.Organization, error)
	// UnknownPermissions returns the part of a scope that is not in the vocabulary.
	UnknownPermissions(ctx context.Context, named access.Scope) (access.Scope, error)
}

// references read the fields that name something else. The store looks again in the transaction of the change; what is
// missing is told here already so that a caller learns all problems of a body at once.
type references struct {
	store referenceStore
}

func (r references) plan(c *call, f *form, name string) *string {
	return existing(c, f, name, aPlan, r.store.Plan)
}

func (r references) role(c *call, f *form, name string) *string {
	return existing(c, f, name, aRole, r.store.Role)
}

func (r references) organization(c *call, f *form, name string) *string {
	return existing(c, f, name, anOrg, r.store.OrganizationByID)
}

// existing returns the name or the id of something that find finds. A malformed one is as unknown as one that names
// nothing.
func existing[T any](c *call, f *form, name, sort string, find func(context.Context, string) (T, error)) *string {
	text := f.line(name, maxName)
	if text == nil {
		return nil
	}
	switch _, err := find(c.request.Context(), *text); {
	case fault.KindOf(err) == fault.NotFound:
		f.refuse(name, "unknown_"+sort, "There is no such %s; GET /api/v1/%ss/ lists them.", sort, sort)
		return nil
	case err != nil:
		f.fail(fmt.Errorf("look up %s: %w", sort, err))
		return nil
	}
	return text
}

// permissions returns a list of permission keys.
func (r references) permissions(c *call, f *form, name string) *access.Scope {
	list := f.list(name)
	if list == nil {
		return nil
	}
	keys := make([]string, 0, len(list))
	for _, e := range list {
		if access.ValidPermissionKey(e.text) {
			keys = append(keys, e.text)
		}
	}
	scope := access.NewScope(keys...)
	unknown := r.unknown(c, f, scope)
	for _, e := range list {
		switch {
		case !access.ValidPermissionKey(e.text):
			f.refuse(e.at, codeUnknownPermission, "There is no such permission; a permission has the form orders:read, and GET /api/v1/permissions/ lists them.")
		case unknown.Has(e.text):
			f.refuse(e.at, codeUnknownPermission, "There is no permission %s; an operator can add it to the vocabulary.", e.text)
		}
	}
	return &scope
}

// How much of a scope an error shows.
const (
	maxShown     = 10 // words
	maxShownWord = access.MaxPermissionKey
)

// scope returns a space-delimited list of permission keys. What is wrong with it is one problem: it is one field.
func (r references) scope(c *call, f *form, name string) access.Scope {
	text := f.plain(name, small)
	if text == nil {
		return access.Scope{}
	}
	scope, wrong := access.ParseScope(*text)
	if len(wrong) == 0 && scope.Empty() {
		f.refuse(name, "blank", "Name at least one permission, with spaces between several.")
		return scope
	}
	wrong = append(wrong, r.unknown(c, f, scope).Keys()...)
	if len(wrong) == 0 {
		return scope
	}
	more := ""
	if len(wrong) > maxShown {
		more = fmt.Sprintf(" and %d more", len(wrong)-maxShown)
		wrong = wrong[:maxShown]
	}
	for i, word := range wrong {
		wrong[i] = shown(word, maxShownWord)
	}
	f.refuse(name, codeUnknownPermission, "There is no permission %s%s; an operator can add to the vocabulary.", strings.Join(wrong, ", "), more)
	return scope
}

func (r references) unknown(c *call, f *form, scope access.Scope) access.Scope {
	if scope.Empty() {
		return scope
	}
	unknown, err := r.store.UnknownPermissions(c.request.Context(), scope)
	if err != nil {
		f.fail(fmt.Errorf("look up permissions: %w", err))
	}
	return unknown
}

const codeUnknownPermission = "unknown_permission"
