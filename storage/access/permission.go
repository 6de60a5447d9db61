// Package access owns the types that say who may do what: organizations, users, roles, permissions, plans, keys, scopes,
// principals, audit events and public ids. It knows no SQL statement, no HTTP and no clock.
package access

import (
	"regexp"
	"strings"
)

// The built-in permission keys. Roles, key scopes and the route table use them. An operator adds the keys of the host product.
const (
	APIKeysRead   = "api_keys:read"
	APIKeysWrite  = "api_keys:write"
	WebhooksRead  = "webhooks:read"
	WebhooksWrite = "webhooks:write"
	EventsRead    = "events:read"
	EventsWrite   = "events:write"
	AuditRead     = "audit:read"
	PlatformRead  = "platform:read"
	PlatformWrite = "platform:write"
	PlatformActAs = "platform:act_as"
)

// MaxPermissionKey limits a permission key, in bytes.
const MaxPermissionKey = 100

// Permission is a permission key with its description.
type Permission struct {
	RowID       int64     `db:"id"`
	Key         string    `db:"key"`
	Description string    `db:"description"`
	BuiltIn     bool      `db:"built_in"` // cannot be deleted
	Internal    bool      `db:"internal"` // no built-in role grants it, except operator
	CreatedAt   int64     `db:"created_at"`
	Roles       RoleNames `db:"roles"` // the roles that grant it now: the built-in ones, then the others by name
}

// BuiltInPermissions lists the permissions that every instance has, in the order in which they are seeded.
func BuiltInPermissions() []Permission {
	return []Permission{
		{Key: APIKeysRead, Description: "List and read API keys", BuiltIn: true},
		{Key: APIKeysWrite, Description: "Create and revoke API keys", BuiltIn: true},
		{Key: WebhooksRead, Description: "Read webhook subscriptions and their deliveries", BuiltIn: true},
		{Key: WebhooksWrite, Description: "Create, change and remove webhook subscriptions", BuiltIn: true},
		{Key: EventsRead, Description: "List and read events", BuiltIn: true},
		{Key: EventsWrite, Description: "Publish events", BuiltIn: true},
		{Key: AuditRead, Description: "Read the audit log", BuiltIn: true},
		{Key: PlatformRead, Description: "Read plans, roles, organizations and users", BuiltIn: true, Internal: true},
		{Key: PlatformWrite, Description: "Change plans, roles, organizations and users", BuiltIn: true, Internal: true},
		{Key: PlatformActAs, Description: "Act in an organization other than one's own", BuiltIn: true, Internal: true},
	}
}

var permissionKey = regexp.MustCompile(`^[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*)+$`)

// ValidPermissionKey reports whether s has the form of a permission key, such as "orders:read".
func ValidPermissionKey(s string) bool {
	return len(s) <= MaxPermissionKey && permissionKey.MatchString(s)
}

// IsPlatform reports whether a permission is about the whole instance, so that only operators have it.
func IsPlatform(key string) bool { return strings.HasPrefix(key, "platform:") }
