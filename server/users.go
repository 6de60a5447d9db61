package server

import (
	"context"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// userStore is the part of the store that the user endpoints use.
type userStore interface {
	// Users lists them newest first, with row ids below before; 0 starts at the newest.
	Users(ctx context.Context, before int64, limit int) ([]access.User, error)
	User(ctx context.Context, id string) (access.User, error)
	CreateUser(ctx context.Context, actor access.Actor, u access.User) (access.User, error)
	UpdateUser(ctx context.Context, actor access.Actor, id string, c access.UserChange) (access.User, error)
	DeleteUser(ctx context.Context, actor access.Actor, id string) error
}

// users are the user endpoints.
type users struct {
	store userStore
}

type userBody struct {
	ID         string  `json:"id"`
	Email      string  `json:"email"`
	Name       string  `json:"name"`
	ExternalID *string `json:"external_id"`
	IsActive   bool    `json:"is_active"`
}

func newUserBody(u access.User) userBody {
	return userBody{u.ID, u.Email, u.Name, u.ExternalID, u.IsActive}
}

// create uses the e-mail address as the name if there is none, so that the audit log always has a name.
func (h users) create(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	f.Require("email")
	change := readUser(f)
	if err := f.Err(); err != nil {
		return err
	}
	made := access.User{Email: *change.Email, Name: *change.Email, IsActive: change.IsActive == nil || *change.IsActive}
	if change.Name != nil {
		made.Name = *change.Name
	}
	if change.ExternalID != nil {
		made.ExternalID = nullIfEmpty(*change.ExternalID)
	}
	user, err := h.store.CreateUser(x.request.Context(), x.actor(), made)
	if err != nil {
		return err
	}
	return x.created("/api/v1/users/"+user.ID+"/", newUserBody(user))
}

// readUser reads the fields of a user that a caller may set.
func readUser(f *form.Form) access.UserChange {
	return access.UserChange{
		Email: f.Email("email"), Name: f.Label("name"), ExternalID: f.ExternalID("external_id"), IsActive: f.Bool("is_active"),
	}
}

func (h users) list(x *exchange) error {
	p, err := x.page()
	if err != nil {
		return err
	}
	found, err := h.store.Users(x.request.Context(), p.After.Row, p.More())
	if err != nil {
		return err
	}
	return writePage(x, p, found, newUserBody, func(u access.User) form.Position { return form.Position{Row: u.RowID} })
}

// find returns the user in the path.
func (h users) find(x *exchange) (found access.User, err error) {
	id, err := x.pathID("id", userID, aUser)
	if err != nil {
		return found, err
	}
	return h.store.User(x.request.Context(), id)
}

func (h users) read(x *exchange) error {
	found, err := h.find(x)
	if err != nil {
		return err
	}
	return x.ok(newUserBody(found))
}

func (h users) update(x *exchange) error {
	id, err := x.pathID("id", userID, aUser)
	if err != nil {
		return err
	}
	f, err := x.form()
	if err != nil {
		return err
	}
	change := readUser(f)
	if err := f.Err(); err != nil {
		return err
	}
	user, err := h.store.UpdateUser(x.request.Context(), x.actor(), id, change)
	if err != nil {
		return err
	}
	return x.ok(newUserBody(user))
}

func (h users) remove(x *exchange) error {
	id, err := x.pathID("id", userID, aUser)
	if err != nil {
		return err
	}
	if err := h.store.DeleteUser(x.request.Context(), x.actor(), id); err != nil {
		return err
	}
	return x.noContent()
}
