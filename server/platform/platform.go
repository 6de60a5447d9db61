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
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Store is everything that the endpoints ask of the store, by resource. A list has the newest first: those with row ids below before,
// where 0 starts at the newest.
type Store interface {
	form.LookupStore

	// OrganizationPage lists those that begin with a text, in an order.
	OrganizationPage(ctx context.Context, f access.OrganizationFilter) (access.Page[access.ListedOrganization], error)
	CreateOrganization(ctx context.Context, actor access.Actor, o access.Organization) (access.Organization, error)
	// PutOrganization creates or changes the organization with an external id. A creation needs the name and the plan.
	PutOrganization(ctx context.Context, actor access.Actor, id string, c access.OrganizationChange) (access.Put[access.Organization], error)
	UpdateOrganization(ctx context.Context, actor access.Actor, id string, c access.OrganizationChange) (access.Organization, error)
	DeleteOrganization(ctx context.Context, actor access.Actor, id string) error

	Members(ctx context.Context, organization string, before int64, limit int) ([]access.Member, error)
	SetMember(ctx context.Context, actor access.Actor, organization, user, role string) (access.Member, error)
	RemoveMember(ctx context.Context, actor access.Actor, organization, user string) error

	EraseUser(ctx context.Context, actor access.Actor, id string) (access.Erasure, error)
	CountErasure(ctx context.Context, actor access.Actor, id string) (access.Erasure, error)
	CloseOrganization(ctx context.Context, actor access.Actor, id string) (access.Closure, error)
	CountClosure(ctx context.Context, actor access.Actor, id string) (access.Closure, error)

	CreatePortalLink(ctx context.Context, actor access.Actor, organization string, l access.NewPortalLink) (access.SignInLink, error)

	UserPage(ctx context.Context, beginning string, before int64, limit int) (access.Page[access.ListedUser], error)
	Memberships(ctx context.Context, user string, before int64, limit int) ([]access.Membership, error)
	User(ctx context.Context, id string) (access.User, error)
	CreateUser(ctx context.Context, actor access.Actor, u access.User) (access.User, error)
	// PutUser creates or changes the user with an external id. A creation needs the name.
	PutUser(ctx context.Context, actor access.Actor, id string, c access.UserChange) (access.Put[access.User], error)
	UpdateUser(ctx context.Context, actor access.Actor, id string, c access.UserChange) (access.User, error)
	DeleteUser(ctx context.Context, actor access.Actor, id string) error

	CreateToken(ctx context.Context, actor access.Actor, user, organization string, c access.Credential, name string, expiresAt *int64) (access.AccessToken, error)
	Tokens(ctx context.Context, user string, before int64, limit int) ([]access.AccessToken, error)
	Token(ctx context.Context, user, id string) (access.AccessToken, error)
	RevokeToken(ctx context.Context, actor access.Actor, user, id string) error

	Plans(ctx context.Context, before int64, limit int) ([]access.Plan, error)
	CreatePlan(ctx context.Context, actor access.Actor, p access.Plan) (access.Plan, error)
	UpdatePlan(ctx context.Context, actor access.Actor, name string, p access.PlanChange) (access.Plan, error)
	DeletePlan(ctx context.Context, actor access.Actor, name string) error

	Roles(ctx context.Context, before int64, limit int) ([]access.Role, error)
	CreateRole(ctx context.Context, actor access.Actor, r access.Role) (access.Role, error)
	UpdateRole(ctx context.Context, actor access.Actor, name string, c access.RoleChange) (access.Role, error)
	DeleteRole(ctx context.Context, actor access.Actor, name string) error

	Permissions(ctx context.Context, before int64, limit int) ([]access.Permission, error)
	Permission(ctx context.Context, key string) (access.Permission, error)
	CreatePermission(ctx context.Context, actor access.Actor, p access.Permission) (access.Permission, error)
	UpdatePermission(ctx context.Context, actor access.Actor, key, description string) (access.Permission, error)
	DeletePermission(ctx context.Context, actor access.Actor, key string) error

	Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error)
	AppliedObject(ctx context.Context, kind, key string) (access.Applied, error)

	Path() string
	// Sizes returns the bytes of the database and of its write-ahead log.
	Sizes() (database, log int64, err error)
	// Free returns the free bytes of the disk, if they are known.
	Free() (bytes uint64, ok bool)
	SchemaVersion() int64
	Commits() int64
	Synchronous() string

	QueueSummary(ctx context.Context) (webhook.Queue, error)
	HoldQueue(ctx context.Context, actor access.Actor, reason string) error
	// ReleaseQueue ends the hold and returns how many deliveries are pending.
	ReleaseQueue(ctx context.Context, actor access.Actor) (int64, error)
	// DiscardQueue drops the deliveries that were pending when the hold began, ends the hold, and returns how many it dropped.
	DiscardQueue(ctx context.Context, actor access.Actor) (int64, error)

	// CreateBackup copies the database into a file beside it. If name is empty, the name is a date, and older dated copies
	// are removed until keep remain.
	CreateBackup(ctx context.Context, actor access.Actor, name string, keep int) (backup.Report, error)

	Clock() clock.State
	AcceptClock(ctx context.Context, actor access.Actor) error
}

// Endpoints are the endpoints. Those that all kinds of things have in common are in its resources. Use New.
type Endpoints struct {
	Store         Store
	Organizations resource[access.Organization, organizationBody, access.OrganizationChange]
	Users         resource[access.User, userBody, access.UserChange]
	Plans         resource[access.Plan, PlanBody, access.PlanChange]
	Roles         resource[access.Role, roleBody, access.RoleChange]
	Permissions   resource[access.Permission, permissionBody, string]

	consoleURL string
	deliveries func(context.Context) (warning string, err error)
	lookup     form.Lookup
	build      build.Info
	started    time.Time
}

// New returns the endpoints. consoleURL is where browsers reach the server, and deliveries tells whether deliveries are sent.
func New(store Store, consoleURL string, deliveries func(context.Context) (warning string, err error)) *Endpoints {
	h := &Endpoints{
		Store: store, consoleURL: consoleURL, deliveries: deliveries,
		lookup: form.Lookup{Store: store}, build: build.Read(), started: time.Now(),
	}
	h.Organizations = resource[access.Organization, organizationBody, access.OrganizationChange]{
		path: "/api/v1/organizations/", parameter: "id", name: func(o access.Organization) string { return o.ID },
		find: store.Organization, body: newOrganizationBody, remove: store.DeleteOrganization,
		wanted: h.readOrganization, create: store.CreateOrganization,
		change: h.readOrganizationChange, update: store.UpdateOrganization,
		id: access.OrganizationID, putChange: h.readOrganizationPut, put: store.PutOrganization,
	}
	h.Users = resource[access.User, userBody, access.UserChange]{
		path: "/api/v1/users/", parameter: "id", name: func(u access.User) string { return u.ID },
		find: store.User, body: newUserBody, remove: store.DeleteUser,
		wanted: readUser, create: store.CreateUser,
		change: readUserChange, update: store.UpdateUser,
		id: access.UserID, putChange: readUserPut, put: store.PutUser,
	}
	h.Plans = resource[access.Plan, PlanBody, access.PlanChange]{
		path: "/api/v1/plans/", parameter: "name", name: func(p access.Plan) string { return p.Name },
		find: store.Plan, body: NewPlanBody, remove: store.DeletePlan,
		list: store.Plans, row: func(p access.Plan) int64 { return p.RowID },
		wanted: readPlan, create: store.CreatePlan,
		change: readPlanChange, update: store.UpdatePlan,
	}
	h.Roles = resource[access.Role, roleBody, access.RoleChange]{
		path: "/api/v1/roles/", parameter: "name", name: func(r access.Role) string { return r.Name },
		find: store.Role, body: newRoleBody, remove: store.DeleteRole,
		list: store.Roles, row: func(r access.Role) int64 { return r.RowID },
		wanted: h.readRole, create: store.CreateRole,
		change: h.readRoleChange, update: store.UpdateRole,
	}
	h.Permissions = resource[access.Permission, permissionBody, string]{
		path: "/api/v1/permissions/", parameter: "key", name: func(p access.Permission) string { return p.Key },
		find: store.Permission, body: newPermissionBody, remove: store.DeletePermission,
		list: store.Permissions, row: func(p access.Permission) int64 { return p.RowID },
		wanted: readPermission, create: store.CreatePermission,
		change: readPermissionChange, update: store.UpdatePermission,
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
		f.CheckExternalID(externalID, &text)
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
