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
	Organizations resource[access.Organization, organizationBody]
	Users         resource[access.User, userBody]
	Plans         resource[access.Plan, PlanBody]
	Roles         resource[access.Role, roleBody]
	Permissions   resource[access.Permission, permissionBody]

	lookup  form.Lookup
	build   build.Info
	started time.Time
}

// New returns the endpoints.
func New(o Options) *Endpoints {
	return &Endpoints{
		Options: o, lookup: form.Lookup{Store: o.Store}, build: build.Read(), started: time.Now(),
		Organizations: resource[access.Organization, organizationBody]{
			path: "/api/v1/organizations/", parameter: "id", noun: "organization", name: func(o access.Organization) string { return o.ID },
			find: o.Store.Organization, create: o.Store.CreateOrganization, remove: o.Store.DeleteOrganization, body: newOrganizationBody,
		},
		Users: resource[access.User, userBody]{
			path: "/api/v1/users/", parameter: "id", noun: "user", name: func(u access.User) string { return u.ID },
			find: o.Store.User, create: o.Store.CreateUser, remove: o.Store.DeleteUser, body: newUserBody,
		},
		Plans: resource[access.Plan, PlanBody]{
			path: "/api/v1/plans/", parameter: "name", name: func(p access.Plan) string { return p.Name },
			find: o.Store.Plan, list: o.Store.Plans, row: func(p access.Plan) int64 { return p.RowID },
			create: o.Store.CreatePlan, remove: o.Store.DeletePlan, body: NewPlanBody,
		},
		Roles: resource[access.Role, roleBody]{
			path: "/api/v1/roles/", parameter: "name", name: func(r access.Role) string { return r.Name },
			find: o.Store.Role, list: o.Store.Roles, row: func(r access.Role) int64 { return r.RowID },
			create: o.Store.CreateRole, remove: o.Store.DeleteRole, body: newRoleBody,
		},
		Permissions: resource[access.Permission, permissionBody]{
			path: "/api/v1/permissions/", parameter: "key", name: func(p access.Permission) string { return p.Key },
			find: o.Store.Permission, list: o.Store.Permissions, row: func(p access.Permission) int64 { return p.RowID },
			create: o.Store.CreatePermission, remove: o.Store.DeletePermission, body: newPermissionBody,
		},
	}
}

// resource has what is the same for things of all kinds. T is a thing as the store has it, and B as a response shows it.
type resource[T, B any] struct {
	path      string // of the list
	parameter string // of the path: the name or the id
	noun      string // in the text of a 404, as in the store
	name      func(T) string
	find      func(ctx context.Context, name string) (T, error)
	list      func(ctx context.Context, before int64, limit int) ([]T, error) // nil: the list has filters
	row       func(T) int64                                                   // for list
	create    func(ctx context.Context, actor access.Actor, wanted T) (T, error)
	remove    func(ctx context.Context, actor access.Actor, name string) error
	body      func(T) B
}

// List lists the things, newest first.
func (h resource[T, B]) List(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.list, h.body, h.row)
}

// Find returns the thing in the path.
func (h resource[T, B]) Find(x *exchange.Exchange) (T, error) {
	return h.find(x.Request.Context(), x.Path.Value(h.parameter))
}

// Read responds with the thing in the path.
func (h resource[T, B]) Read(x *exchange.Exchange) error { return exchange.Reply(x, h.body)(h.Find(x)) }

// Remove deletes the thing in the path.
func (h resource[T, B]) Remove(x *exchange.Exchange) error {
	return x.Done(h.remove(x.Request.Context(), x.Actor(), x.Path.Value(h.parameter)))
}

// respondCreated creates the thing that a body describes, and responds with it. f has the problems of the body.
func (h resource[T, B]) respondCreated(x *exchange.Exchange, f *form.Form, wanted T) error {
	if err := f.Err(); err != nil {
		return err
	}
	made, err := h.create(x.Request.Context(), x.Actor(), wanted)
	if err != nil {
		return err
	}
	return x.Created(h.path+h.name(made)+"/", h.body(made))
}

// respondChanged changes the thing in the path as a body says, and responds with it. f has the problems of the body.
func respondChanged[T, B, C any](h resource[T, B], x *exchange.Exchange, f *form.Form, change C,
	update func(ctx context.Context, actor access.Actor, name string, change C) (T, error)) error {
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, h.body)(update(x.Request.Context(), x.Actor(), x.Path.Value(h.parameter), change))
}

const externalID = "external_id"

// respondPut creates or changes the thing in the path of a PUT, and responds with it. read reads the change from the body. The path has an
// external id, or the id of a thing that exists; a text that can be neither is a problem of the field external_id. So is the id of nothing:
// with another external id, the request could create the thing.
func respondPut[T, B, C any](h resource[T, B], x *exchange.Exchange, t access.IDType, read func(*form.Form) C,
	put func(ctx context.Context, actor access.Actor, id string, change C) (access.Put[T], error)) error {
	f, text := x.Form(), x.Path.Value(h.parameter)
	if text == "" {
		return fault.Missing(h.noun)
	}
	if !t.Valid(text) {
		f.RefuseExternalID(externalID, text)
	}
	change := read(f)
	if err := f.Err(); err != nil {
		return err
	}
	done, err := put(x.Request.Context(), x.Actor(), text, change)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return fault.InField(externalID, "invalid", "There is no %s with this id, and an external id may not have the form of an id of Keyhook; "+
			"choose another external id to create one.", h.noun)
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
