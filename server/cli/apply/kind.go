package apply

import (
	"context"
	"math"
	"net/netip"
	"slices"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// kind is one type of objects of the file: a row of the table below.
type kind struct {
	name     string // as the API calls it in its list of applied objects
	section  string
	path     string   // the list of the API; empty if there is no list of all
	keys     []string // the fields that name an object, and that never change
	required []string // besides the keys
	fields   []field
}

// field is one field of an object. The same readers check it here and in the server.
type field struct {
	name     string
	read     reader
	isText   bool
	isSet    bool // a list whose order means nothing
	fallback any  // what an object gets that apply creates, if the file leaves the field out; nil is null
	isFile   bool // names a file with secrets, and is no field of the API
	isFixed  bool // never changes after the creation
	isSent   bool // always at the creation: what the API uses instead depends on the caller
}

// reader reads a field of a form. ok is false if it is missing or wrong.
type reader func(f *form.Form, name string) (value any, ok bool)

// The largest values of the limits of a plan. The server has the same.
const (
	maxRate        = 1_000_000_000
	maxStoredBytes = 1_000_000_000_000_000
)

var (
	plans = &kind{
		name: access.KindPlan, section: "plans", path: "/api/v1/plans/", keys: []string{"name"}, required: []string{"api_rate_limit_per_minute"},
		fields: []field{
			{name: "name", read: of((*form.Form).Slug), isText: true},
			{name: "api_keys", read: of((*form.Form).Bool), fallback: false},
			{name: "webhooks", read: of((*form.Form).Bool), fallback: false},
			{name: "api_rate_limit_per_minute", read: limit(0, maxRate)},
			{name: "max_subscriptions", read: limit(0, access.MostSubscriptions)},
			{name: "max_api_keys", read: limit(0, access.MostAPIKeys)},
			{name: "max_stored_bytes_per_day", read: limit(0, maxStoredBytes)},
		},
	}
	permissions = &kind{
		name: access.KindPermission, section: "permissions", path: "/api/v1/permissions/", keys: []string{"key"},
		fields: []field{
			{name: "key", read: permissionKey, isText: true},
			{name: "description", read: of((*form.Form).Multiline), isText: true, fallback: ""},
			{name: "internal", read: of((*form.Form).Bool), isFixed: true},
		},
	}
	roles = &kind{
		name: access.KindRole, section: "roles", path: "/api/v1/roles/", keys: []string{"name"}, required: []string{"permissions"},
		fields: []field{
			{name: "name", read: of((*form.Form).Slug), isText: true},
			{name: "permissions", read: permissionList, isSet: true},
		},
	}
	organizations = &kind{
		name: access.KindOrganization, section: "organizations", path: "/api/v1/organizations/", keys: []string{"external_id"},
		required: []string{"name", "plan"},
		fields: []field{
			{name: "external_id", read: of((*form.Form).ExternalID), isText: true},
			{name: "name", read: of((*form.Form).Label), isText: true},
			{name: "plan", read: of((*form.Form).Slug), isText: true},
		},
	}
	users = &kind{
		name: access.KindUser, section: "users", path: "/api/v1/users/", keys: []string{"external_id"}, required: []string{"name", "email"},
		fields: []field{
			{name: "external_id", read: of((*form.Form).ExternalID), isText: true},
			{name: "name", read: of((*form.Form).Label), isText: true},
			{name: "email", read: of((*form.Form).Email), isText: true},
		},
	}
	members = &kind{
		name: access.KindMember, section: "members", keys: []string{"organization", "user"}, required: []string{"role"},
		fields: []field{
			{name: "organization", read: reference, isText: true},
			{name: "user", read: reference, isText: true},
			{name: "role", read: of((*form.Form).Slug), isText: true},
		},
	}
	subscriptions = &kind{
		name: access.KindSubscription, section: "subscriptions", path: "/api/v1/webhooks/subscriptions/",
		keys: []string{"organization", "external_id"}, required: []string{"url"},
		fields: []field{
			{name: "organization", read: reference, isText: true},
			{name: "external_id", read: of((*form.Form).ExternalID), isText: true},
			{name: "url", read: webhookURL, isText: true},
			{name: "event_types", read: eventTypes, isSet: true, fallback: []any{}},
			{name: "audit_events", read: of((*form.Form).Bool), fallback: false, isSent: true},
			{name: "description", read: of((*form.Form).Multiline), isText: true, fallback: ""},
			{name: "rate_limit_per_second", read: limit(1, webhook.MaxRateLimit)},
			{name: "ordered", read: of((*form.Form).Bool), fallback: false},
			{name: "headers_file", read: fileName, isText: true, isFile: true},
			{name: "secret_file", read: fileName, isText: true, isFile: true},
		},
	}
)

// kinds are all kinds, in the order in which apply creates them.
var kinds = []*kind{plans, permissions, roles, organizations, users, members, subscriptions}

func kindOfSection(section string) *kind {
	return find(func(k *kind) bool { return k.section == section })
}
func kindNamed(name string) *kind { return find(func(k *kind) bool { return k.name == name }) }

func find(is func(*kind) bool) *kind {
	if i := slices.IndexFunc(kinds, is); i >= 0 {
		return kinds[i]
	}
	return nil
}

func sectionNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.section)
	}
	return names
}

func (k *kind) field(name string) *field {
	for i := range k.fields {
		if k.fields[i].name == name {
			return &k.fields[i]
		}
	}
	return nil
}

func (k *kind) fieldNames() (names []string) {
	for _, f := range k.fields {
		names = append(names, f.name)
	}
	return names
}

// withArticle returns a noun with a or an.
func withArticle(noun string) string {
	if noun == organizations.name {
		return "an " + noun
	}
	return "a " + noun
}

// of is the reader of a method of Form.
func of[T any](read func(f *form.Form, name string) *T) reader {
	return func(f *form.Form, name string) (any, bool) {
		value := read(f, name)
		if value == nil {
			return nil, false
		}
		return *value, true
	}
}

func limit(least, most int64) reader {
	return func(f *form.Form, name string) (any, bool) {
		present, value := f.Limit(name, least, most)
		if value == nil {
			return nil, present
		}
		return *value, true
	}
}

func permissionKey(f *form.Form, name string) (any, bool) {
	text := f.Text(name, access.MaxPermissionKey)
	if text != nil && !access.ValidPermissionKey(*text) {
		f.Refuse(name, "invalid", "This must be a permission such as orders:read: words of lower-case letters, digits and _, joined by colons.")
		return nil, false
	}
	return valueOf(text)
}

func permissionList(f *form.Form, name string) (any, bool) {
	scope := form.Lookup{Store: anyPermission{}}.Permissions(context.Background(), f, name)
	if scope == nil {
		return nil, false
	}
	return scope.Keys(), true
}

// anyPermission finds every permission. The references are checked later, when all objects of the file are known.
type anyPermission struct{ form.LookupStore }

// UnknownPermissions returns none.
func (anyPermission) UnknownPermissions(context.Context, access.Scope) (access.Scope, error) {
	return access.Scope{}, nil
}

func eventTypes(f *form.Form, name string) (any, bool) {
	types := f.EventTypes(name)
	if types == nil {
		return nil, false
	}
	return []string(*types), true
}

// reference reads an id or an external id.
func reference(f *form.Form, name string) (any, bool) {
	text := f.Line(name, access.MaxExternalID)
	return valueOf(text)
}

func fileName(f *form.Form, name string) (any, bool) {
	return valueOf(f.Line(name, 4096))
}

func valueOf(text *string) (any, bool) {
	if text == nil {
		return nil, false
	}
	return *text, true
}

// anyAddress is a policy that refuses no address: only the server knows what it allows.
var anyAddress = egress.Policy{
	AllowHTTP: true, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	Own: func() []netip.Addr { return nil },
}

// webhookURL reads a URL in its canonical form, in which the server returns it.
func webhookURL(f *form.Form, name string) (any, bool) {
	text := f.Text(name, math.MaxInt)
	if text == nil {
		return nil, false
	}
	canonical, err := anyAddress.CheckURL(*text)
	if err != nil {
		f.Refuse(name, egress.CodeInvalidURL, "%s", messageOf(err))
		return nil, false
	}
	return canonical, true
}
