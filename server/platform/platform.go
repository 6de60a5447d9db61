// Package platform owns the endpoints of operators: customers and people, what they may do, and the process with its queue and its
// database. It has no routes and no SQL. It does not check callers: the server decides who may call an endpoint.
package platform

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Options configure the endpoints. All are required.
type Options struct {
	Store      Store
	ConsoleURL string                                            // where browsers reach the server, in links to the console
	Deliveries func(context.Context) (warning string, err error) // whether deliveries are sent
}

// Endpoints are the endpoints. Those that all kinds of things have in common are in its resources. Use New.
type Endpoints struct {
	Options
	Organizations resource[access.Organization, organizationBody, access.OrganizationChange]
	Users         resource[access.User, userBody, access.UserChange]
	Plans         resource[access.Plan, PlanBody, access.PlanChange]
	Roles         resource[access.Role, roleBody, access.RoleChange]
	Permissions   resource[access.Permission, permissionBody, string]

	lookup  form.Lookup
	build   build.Info
	started time.Time
}

// New returns the endpoints.
func New(o Options) *Endpoints {
	h := &Endpoints{Options: o, lookup: form.Lookup{Store: o.Store}, build: build.Read(), started: time.Now()}
	h.Organizations = resource[access.Organization, organizationBody, access.OrganizationChange]{
		path: "/api/v1/organizations/", parameter: "id", name: func(o access.Organization) string { return o.ID },
		find: o.Store.Organization, body: newOrganizationBody, remove: o.Store.DeleteOrganization,
		wanted: h.readOrganization, create: o.Store.CreateOrganization,
		change: h.readOrganizationChange, update: o.Store.UpdateOrganization,
		id: access.OrganizationID, putChange: h.readOrganizationPut, put: o.Store.PutOrganization,
	}
	h.Users = resource[access.User, userBody, access.UserChange]{
		path: "/api/v1/users/", parameter: "id", name: func(u access.User) string { return u.ID },
		find: o.Store.User, body: newUserBody, remove: o.Store.DeleteUser,
		wanted: readUser, create: o.Store.CreateUser,
		change: readUserChange, update: o.Store.UpdateUser,
		id: access.UserID, putChange: readUserPut, put: o.Store.PutUser,
	}
	h.Plans = resource[access.Plan, PlanBody, access.PlanChange]{
		path: "/api/v1/plans/", parameter: "name", name: func(p access.Plan) string { return p.Name },
		find: o.Store.Plan, body: NewPlanBody, remove: o.Store.DeletePlan,
		list: o.Store.Plans, row: func(p access.Plan) int64 { return p.RowID },
		wanted: readPlan, create: o.Store.CreatePlan,
		change: readPlanChange, update: o.Store.UpdatePlan,
	}
	h.Roles = resource[access.Role, roleBody, access.RoleChange]{
		path: "/api/v1/roles/", parameter: "name", name: func(r access.Role) string { return r.Name },
		find: o.Store.Role, body: newRoleBody, remove: o.Store.DeleteRole,
		list: o.Store.Roles, row: func(r access.Role) int64 { return r.RowID },
		wanted: h.readRole, create: o.Store.CreateRole,
		change: h.readRoleChange, update: o.Store.UpdateRole,
	}
	h.Permissions = resource[access.Permission, permissionBody, string]{
		path: "/api/v1/permissions/", parameter: "key", name: func(p access.Permission) string { return p.Key },
		find: o.Store.Permission, body: newPermissionBody, remove: o.Store.DeletePermission,
		list: o.Store.Permissions, row: func(p access.Permission) int64 { return p.RowID },
		wanted: readPermission, create: o.Store.CreatePermission,
		change: readPermissionChange, update: o.Store.UpdatePermission,
	}
	return h
}

// resource has what is the same for things of all kinds. T is a thing as the store has it, B as a response shows it, and C a change of it.
type resource[T, B, C any] struct {
	path      string // of the list
	parameter string // of the path: the name or the id
	name      func(T) string
	find      func(ctx context.Context, name string) (T, error)
	body      func(T) B
	remove    func(ctx context.Context, actor access.Actor, name string) error
	list      func(ctx context.Context, before int64, limit int) ([]T, error) // nil: the list has filters
	row       func(T) int64                                                   // for list
	wanted    func(context.Context, *form.Form) T                             // reads what to create
	create    func(ctx context.Context, actor access.Actor, wanted T) (T, error)
	change    func(context.Context, *form.Form) C // reads a change
	update    func(ctx context.Context, actor access.Actor, name string, change C) (T, error)

	// Of things with external ids.
	id        access.IDType
	putChange func(context.Context, *form.Form) C // reads the change of a PUT
	put       func(ctx context.Context, actor access.Actor, id string, change C) (access.Put[T], error)
}

// List lists the things, newest first.
func (h resource[T, B, C]) List(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.list, h.body, h.row)
}

// Find returns the thing in the path.
func (h resource[T, B, C]) Find(x *exchange.Exchange) (B, error) {
	found, err := h.find(x.Request.Context(), x.Path.Value(h.parameter))
	return h.body(found), err
}

// Remove deletes the thing in the path.
func (h resource[T, B, C]) Remove(x *exchange.Exchange) error {
	return x.Done(h.remove(x.Request.Context(), x.Actor(), x.Path.Value(h.parameter)))
}

// Create creates the thing that a body describes, and responds with it.
func (h resource[T, B, C]) Create(x *exchange.Exchange) error {
	f := x.Form()
	wanted := h.wanted(x.Request.Context(), f)
	if err := f.Err(); err != nil {
		return err
	}
	made, err := h.create(x.Request.Context(), x.Actor(), wanted)
	if err != nil {
		return err
	}
	return x.Created(h.path+h.name(made)+"/", h.body(made))
}

// Update changes the thing in the path as a body says, and responds with it.
func (h resource[T, B, C]) Update(x *exchange.Exchange) error {
	f := x.Form()
	change := h.change(x.Request.Context(), f)
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, h.body)(h.update(x.Request.Context(), x.Actor(), x.Path.Value(h.parameter), change))
}

const externalID = "external_id"

// Put creates or changes the thing in the path, and responds with it. A field that the body leaves out stays as it is. The path has an
// external id, or the id of a thing that exists; a text that can be neither is a problem of the field external_id. So is the id of nothing:
// with another external id, the request could create the thing.
func (h resource[T, B, C]) Put(x *exchange.Exchange) error {
	f, text := x.Form(), x.Path.Value(h.parameter)
	if text == "" {
		return fault.Missing(h.id.Noun())
	}
	if !h.id.Valid(text) {
		f.RefuseExternalID(externalID, text)
	}
	change := h.putChange(x.Request.Context(), f)
	if err := f.Err(); err != nil {
		return err
	}
	done, err := h.put(x.Request.Context(), x.Actor(), text, change)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return fault.InField(externalID, "invalid", "There is no %s with this id, and an external id may not have the form of an id of Keyhook; "+
			"choose another external id to create one.", h.id.Noun())
	case err != nil:
		return err
	}
	return x.Put(h.path+h.name(done.Is)+"/", done.Created, h.body(done.Is))
}

type appliedBody struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// ListApplied lists the objects that apply has created, newest first.
func (h *Endpoints) ListApplied(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.Store.Applied, func(a access.Applied) appliedBody { return appliedBody{a.Kind, a.Key} },
		func(a access.Applied) int64 { return a.RowID })
}
