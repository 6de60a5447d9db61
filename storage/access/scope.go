package access

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
)

// Scope is an immutable, sorted set of permission keys. The zero value is empty and grants nothing.
type Scope struct {
	keys []string
}

// NewScope returns the set of the given keys, in any order, with or without repetitions.
func NewScope(keys ...string) Scope {
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return Scope{slices.Compact(sorted)}
}

// ParseScope reads a space-delimited list of permission keys, as OAuth 2.0 writes scopes (RFC 6749 section 3.3). It drops extra spaces
// and repetitions. malformed lists the words that are not permission keys, in their order. The store checks whether the other keys exist.
func ParseScope(s string) (scope Scope, malformed []string) {
	var keys []string
	for token := range strings.SplitSeq(s, " ") {
		switch {
		case token == "":
		case ValidPermissionKey(token):
			keys = append(keys, token)
		default:
			malformed = append(malformed, token)
		}
	}
	return NewScope(keys...), malformed
}

// Has reports whether the set has the key.
func (s Scope) Has(key string) bool {
	_, found := slices.BinarySearch(s.keys, key)
	return found
}

// HasAll reports whether the set has all keys of o. Every set has all keys of an empty one.
func (s Scope) HasAll(o Scope) bool {
	return !slices.ContainsFunc(o.keys, func(key string) bool { return !s.Has(key) })
}

// Empty reports whether the set grants nothing.
func (s Scope) Empty() bool { return len(s.keys) == 0 }

// Keys returns the keys in order, as a copy. It is never nil.
func (s Scope) Keys() []string { return append([]string{}, s.keys...) }

// Len returns the number of keys.
func (s Scope) Len() int { return len(s.keys) }

// Equal reports whether both sets contain the same keys.
func (s Scope) Equal(o Scope) bool { return slices.Equal(s.keys, o.keys) }

// Intersect returns the keys in both sets. It is commutative, associative and idempotent, and never adds.
func (s Scope) Intersect(o Scope) Scope {
	return s.without(func(key string) bool { return !o.Has(key) })
}

// Union returns the keys in either set. It is commutative, associative and idempotent.
func (s Scope) Union(o Scope) Scope { return NewScope(append(s.Keys(), o.keys...)...) }

// Minus returns the keys that are in s and not in o.
func (s Scope) Minus(o Scope) Scope { return s.without(o.Has) }

func (s Scope) without(drop func(string) bool) Scope { return Scope{slices.DeleteFunc(s.Keys(), drop)} }

// String returns the set as a space-delimited list in order; ParseScope reads it back.
func (s Scope) String() string { return strings.Join(s.keys, " ") }

// Value stores the set as its string.
func (s Scope) Value() (driver.Value, error) { return s.String(), nil }

// Scan reads what Value stored. A stored token that is not a permission key is an error, not a wider set.
func (s *Scope) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("scan scope: %T is not a string", src)
	}
	parsed, malformed := ParseScope(text)
	if len(malformed) > 0 {
		return fmt.Errorf("scan scope: %q is not a permission key", malformed[0])
	}
	*s = parsed
	return nil
}
