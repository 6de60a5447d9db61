package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// memberStore is the part of the store that the member endpoints use.
type memberStore interface {
	// Members lists them, newest user first, with row ids below before; 0 starts at the newest.
	Members(ctx context.Context, organization string, before int64, limit int) ([]access.Member, error)
	// SetMember gives a user a role. It adds the user if it is not a member yet.
	SetMember(ctx context.Context, actor access.Actor, organization, user, role string) (access.Member, error)
	RemoveMember(ctx context.Context, actor access.Actor, organization, user string) error
	Organization(ctx context.Context, id string) (access.Organization, error)
	User(ctx context.Context, id string) (access.User, error)
}

// Members are the member endpoints.
type Members struct {
	store  memberStore
	lookup form.Lookup
}

type memberBody struct {
	UserID string  `json:"user_id"`
	Email  *string `json:"email"`
	Name   string  `json:"name"`
	Role   string  `json:"role"`
	Kind   string  `json:"kind"`
}

func newMemberBody(m access.Member) memberBody {
	return memberBody{m.UserID, exchange.NullIfEmpty(m.Email), m.Name, m.Role, UserKind(m.IsService)}
}

// List lists the members of an organization, newest user first.
func (h Members) List(x *exchange.Exchange) error {
	id := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.Member, error) {
		return h.store.Members(ctx, id, before, limit)
	}
	return exchange.ListRows(x, list, newMemberBody, func(m access.Member) int64 { return m.UserRow })
}

// Set gives a user a role. It adds the user if it is not a member yet.
func (h Members) Set(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	f := x.Form()
	f.Require("role")
	role := h.lookup.Role(x.Request.Context(), f, "role")
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newMemberBody)(h.store.SetMember(x.Request.Context(), x.Actor(), id, user, *role))
}

// Remove removes a user from an organization.
func (h Members) Remove(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	return x.Done(h.store.RemoveMember(x.Request.Context(), x.Actor(), id, user))
}

// Exist checks that the organization and the user exist. The user need not be a member.
func (h Members) Exist(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	if _, err := h.store.Organization(x.Request.Context(), id); err != nil {
		return err
	}
	_, err := h.store.User(x.Request.Context(), user)
	return err
}

// memberIDs reads the organization and the user of a member from the path.
func memberIDs(x *exchange.Exchange) (organization, user string) {
	return x.Path.Value("id"), x.Path.Value("user_id")
}
