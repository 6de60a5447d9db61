// Package platform owns the endpoints of operators: customers and people, what they may do, and the process with its queue and its
// database. It has no routes and no SQL. It does not check callers: the server decides who may call an endpoint.
package platform

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Store is everything that the endpoints ask of the store. Each file declares its own part.
type Store interface {
	form.LookupStore
	organizationStore
	memberStore
	removalStore
	portalStore
	userStore
	tokenStore
	planStore
	roleStore
	permissionStore
	appliedStore
	systemStore
	queueStore
	backupStore
	clockStore
}

// Options configure the endpoints. All are required.
type Options struct {
	Store      Store
	ConsoleURL string                                            // where browsers reach the server, in links to the console
	Deliveries func(context.Context) (warning string, err error) // whether deliveries are sent
}

// Handlers has the handlers of every resource. Each one has only what it needs.
type Handlers struct {
	Organizations Organizations
	Members       Members
	Removals      Removals
	Portals       Portals
	Users         Users
	Tokens        Tokens
	Plans         Plans
	Roles         Roles
	Permissions   Permissions
	Applied       Applied
	System        System
	Queue         Queue
	Backups       Backups
	Clock         Clock
}

// New returns the handlers.
func New(o Options) Handlers {
	lookup := form.Lookup{Store: o.Store}
	return Handlers{
		Organizations: Organizations{resource[access.Organization, organizationBody]{
			"id", o.Store.Organization, nil, o.Store.DeleteOrganization, newOrganizationBody, func(o access.Organization) int64 { return o.RowID },
		}, o.Store, lookup},
		Members:  Members{o.Store, lookup},
		Removals: Removals{o.Store},
		Portals:  Portals{o.Store, lookup, o.ConsoleURL},
		Users: Users{resource[access.User, userBody]{
			"id", o.Store.User, nil, o.Store.DeleteUser, newUserBody, func(u access.User) int64 { return u.RowID },
		}, o.Store},
		Tokens: Tokens{o.Store, lookup},
		Plans: Plans{resource[access.Plan, PlanBody]{
			"name", o.Store.Plan, o.Store.Plans, o.Store.DeletePlan, NewPlanBody, func(p access.Plan) int64 { return p.RowID },
		}, o.Store},
		Roles: Roles{resource[access.Role, roleBody]{
			"name", o.Store.Role, o.Store.Roles, o.Store.DeleteRole, newRoleBody, func(r access.Role) int64 { return r.RowID },
		}, o.Store, lookup},
		Permissions: Permissions{resource[access.Permission, permissionBody]{
			"key", o.Store.Permission, o.Store.Permissions, o.Store.DeletePermission, newPermissionBody,
			func(p access.Permission) int64 { return p.RowID },
		}, o.Store},
		Applied: Applied{o.Store},
		System:  System{o.Store, build.Read(), time.Now(), o.Deliveries},
		Queue:   Queue{o.Store},
		Backups: Backups{o.Store},
		Clock:   Clock{o.Store},
	}
}

// resource has the endpoints that are the same for things of all kinds. T is a thing as the store has it, and B as a response shows it.
type resource[T, B any] struct {
	parameter string // of the path: the name or the id
	find      func(ctx context.Context, name string) (T, error)
	list      func(ctx context.Context, before int64, limit int) ([]T, error)
	remove    func(ctx context.Context, actor access.Actor, name string) error
	body      func(T) B
	row       func(T) int64
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

// The nouns in the text of a 404, as in the store.
const (
	anOrganization = "organization"
	aUser          = "user"
	aToken         = "access token"
)

// The paths of lists.
const (
	organizationsPath = "/api/v1/organizations/"
	usersPath         = "/api/v1/users/"
)

// externalID is the field that the path of a PUT has.
const externalID = "external_id"

// putReference returns the id or the external id in the path of a request that creates what does not exist. A text that cannot be an
// external id is a problem of the field external_id; an id of the type itself may exist.
func putReference(x *exchange.Exchange, f *form.Form, t access.IDType, noun string) (string, error) {
	text := x.Path.Value("id")
	switch {
	case text == "":
		return "", fault.Missing(noun)
	case !t.Valid(text):
		f.RefuseExternalID(externalID, text)
	}
	return text, nil
}

// suggestPut adds to the conflict of a creation how to repeat it without one.
func suggestPut(err error, path string) error {
	conflict, ok := fault.As(err)
	if !ok || conflict.Code != "already_exists" {
		return err
	}
	mended := *conflict
	mended.Message += " To create it or to change what exists, use PUT " + path + "{external_id}/."
	return &mended
}

// notCreated turns the NotFound fault of a PUT by the id of nothing into a problem of the external id: the request could create it.
func notCreated(err error, noun string) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Fields([]fault.Field{{
		Field: externalID, Code: "invalid",
		Message: "There is no " + noun + " with this id, and an external id may not have the form of an id of Keyhook; choose another external id to create one.",
	}})
}

// appliedStore is the part of the store that knows which objects apply has created.
type appliedStore interface {
	// Applied lists these objects newest first, with row ids below before; 0 starts at the newest.
	Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error)
	AppliedObject(ctx context.Context, kind, key string) (access.Applied, error)
	// ForgetApplied forgets that apply has created an object, which stays.
	ForgetApplied(ctx context.Context, actor access.Actor, kind, key string) error
}

// Applied are the endpoints of the objects that `keyhook apply` has created.
type Applied struct{ store appliedStore }

type appliedBody struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// List lists the objects that apply has created, newest first.
func (h Applied) List(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.store.Applied, func(a access.Applied) appliedBody { return appliedBody{a.Kind, a.Key} },
		func(a access.Applied) int64 { return a.RowID })
}

// Find returns the object in the path.
func (h Applied) Find(x *exchange.Exchange) (found access.Applied, err error) {
	kind, key := x.Path.Value("kind"), x.Path.Value("key")
	if !access.IsAppliedKind(kind) || !utf8.ValidString(key) {
		return found, fault.Missing("applied object")
	}
	return h.store.AppliedObject(x.Request.Context(), kind, key)
}

// Forget makes apply forget that it created an object. The object stays.
func (h Applied) Forget(x *exchange.Exchange) error {
	found, err := h.Find(x)
	if err != nil {
		return err
	}
	return x.Done(h.store.ForgetApplied(x.Request.Context(), x.Actor(), found.Kind, found.Key))
}
