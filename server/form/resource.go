package form

import (
	"errors"
	"math"
	"net/netip"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The largest limits of a plan. A plan without a limit has null.
const (
	maxRate        = 1_000_000_000
	maxStoredBytes = 1_000_000_000_000_000 // a day
)

// Plan reads what a plan allows, without its name.
func (f *Form) Plan() access.PlanChange {
	return access.PlanChange{
		APIKeys: f.Bool("api_keys"), Webhooks: f.Bool("webhooks"),
		RateLimitPerMinute: f.Limit("api_rate_limit_per_minute", 0, maxRate),
		MaxSubscriptions:   f.Limit("max_subscriptions", 0, access.MostSubscriptions),
		MaxAPIKeys:         f.Limit("max_api_keys", 0, access.MostAPIKeys),
		MaxStoredBytes:     f.Limit("max_stored_bytes_per_day", 0, maxStoredBytes),
	}
}

// PermissionKey returns the key of a permission, which need not exist.
func (f *Form) PermissionKey(name string) *string {
	return f.Matching(name, f.Text(name, access.MaxPermissionKey),
		"be a permission such as orders:read: words of lower-case letters, digits and _, joined by colons", access.ValidPermissionKey)
}

// EventTypeChange reads what the catalogue says about an event type, without the type.
func (f *Form) EventTypeChange() webhook.EventTypeChange {
	c := webhook.EventTypeChange{
		Description: f.Multiline("description"), Group: nullable(f, "group", f.Label),
		Example: nullable(f, "example", f.example), Schema: nullable(f, "schema", f.example),
	}
	if c.Description != nil {
		if *c.Description = strings.TrimSpace(*c.Description); *c.Description == "" {
			f.Refuse("description", "blank", "This may not be empty.")
		}
	}
	return c
}

func (f *Form) example(name string) *[]byte {
	if value := f.Object(name, webhook.MaxExample); value != nil {
		return &value
	}
	return nil
}

// Subscription reads the fields of a subscription that a creation, a change and `apply` have. checkURL is that of egress.Policy, and
// prefix is the prefix of Keyhook's headers.
func (f *Form) Subscription(checkURL func(string) (string, error), prefix string) webhook.SubscriptionChange {
	return webhook.SubscriptionChange{
		URL: f.webhookURL("url", checkURL), EventTypes: f.EventTypes("event_types"), AuditEvents: f.Bool("audit_events"),
		Description: f.Multiline("description"), Ordered: f.Bool("ordered"), Headers: f.Headers("headers", prefix),
		ExternalID: f.ExternalID("external_id"), Filter: f.Filter("filter"),
		RateLimitPerSecond: f.Limit("rate_limit_per_second", 1, webhook.MaxRateLimit),
	}
}

// webhookURL reads the URL of a subscription and returns its canonical form. It refuses addresses that deliveries may not be sent
// to, as far as that is known without DNS. Null is the empty URL of a feed.
func (f *Form) webhookURL(name string, check func(string) (string, error)) *string {
	if f.Null(name) {
		return new("")
	}
	text := f.Text(name, math.MaxInt) // check limits the length
	if text == nil {
		return nil
	}
	canonical, err := check(*text)
	if err == nil {
		return &canonical
	}
	wrong, _ := errors.AsType[*egress.URLError](err) // check returns no other error
	f.Refuse(name, wrong.Code, "%s", wrong.Message)
	return nil
}

// Secret returns an imported signing secret, or none if the field is missing. No problem shows it.
func (f *Form) Secret(name string) webhook.Secret {
	text := f.Text(name, webhook.MaxSecret)
	switch {
	case text == nil:
		return webhook.Secret{}
	case len(*text) < webhook.MinSecret:
		f.Refuse(name, "too_short", "A secret has at least %d characters.", webhook.MinSecret)
	case !webhook.ValidSecret(*text):
		f.Refuse(name, "invalid", "A secret has visible ASCII characters. If it begins with %s, the rest is padded standard base64, "+
			"because the libraries of Standard Webhooks decode it.", webhook.SecretPrefix)
	}
	return webhook.KnownSecret(*text)
}

// Headers returns the own request headers of a subscription. A header without a value was null in the body. prefix is the prefix of
// Keyhook's own headers. No problem shows a value.
func (f *Form) Headers(name, prefix string) *[]webhook.Header {
	object := f.Nested(name)
	if object == nil {
		return nil
	}
	if len(object.members) > webhook.MaxHeaders {
		f.Refuse(name, "too_many", "This may have at most %d headers.", webhook.MaxHeaders)
		return nil
	}
	list := make([]webhook.Header, 0, len(object.members))
	for _, m := range object.members {
		list = append(list, f.header(name+".", prefix, m, list))
	}
	return &list
}

// header reads one header. before are the headers before it in the object.
func (f *Form) header(path, prefix string, m member, before []webhook.Header) webhook.Header {
	h := webhook.Header{Name: string(m.name)}
	path += truncate(h.Name, MaxName)
	switch {
	case !webhook.ValidHeaderName(h.Name):
		f.Refuse(path, "invalid", "The name of a header has 1 to %d letters, digits and hyphens.", webhook.MaxHeaderName)
	case webhook.ReservedHeader(h.Name, prefix):
		f.Refuse(path, "reserved_header", "Keyhook, HTTP or a proxy sets this header; remove it or choose another name.")
	}
	for _, other := range before {
		if strings.EqualFold(other.Name, h.Name) {
			f.Refuse(path, "duplicate", "This header occurs twice. The names of headers are not case-sensitive.")
		}
	}
	if m.value.Kind() == jsontext.KindNull {
		return h
	}
	text := f.text(path, m.value, webhook.MaxHeaderValue, "a string, or null to keep the present value")
	switch {
	case text == nil:
	case *text == "":
		f.Refuse(path, "blank", "This must not be empty; leave out the header to remove it.")
	case !webhook.ValidHeaderValue(*text):
		f.Refuse(path, "invalid", "The value of a header has printable ASCII characters, and no space at its ends.")
	default:
		h.Value = redact.New(*text)
	}
	return h
}

const conditions = `an array of conditions, such as [{"path": "customer.country", "op": "eq", "value": "CH"}]`

// Filter returns the conditions on events. Null and an empty array are an empty filter.
func (f *Form) Filter(name string) *filter.Filter {
	if f.Null(name) {
		return new(filter.Filter)
	}
	value := f.typed(name, f.take(name), jsontext.KindBeginArray, conditions)
	if value == nil {
		return nil
	}
	if len(value) > filter.MaxSize {
		f.Refuse(name, "too_long", "A filter has at most %d bytes.", filter.MaxSize)
		return nil
	}
	var all filter.Filter
	for _, item := range f.List(name, filter.MaxConditions) {
		if item != nil {
			all = append(all, item.condition())
			item.refuseUnknown()
			f.problems = append(f.problems, item.problems...)
		}
	}
	return &all
}

func (f *Form) condition() (c filter.Condition) {
	f.Require("path", "op", "value")
	path, op, value := f.Text("path", filter.MaxPath), f.Text("op", filter.MaxPath), f.take("value")
	if path == nil || op == nil || value == nil {
		return c
	}
	c, problem := filter.New(*path, filter.Op(*op), value)
	if problem != nil {
		f.Refuse(problem.Field, problem.Code, "%s", problem.Message)
	}
	return c
}

const networks = `an array of networks, such as ["203.0.113.0/24", "2001:db8::7"]`

// Networks returns the networks of a key. Null and an empty array are none.
func (f *Form) Networks(name string) access.Networks {
	if f.Null(name) {
		return nil
	}
	list := f.Strings(name, networks)
	if len(list) > access.MaxNetworks {
		f.Refuse(name, "too_many", "This may have at most %d networks; combine them into larger ones.", access.MaxNetworks)
		return nil
	}
	var all access.Networks
	for _, item := range list {
		network, err := access.ParseNetwork(item.Text)
		if err != nil {
			f.Refuse(item.Field, "invalid", "%s.", err)
		}
		all = append(all, network)
	}
	return all
}

// Address returns the IP address of a client, or the zero value if the field is missing.
func (f *Form) Address(name string) netip.Addr {
	text := f.Text(name, 64)
	if text == nil {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(*text)
	if err != nil {
		f.Refuse(name, "invalid", "This must be an IP address such as 203.0.113.7, without a port.")
	}
	return address.Unmap()
}
