package access

import (
	"fmt"
	"regexp"
	"strings"
)

// The built-in roles. They also grant permissions that an operator adds later, so their permissions are computed, not stored.
const (
	RoleOperator = "operator" // every permission
	RoleOwner    = "owner"    // every permission except platform:…
	RoleCustomer = "customer" // what an owner has, except events:write, because the host product publishes
	RoleMember   = "member"   // every permission that ends with :read, except platform:…
)

// Role is a named set of permissions, the same for every organization of the instance.
type Role struct {
	RowID       int64  `db:"id"`
	Name        string `db:"name"`
	Permissions Scope  `db:"permissions"` // what it grants now
	BuiltIn     bool   `db:"built_in"`
	CreatedAt   int64  `db:"created_at"`
}

// RoleNames are names of roles. In the database they are a text with spaces between the names.
type RoleNames []string

// Scan reads the text of the database.
func (n *RoleNames) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("the names of roles are a %T", value)
	}
	*n = strings.Fields(text)
	return nil
}

// RoleChange is a partial update of a role; nil leaves a field as it is.
type RoleChange struct {
	Permissions *Scope
}

// BuiltInRole returns what the built-in role of that name grants out of all permissions: nothing if there is no such built-in role.
func BuiltInRole(name string, all Scope) Scope {
	ofOwner := all.without(IsPlatform)
	switch name {
	case RoleOperator:
		return all
	case RoleOwner:
		return ofOwner
	case RoleCustomer:
		return ofOwner.Minus(NewScope(EventsWrite))
	case RoleMember:
		return ofOwner.without(func(key string) bool { return !strings.HasSuffix(key, ":read") })
	}
	return Scope{}
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// ValidName reports whether s can be the name of a plan or a role. Paths and bodies contain these names.
func ValidName(s string) bool { return nameForm.MatchString(s) }
