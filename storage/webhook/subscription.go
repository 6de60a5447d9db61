// Package webhook owns the vocabulary of delivery: subscriptions, events, deliveries, attempts, secrets and the health
// machine. It is pure: it knows no SQL, no HTTP and no clock. Times are milliseconds since the epoch, UTC.
package webhook

import (
	"database/sql/driver"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Limits of a subscription's fields.
const (
	MaxURL         = 2048 // characters
	MaxEventTypes  = 100
	MaxEventType   = 128    // characters
	MaxDescription = 500    // characters
	MaxRateLimit   = 10_000 // attempts a second
)

// Subscription is a customer's address for events, with its health.
type Subscription struct {
	RowID          int64  `db:"id"`
	ID             string `db:"public_id"`
	OrganizationID string `db:"organization_public_id"`
	URL            string `db:"url"`
	EventTypes     Types  `db:"event_types"`
	AuditEvents    bool   `db:"audit_events"` // whether it receives audit events, where EventTypes wants them
	Description    string `db:"description"`
	// RateLimitPerSecond is how many attempts may be made in a second; nil is as many as there are.
	RateLimitPerSecond *int64 `db:"rate_limit_per_second"`
	Health
	PendingDeliveries int64  `db:"-"` // kept count, not counted
	CreatedAt         int64  `db:"created_at"`
	UpdatedAt         int64  `db:"updated_at"`
	DisabledAt        *int64 `db:"disabled_at"`
	LastSuccessAt     *int64 `db:"last_success_at"`
	LastFailureAt     *int64 `db:"last_failure_at"`
}

// Active reports whether the subscription sends: it is the is_active of the interface.
func (s Subscription) Active() bool { return s.Status != Disabled }

// SubscriptionChange is a partial update; nil leaves a field as it is. SetRateLimit says that RateLimitPerSecond is
// meant, nil included. For a new subscription URL must be set.
type SubscriptionChange struct {
	URL         *string
	EventTypes  *Types
	AuditEvents *bool // nil for a new subscription: what its creator may have
	Description *string
	IsActive    *bool

	SetRateLimit       bool
	RateLimitPerSecond *int64
}

// Types is what a subscription wants: exact event types and prefixes with ".*". Empty means every type.
type Types []string

var (
	eventType = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$`)
	typeOrAll = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*(\.\*)?$`)
)

// ValidType reports whether s can name an event, such as "user.created".
func ValidType(s string) bool { return len(s) <= MaxEventType && eventType.MatchString(s) }

// ValidPattern reports whether s can stand in Types: an event type, or a prefix such as "user.*".
func ValidPattern(s string) bool { return len(s) <= MaxEventType && typeOrAll.MatchString(s) }

// Unique returns the types without repetitions, in the order in which they were first named. It is never nil.
func (t Types) Unique() Types {
	seen := make(map[string]bool, len(t))
	unique := Types{}
	for _, name := range t {
		if !seen[name] {
			seen[name] = true
			unique = append(unique, name)
		}
	}
	return unique
}

// Value stores the types as a space-delimited list; none of them holds a space.
func (t Types) Value() (driver.Value, error) { return strings.Join(t, " "), nil }

// Scan reads what Value stored.
func (t *Types) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("scan event types: %T is not a string", src)
	}
	*t = append(Types{}, strings.Fields(text)...)
	return nil
}

// AnyType is the pattern under which a subscription to every type is found.
const AnyType = "*"

// Patterns lists what a subscription with these types is found by: each type that no other of them covers, or AnyType. So
// an event matches at most one of them.
func (t Types) Patterns() []string {
	if len(t) == 0 {
		return []string{AnyType}
	}
	var patterns []string
	for i, name := range t.Unique() {
		others := slices.Delete(slices.Clone(t.Unique()), i, i+1)
		if !slices.ContainsFunc(others, func(o string) bool {
			prefix, isPrefix := strings.CutSuffix(o, "*")
			return isPrefix && strings.HasPrefix(name, prefix)
		}) {
			patterns = append(patterns, name)
		}
	}
	return patterns
}

// TypePatterns lists what a subscription may have named to want an event of this type: the type itself, each of its
// prefixes with ".*", and AnyType. "user.email.changed" → "*", "user.*", "user.email.*", "user.email.changed".
func TypePatterns(eventType string) []string {
	patterns := []string{AnyType}
	for i := range len(eventType) {
		if eventType[i] == '.' {
			patterns = append(patterns, eventType[:i+1]+"*")
		}
	}
	return append(patterns, eventType)
}

// Want reports whether a subscription with these types wants an event of the given type.
func (t Types) Want(eventType string) bool {
	if len(t) == 0 {
		return true
	}
	for _, name := range t {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		if name == eventType || isPrefix && strings.HasPrefix(eventType, prefix) {
			return true
		}
	}
	return false
}
