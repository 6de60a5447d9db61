// Package webhook owns the types of delivery: subscriptions, events, deliveries, attempts, failures, secrets and the health of
// subscriptions. It knows no SQL statement, no HTTP and no clock. Times are milliseconds since the epoch, UTC.
package webhook

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/filter"
)

// Limits of a subscription's fields.
const (
	MaxEventTypes = 100
	MaxEventType  = 128    // characters
	MaxRateLimit  = 10_000 // attempts a second
)

// Subscription is a URL to which a customer wants events sent, with its health. Without a URL it is a feed: a program reads its events.
type Subscription struct {
	RowID                  int64   `db:"id"`
	ID                     string  `db:"public_id"`
	OrganizationID         string  `db:"organization_public_id"`
	OrganizationExternalID *string `db:"organization_external_id"`
	OrganizationName       string  `db:"organization_name"` // the name now
	URL                    string  `db:"url"`
	EventTypes             Types   `db:"event_types"`
	AuditEvents            bool    `db:"audit_events"` // whether it receives audit events of its EventTypes
	Description            string  `db:"description"`
	ExternalID             *string `db:"external_id"` // the organization's own id, unique in the organization
	// HeaderNames are the names of its own headers. Their values are only in a Target.
	HeaderNames HeaderNames `db:"header_names"`
	// RateLimitPerSecond limits the attempts per second; nil is no limit.
	RateLimitPerSecond *int64 `db:"rate_limit_per_second"`
	// Ordered says that deliveries are sent one at a time, in the order of publication. The next one waits until the one before
	// is delivered or exhausted.
	Ordered bool `db:"ordered"`
	// Filter selects among the events of these types. FilterChangedAt is when it last changed; nil if never.
	Filter          filter.Filter `db:"filter"`
	FilterChangedAt *int64        `db:"filter_changed_at"`
	Gate
	PendingDeliveries int64  `db:"-"` // from a counter in memory
	CreatedAt         int64  `db:"created_at"`
	UpdatedAt         int64  `db:"updated_at"`
	DisabledAt        *int64 `db:"disabled_at"`
	LastSuccessAt     *int64 `db:"last_success_at"`
	LastFailureAt     *int64 `db:"last_failure_at"`
}

// Active reports whether the subscription is not disabled, which the API calls is_active.
func (s Subscription) Active() bool { return s.Status != Disabled }

// Types lists the event types that a subscription wants: exact types, and prefixes with ".*". Empty means every type.
type Types []string

// ValidType reports whether s can be an event type, such as "user.created": ^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$. It is on the path
// of every event, where the regular expression takes 0.5 µs.
func ValidType(s string) bool {
	if s == "" || len(s) > MaxEventType || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_':
		case c == '.' && i+1 < len(s) && s[i+1] != '.':
		default:
			return false
		}
	}
	return true
}

// ValidPattern reports whether s can be in Types: an event type, or a prefix such as "user.*".
func ValidPattern(s string) bool {
	return len(s) <= MaxEventType && ValidType(strings.TrimSuffix(s, ".*"))
}

// Unique returns the types without repetitions, in their order. It is never nil.
func (t Types) Unique() Types {
	unique := Types{}
	for _, name := range t {
		if !slices.Contains(unique, name) {
			unique = append(unique, name)
		}
	}
	return unique
}

// Value stores the types as a space-delimited list, because no type has a space.
func (t Types) Value() (driver.Value, error) { return strings.Join(t, " "), nil }

// Scan reads what Value stored.
func (t *Types) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("scan words: %T is not a string", src)
	}
	*t = append(Types{}, strings.Fields(text)...)
	return nil
}

// AnyType is the pattern of a subscription to every type.
const AnyType = "*"

// Patterns lists the patterns by which the store finds a subscription: each type that no other type covers, or AnyType. So
// an event matches at most one of them.
func (t Types) Patterns() []string {
	if len(t) == 0 {
		return []string{AnyType}
	}
	var patterns []string
	unique := t.Unique()
	for _, name := range unique {
		if !slices.ContainsFunc(unique, func(other string) bool { return other != name && covers(other, name) }) {
			patterns = append(patterns, name)
		}
	}
	return patterns
}

// TypePatterns lists all patterns that an event of this type matches: AnyType, each prefix with ".*", and the type itself.
// "user.email.changed" → "*", "user.*", "user.email.*", "user.email.changed".
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
	return len(t) == 0 || slices.ContainsFunc(t, func(name string) bool { return covers(name, eventType) })
}
