package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
)

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

// ListMembers lists the members of an organization, newest user first.
func (h *Endpoints) ListMembers(x *exchange.Exchange) error {
	id := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.Member, error) {
		return h.Store.Members(ctx, id, before, limit)
	}
	return exchange.ListRows(x, list, newMemberBody, func(m access.Member) int64 { return m.UserRow })
}

// SetMember gives a user a role. It adds the user if it is not a member yet.
func (h *Endpoints) SetMember(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	f := x.Form()
	f.Require("role")
	role := h.lookup.Role(x.Request.Context(), f, "role")
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newMemberBody)(h.Store.SetMember(x.Request.Context(), x.Actor(), id, user, *role))
}

// RemoveMember removes a user from an organization.
func (h *Endpoints) RemoveMember(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	return x.Done(h.Store.RemoveMember(x.Request.Context(), x.Actor(), id, user))
}

// MemberExists checks that the organization and the user exist. The user need not be a member.
func (h *Endpoints) MemberExists(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	if _, err := h.Store.Organization(x.Request.Context(), id); err != nil {
		return err
	}
	_, err := h.Store.User(x.Request.Context(), user)
	return err
}

// memberIDs reads the organization and the user of a member from the path.
func memberIDs(x *exchange.Exchange) (organization, user string) {
	return x.Path.Value("id"), x.Path.Value("user_id")
}
