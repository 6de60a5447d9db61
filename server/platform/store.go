package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/clock"
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
