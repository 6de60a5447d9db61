package access

import (
	"cmp"
	"encoding/json"
)

// Organization is a tenant: it has one plan, and its own members, keys, subscriptions and events. Times are in milliseconds
// since the epoch, UTC, in this whole package.
type Organization struct {
	RowID       int64   `db:"id"`
	ID          string  `db:"public_id"`
	Name        string  `db:"name"`
	Plan        string  `db:"plan"`
	ExternalID  *string `db:"external_id"`   // the host product's own id, unique
	ClosedAt    *int64  `db:"closed_at"`     // nil unless the organization is closed
	LastEventAt *int64  `db:"last_event_at"` // when it last published, to the second; nil: never
	CleanedAt   *int64  `db:"cleaned_at"`    // nil unless the closure is complete
	CreatedAt   int64   `db:"created_at"`
	UpdatedAt   int64   `db:"updated_at"`
}

// OrganizationFigures tell how an organization is doing. They may be some seconds old.
type OrganizationFigures struct {
	RowID       int64 `db:"id"`
	InTrouble   int64 `db:"in_trouble"`    // subscriptions that are failing, or disabled by failures
	Pending     int64 `db:"pending"`       // deliveries
	LastEventAt int64 `db:"last_event_at"` // 0: never
	Events      int64 `db:"events"`        // of this UTC day and the 30 days before
}

// OrganizationSort is the order of a list of organizations: the largest of a figure first. Of those equally in trouble, the one with the
// most pending deliveries is first. Other organizations with the same figure, and those of the zero value, are newest first.
type OrganizationSort string

// The orders.
const (
	ByTrouble   OrganizationSort = "subscriptions_in_trouble"
	ByPending   OrganizationSort = "pending_deliveries"
	ByLastEvent OrganizationSort = "last_event_at"
)

// Of returns the figure that decides the order.
func (s OrganizationSort) Of(f OrganizationFigures) int64 {
	switch s {
	case ByTrouble:
		return f.InTrouble<<40 + min(f.Pending, 1<<40-1)
	case ByPending:
		return f.Pending
	case ByLastEvent:
		return f.LastEventAt
	}
	return 0
}

// OrganizationFilter selects a page of organizations.
type OrganizationFilter struct {
	Beginning string // of the name or the external id
	Sort      OrganizationSort
	Before    int64 // the row id of the last organization of the page before; 0 starts the list
	Figure    int64 // that decided its place
	Limit     int
}

// ListedOrganization is an organization with its figures.
type ListedOrganization struct {
	Organization
	OrganizationFigures
}

// IsNamed reports whether text is the id or the external id of the organization.
func (o Organization) IsNamed(text string) bool {
	return text == o.ID || o.ExternalID != nil && text == *o.ExternalID
}

// OrganizationChange is a partial update; nil leaves a field as it is. An empty ExternalID removes it.
type OrganizationChange struct {
	Name       *string
	Plan       *string
	ExternalID *string
}

// User is a person or a program that can be a member of organizations.
type User struct {
	RowID         int64   `db:"id"`
	ID            string  `db:"public_id"`
	Email         string  `db:"email"` // unique without regard to case; empty for none
	Name          string  `db:"name"`
	ExternalID    *string `db:"external_id"`     // the identity provider's "sub", unique
	ServiceOf     *int64  `db:"service_of"`      // row id of the organization whose service account this is; nil for a person
	ServiceOfName string  `db:"service_of_name"` // the name of that organization; a Principal does not have it
	IsActive      bool    `db:"is_active"`       // false refuses every credential of the user
	BuiltIn       bool    `db:"built_in"`        // the user of the local socket: operator of every organization, never changed
	ErasedAt      *int64  `db:"erased_at"`       // nil unless the user is erased
	CleanedAt     *int64  `db:"cleaned_at"`      // nil unless the erasure is complete
	CreatedAt     int64   `db:"created_at"`
	UpdatedAt     int64   `db:"updated_at"`
}

// ListedUser is a user with the organizations, and with the last use.
type ListedUser struct {
	User
	Memberships int64          `db:"memberships"`  // how many there are
	Newest      MembershipList `db:"newest"`       // three of them
	LastUsedAt  *int64         `db:"last_used_at"` // of an access token or an API key, or when a session began; nil if there is none
}

// IsService reports whether the user is the service account of an organization. Nobody signs in as a service account.
func (u User) IsService() bool { return u.ServiceOf != nil }

// IsNamed reports whether text is the id or the external id of the user.
func (u User) IsNamed(text string) bool {
	return text == u.ID || u.ExternalID != nil && text == *u.ExternalID
}

// Label is the e-mail address, or the name of a user without one.
func (u User) Label() string { return cmp.Or(u.Email, u.Name) }

// UserChange is a partial update; nil leaves a field as it is. An empty ExternalID removes it.
type UserChange struct {
	Email      *string
	Name       *string
	ExternalID *string
	IsActive   *bool
}

// Member is a user in an organization.
type Member struct {
	UserRow   int64  `db:"user_id"` // orders the list
	UserID    string `db:"user_public_id"`
	Email     string `db:"email"` // empty for none
	Name      string `db:"name"`
	IsService bool   `db:"is_service"` // see User.IsService
	Role      string `db:"role"`
	CreatedAt int64  `db:"created_at"`
}

// Membership is an organization of a user, with the user's role there.
type Membership struct {
	OrganizationRow int64   `db:"organization_id"` // orders the list
	OrganizationID  string  `db:"organization_public_id"`
	Name            string  `db:"name"` // of the organization
	ExternalID      *string `db:"external_id"`
	Role            string  `db:"role"`
	CreatedAt       int64   `db:"created_at"`
}

// MembershipList are memberships. In the database they are JSON, without the row ids of the organizations.
type MembershipList []Membership

// Scan reads the text of the database.
func (l *MembershipList) Scan(src any) error {
	text, _ := src.(string)
	return json.Unmarshal([]byte(text), l)
}

// Put is what a put by an external id leaves.
type Put[T any] struct {
	Is      T
	Created bool // otherwise it was there
}

// Page is a part of a list, newest first. If Next is not 0, the search reached its limit of rows before the page was full. The page may
// then have few rows or none, and Next is the row id at which the next page begins.
type Page[T any] struct {
	Rows []T
	Next int64
}

// AllOrganizations stands for the row id of an organization, where a list can have the rows of all of them.
const AllOrganizations = 0

// The names that replace the names of users and organizations that have left.
const (
	ErasedUserName         = "erased user"
	ClosedOrganizationName = "closed organization"
)

// Erasure is the erasure of a user, and what it ends.
type Erasure struct {
	ID           string // of the user
	ErasedAt     *int64 // nil if this is a preview
	Complete     bool   // the last copy of the personal data is removed
	APIKeys      int64  `db:"api_keys"` // active keys of the user, in all organizations
	AccessTokens int64  `db:"access_tokens"`
	Memberships  int64  `db:"memberships"`
}

// Closure is the closure of an organization, and what it ends.
type Closure struct {
	ID                string // of the organization
	ClosedAt          *int64 // nil if this is a preview
	Complete          bool   // the last data of the organization is removed
	APIKeys           int64  `db:"api_keys"` // active ones
	AccessTokens      int64  `db:"access_tokens"`
	Members           int64  `db:"members"`
	Subscriptions     int64
	PendingDeliveries int64
}

// The kinds of objects that `keyhook apply` creates. They are also the types of the targets of audit events, but for members.
const (
	KindPlan         = "plan"
	KindPermission   = "permission"
	KindRole         = "role"
	KindEventType    = "event_type"
	KindOrganization = "organization"
	KindUser         = "user"
	KindMember       = "member"
	KindSubscription = "subscription"
)

// Applied is an object that `keyhook apply` has created, and that nobody has deleted since.
type Applied struct {
	RowID int64  `db:"id"`
	Kind  string `db:"kind"`
	Key   string `db:"key"` // name, key, type or public id; see MemberKey
}

// MemberKey returns the key of a member, from the ids of organization and user.
func MemberKey(organization, user string) string { return organization + "/" + user }
