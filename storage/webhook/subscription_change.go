package webhook

import (
	"net/url"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
)

// SubscriptionChange is a partial update; nil leaves a field as it is. SetRateLimit says whether to change
// RateLimitPerSecond, for which nil is a value. A new subscription needs a URL.
type SubscriptionChange struct {
	Secret      Secret // of a new subscription only: an imported secret; the zero value makes one
	URL         *string
	EventTypes  *Types
	AuditEvents *bool // for a new subscription nil is true, if its creator may read audit events
	Description *string
	IsActive    *bool
	Ordered     *bool
	Headers     *[]Header // replaces all own headers
	ExternalID  *string   // empty removes it

	SetRateLimit       bool
	RateLimitPerSecond *int64
}

// AuditDetails lists the changed fields for the audit log. Of a URL it has only the host, and of headers only the names. The
// rest is often a secret of the receiver, and the log has other readers.
func (c SubscriptionChange) AuditDetails() map[string]any {
	details := map[string]any{}
	if c.URL != nil {
		details["url_host"] = URLHost(*c.URL)
	}
	if c.EventTypes != nil {
		details["event_types"] = *c.EventTypes
	}
	if c.AuditEvents != nil {
		details["audit_events"] = *c.AuditEvents
	}
	if c.Description != nil {
		details["description"] = *c.Description
	}
	if c.IsActive != nil {
		details["is_active"] = *c.IsActive
	}
	if c.Ordered != nil {
		details["ordered"] = *c.Ordered
	}
	if c.ExternalID != nil {
		details["external_id"] = *c.ExternalID
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
	if c.SetRateLimit {
		details["rate_limit_per_second"] = c.RateLimitPerSecond
	}
	return details
}

// CheckHost refuses to send stored header values to another host, because whoever changes the URL would receive them there. A change
// of the host sends the values again. Faults: Invalid.
func (c SubscriptionChange) CheckHost(sub Subscription) error {
	if c.URL == nil || Origin(*c.URL) == Origin(sub.URL) {
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
			Message: "The URL changes to another host. Send the values of all headers in the same change, or leave a header out to remove it.",
		})
	}
	return fault.Fields(problems)
}

// URLHost returns the host and the port of a URL, for logs. The rest is often a secret of the receiver.
func URLHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// Hostname returns the host of a URL in lower case, without port and final dot.
func Hostname(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// Origin returns the scheme, the host and the port of a URL.
func Origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
