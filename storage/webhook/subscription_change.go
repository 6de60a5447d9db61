package webhook

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/filter"
)

// SubscriptionChange is a partial update; nil leaves a field as it is. A new subscription needs a URL.
type SubscriptionChange struct {
	Secret      Secret  // of a new subscription only: an imported secret; the zero value makes one
	URL         *string // empty: a feed
	EventTypes  *Types
	AuditEvents *bool // for a new subscription nil is true, if its creator may read audit events
	Description *string
	IsActive    *bool
	Ordered     *bool
	Headers     *[]Header      // replaces all own headers
	ExternalID  *string        // empty removes it
	Filter      *filter.Filter // an empty one removes it

	RateLimitPerSecond **int64 // a pointer to nil removes it
}

// AuditDetails lists the changed fields for the audit log. Of a URL it has only the host, of headers only the names, and of a filter no
// values. The rest is often a secret of the receiver or personal, and the log has other readers.
func (c SubscriptionChange) AuditDetails() map[string]any {
	details := map[string]any{}
	AddDetail(details, "event_types", c.EventTypes)
	AddDetail(details, "audit_events", c.AuditEvents)
	AddDetail(details, "description", c.Description)
	AddDetail(details, "is_active", c.IsActive)
	AddDetail(details, "ordered", c.Ordered)
	AddDetail(details, "external_id", c.ExternalID)
	AddDetail(details, "rate_limit_per_second", c.RateLimitPerSecond)
	if c.URL != nil {
		details["url_host"] = URLHost(*c.URL)
	}
	if c.Filter != nil {
		details["filter"] = c.Filter.Words()
	}
	if !c.Secret.IsZero() {
		details["secret_imported"] = true
	}
	if c.Headers != nil {
		names := []string{}
		for _, h := range *c.Headers {
			names = append(names, h.Name)
		}
		details["headers"] = names
	}
	return details
}

// AddDetail adds a changed value to the details of an audit event. A nil value is no change.
func AddDetail[T any](details map[string]any, name string, value *T) {
	if value != nil {
		details[name] = *value
	}
}

// CheckHost refuses to send stored header values to another host, because whoever changes the URL would receive them there. A change
// of the host sends the values again. Faults: Invalid.
func (c SubscriptionChange) CheckHost(sub Subscription) error {
	if c.URL == nil || *c.URL == "" || Origin(*c.URL) == Origin(sub.URL) {
		return nil
	}
	kept := sub.HeaderNames
	if c.Headers != nil {
		kept = nil
		for _, h := range *c.Headers {
			if h.Value.IsZero() {
				kept = append(kept, h.Name)
			}
		}
	}
	var problems []fault.Field
	for _, name := range kept {
		problems = append(problems, fault.Field{
			Field: "headers." + name, Code: "missing",
			Message: "The URL changes to another host, port or scheme. Send the values of all headers in the same change, or leave a header out to remove it.",
		})
	}
	return fault.Fields(problems)
}

// URLHost returns the host and the port of a URL, for logs. The rest is often a secret of the receiver.
func URLHost(address string) string { return parseURL(address).Host }

// Hostname returns the host of a URL in lower case, without port and final dot.
func Hostname(address string) string {
	return strings.ToLower(strings.TrimSuffix(parseURL(address).Hostname(), "."))
}

// Origin returns the scheme, the host and the port of a URL.
func Origin(address string) string {
	u := parseURL(address)
	return u.Scheme + "://" + u.Host
}

// parseURL parses a URL. What is none has no part.
func parseURL(address string) *url.URL {
	u, _ := url.Parse(address) // nil with an error
	return cmp.Or(u, &url.URL{})
}
