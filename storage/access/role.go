package access

import (
	"regexp"
	"strings"
)

// The built-in roles. What they grant follows the vocabulary as it grows, so it is computed and not stored.
const (
	RoleOperator = "operator" // every permission
	RoleOwner    = "owner"    // every permission but the operator's own
	RoleMember   = "member"   // every permission to read but the operator's own
)

// Role is a named set of permissions, the same for every organization of the instance.
type Role struct {
	RowID       int64  `db:"id"`
	Name        string `db:"name"`
	Permissions Scope  `db:"permissions"` // what it grants at present
	BuiltIn     bool   `db:"built_in"`
	CreatedAt   int64  `db:"created_at"`
}

// RoleChange is a partial update of a role; nil leaves a field as it is.
type RoleChange struct {
	Permissions *Scope
}

// BuiltInRole returns what the built-in role of that name grants out of the whole vocabulary; ok is false where there is
// no such built-in role.
func BuiltInRole(name string, vocabulary Scope) (granted Scope, ok bool) {
	switch name {
	case RoleOperator:
		return vocabulary, true
	case RoleOwner:
		return vocabulary.filter(func(key string) bool { return !isPlatform(key) }), true
	case RoleMember:
		return vocabulary.filter(func(key string) bool {
			return !isPlatform(key) && strings.HasSuffix(key, ":read")
		}), true
	}
	return Scope{}, false
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// ValidName reports whether s can name a plan or a role, which are addressed by name in paths and in bodies.
func ValidName(s string) bool { return nameForm.MatchString(s) }
