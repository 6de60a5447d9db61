package form

import (
	"errors"
	"math"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The largest limits of a plan. A plan without a limit has null.
const (
	maxRate        = 1_000_000_000
	maxStoredBytes = 1_000_000_000_000_000 // a day
)

// Plan reads what a plan allows, without its name.
func (f *Form) Plan() access.PlanChange {
	c := access.PlanChange{APIKeys: f.Bool("api_keys"), Webhooks: f.Bool("webhooks")}
	c.SetRateLimit, c.RateLimitPerMinute = f.Limit("api_rate_limit_per_minute", 0, maxRate)
	c.SetMaxSubscriptions, c.MaxSubscriptions = f.Limit("max_subscriptions", 0, access.MostSubscriptions)
	c.SetMaxAPIKeys, c.MaxAPIKeys = f.Limit("max_api_keys", 0, access.MostAPIKeys)
	c.SetMaxStoredBytes, c.MaxStoredBytes = f.Limit("max_stored_bytes_per_day", 0, maxStoredBytes)
	return c
}

// PermissionKey returns the key of a permission, which need not exist.
func (f *Form) PermissionKey(name string) *string {
	key := f.Text(name, access.MaxPermissionKey)
	if key != nil && !access.ValidPermissionKey(*key) {
		f.Refuse(name, "invalid", "This must be a permission such as orders:read: words of lower-case letters, digits and _, joined by colons.")
		return nil
	}
	return key
}

// Subscription reads the fields of a subscription that a creation, a change and `apply` have. checkURL is that of egress.Policy, and
// prefix is the prefix of Keyhook's headers.
func (f *Form) Subscription(checkURL func(string) (string, error), prefix string) webhook.SubscriptionChange {
	c := webhook.SubscriptionChange{
		URL: f.webhookURL("url", checkURL), EventTypes: f.EventTypes("event_types"), AuditEvents: f.Bool("audit_events"),
		Description: f.Multiline("description"), Ordered: f.Bool("ordered"), Headers: f.Headers("headers", prefix),
		ExternalID: f.ExternalID("external_id"),
	}
	c.SetRateLimit, c.RateLimitPerSecond = f.Limit("rate_limit_per_second", 1, webhook.MaxRateLimit)
	return c
}

// webhookURL reads the URL of a subscription and returns its canonical form. It refuses addresses that deliveries may not be sent
// to, as far as that is known without DNS.
func (f *Form) webhookURL(name string, check func(string) (string, error)) *string {
	text := f.Text(name, math.MaxInt) // check limits the length
	if text == nil {
		return nil
	}
	canonical, err := check(*text)
	if err == nil {
		return &canonical
	}
	var wrong *egress.URLError
	if !errors.As(err, &wrong) {
		wrong = &egress.URLError{Code: egress.CodeInvalidURL, Message: "Deliveries cannot be sent to this URL."}
	}
	f.Refuse(name, wrong.Code, "%s", wrong.Message)
	return nil
}
