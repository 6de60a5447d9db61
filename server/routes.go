package server

import (
	"net/http"
	"sync/atomic"

	"github.com/keyhook/keyhook/server/apply"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/platform"
	"github.com/keyhook/keyhook/server/usage"
	"github.com/keyhook/keyhook/server/webhooks"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// table lists every path that is served: method, path, handler, permissions and limits. A row without "to" needs a
// credential with its permissions and counts one request of its rate limit. HEAD is served wherever GET is.
func (h *handlers) table() []route {
	var (
		key, subscription, event = exists(h.keys.find), exists(h.webhooks.Subscriptions.Find), h.webhooks.Events.Exists
		plan, permission, role   = exists(h.platform.Plans.Find), exists(h.platform.Permissions.Find), exists(h.platform.Roles.Find)
		organization, member     = exists(h.platform.Organizations.Find), h.platform.Members.Exist
		user, token              = exists(h.platform.Users.Find), exists(h.platform.Tokens.Find)
	)
	return []route{
		// The process and its documents.
		get("/healthz/", h.health.live).to(open),
		get("/readyz/", h.health.ready).to(open),
		get("/metrics/", h.metrics).to(local).need(access.PlatformRead),
		get("/openapi.yaml/", h.description.asYAML).to(open),
		get("/openapi.json/", h.description.asJSON).to(open),
		get("/docs/", h.documents.index).to(open).query("q"),
		get("/docs/{name}/", h.documents.read).to(open),

		// The console: the page, and every path below it.
		get("/", h.consoleRedirect()).matching(isRoot).to(open),
		get("/console/", h.consoleFile()).matching(isConsole).to(open),
		signIn(http.MethodGet, "/console/oidc/start/", h.signIns.begin()).to(open).query("to"),
		signIn(http.MethodGet, callbackPath, h.signIns.finish()).to(open),

		// The caller. Sign-in checks the access token or the link in its body.
		get("/api/v1/whoami/", h.whoami.read).to(anyone),
		get("/api/v1/usage/", h.usage.OfPlan).to(anyone),
		signIn(http.MethodPost, "/api/v1/session/", h.sessions.create).to(open).body(maxSmallBody),
		get("/api/v1/session/", h.sessions.read).to(anyone),
		del("/api/v1/session/", h.sessions.end).to(anyone),

		get("/api/v1/search/", h.search.find).to(anyone).query("q"),

		// Questions about a key. Forward authentication also serves {dialect}/{permission}/, and the key needs that permission.
		anyPath("/api/v1/authz/{dialect}/", isForwardAuth, h.forwardAuth.authorize).to(proxied),
		post("/api/v1/auth/verify/", h.verification.verify).need(access.APIKeysRead, access.PlatformActAs).body(maxSmallBody),
		signIn(http.MethodPost, "/api/v1/auth/leaked/", h.leaks.report).to(open).body(maxSmallBody),
		post("/api/v1/auth/explain/", h.explainKey.explain).need(access.APIKeysRead).body(maxSmallBody),

		get("/api/v1/api-keys/", h.keys.list).need(access.APIKeysRead).pages("organization", "status", "prefix", "unused_for"),
		post("/api/v1/api-keys/", h.keys.create).need(access.APIKeysWrite).body(maxSmallBody),
		get("/api/v1/api-keys/{id}/", h.keys.read).need(access.APIKeysRead).of(key),
		del("/api/v1/api-keys/{id}/", h.keys.revoke).need(access.APIKeysWrite).of(key),
		post("/api/v1/api-keys/{id}/rotate/", h.keys.rotate).need(access.APIKeysWrite).body(maxSmallBody).of(key),

		get("/api/v1/webhooks/subscriptions/", h.webhooks.Subscriptions.List).need(access.WebhooksRead).pages("organization", "status", "paused", "search"),
		post("/api/v1/webhooks/subscriptions/", h.webhooks.Subscriptions.Create).need(access.WebhooksWrite).body(maxSmallBody),
		get("/api/v1/webhooks/subscriptions/{id}/", h.webhooks.Subscriptions.Read).need(access.WebhooksRead).of(subscription),
		patch("/api/v1/webhooks/subscriptions/{id}/", h.webhooks.Subscriptions.Update).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		del("/api/v1/webhooks/subscriptions/{id}/", h.webhooks.Subscriptions.Remove).need(access.WebhooksWrite).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/rotate-secret/", h.webhooks.Subscriptions.RotateSecret).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/test/", h.webhooks.Deliveries.Test).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/recover/", h.webhooks.Recoveries.Recover).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/discard/", h.webhooks.Recoveries.Discard).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/replay/", h.webhooks.Replays.Create).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		get("/api/v1/webhooks/subscriptions/{id}/deliveries/", h.webhooks.Deliveries.List).need(access.WebhooksRead).
			pages("outcome", "event_type", "event_id", "since", "until").of(h.webhooks.Deliveries.LogExists),
		get("/api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/", h.webhooks.Deliveries.Read).need(access.WebhooksRead).of(exists(h.webhooks.Deliveries.Find)),
		post("/api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/redeliver/", h.webhooks.Deliveries.Redeliver).need(access.WebhooksWrite).of(subscription),
		get("/api/v1/webhooks/subscriptions/{id}/feed/", h.webhooks.Feeds.Read).need(access.EventsRead).query("after", "since", "limit", "wait").of(subscription),
		post("/api/v1/webhooks/recover/", h.webhooks.Recoveries.RecoverListed).need(access.WebhooksWrite).body(maxSmallBody),
		post("/api/v1/webhooks/redeliver/", h.webhooks.Recoveries.RedeliverListed).need(access.WebhooksWrite).body(maxSmallBody),
		post("/api/v1/webhooks/filters/preview/", h.webhooks.Previews.Create).need(access.WebhooksRead, access.EventsRead).body(maxSmallBody),
		get("/api/v1/webhooks/stats/", h.webhooks.Stats.Read).need(access.WebhooksRead).query("organization", "since", "until", "subscription_id", "step"),
		get("/api/v1/webhooks/stats/subscriptions/", h.webhooks.Stats.ReadSubscriptions).need(access.WebhooksRead).query("subscription_id", "since", "until", "step"),
		get("/api/v1/webhooks/backlog/", h.webhooks.Backlog.Read).need(access.WebhooksRead).query("organization"),

		get("/api/v1/events/", h.webhooks.Events.List).need(access.EventsRead).
			pages("organization", "type", "since", "until", "idempotency_key", "audit_events", "state", "subscription_id"),
		post("/api/v1/events/", h.webhooks.Events.Publish).need(access.EventsWrite).body(maxEventBody),
		post("/api/v1/events/batch/", h.webhooks.Events.PublishBatch).need(access.EventsWrite).body(maxBatchBody),
		get("/api/v1/events/{id}/", h.webhooks.Events.Read).need(access.EventsRead).of(event),
		get("/api/v1/events/{id}/explain/", h.webhooks.Explanations.List).need(access.EventsRead).pages("subscription_id").of(event),
		get("/api/v1/event-types/", h.webhooks.EventTypes.List).needAny(access.EventsRead, access.WebhooksRead),
		get("/api/v1/event-types/{type}/", h.webhooks.EventTypes.Read).needAny(access.EventsRead, access.WebhooksRead).of(exists(h.webhooks.EventTypes.Find)),
		put("/api/v1/event-types/{type}/", h.webhooks.EventTypes.Put).need(access.PlatformWrite).body(maxEventBody),
		del("/api/v1/event-types/{type}/", h.webhooks.EventTypes.Remove).need(access.PlatformWrite).of(exists(h.webhooks.EventTypes.FindCatalogued)),

		get("/api/v1/audit-events/", h.audit.list).need(access.AuditRead).pages("organization", "type", "actor", "target", "since", "until"),
		get("/api/v1/audit-events/{id}/", h.audit.read).need(access.AuditRead).of(exists(h.audit.find)),

		get("/api/v1/system/", h.platform.System.Read).need(access.PlatformRead),
		get("/api/v1/queue/", h.platform.Queue.Read).need(access.PlatformRead),
		post("/api/v1/queue/hold/", h.platform.Queue.Hold).need(access.PlatformWrite).body(maxSmallBody),
		post("/api/v1/queue/release/", h.platform.Queue.Release).need(access.PlatformWrite),
		post("/api/v1/queue/discard/", h.platform.Queue.Discard).need(access.PlatformWrite),
		post("/api/v1/backups/", h.platform.Backups.Create).need(access.PlatformWrite).body(maxSmallBody),
		post("/api/v1/apply/", h.apply).need(access.PlatformWrite).body(maxBatchBody),
		get("/api/v1/applied/", h.platform.Applied.List).need(access.PlatformRead).pages(),
		del("/api/v1/applied/{kind}/{key}/", h.platform.Applied.Forget).need(access.PlatformWrite).of(exists(h.platform.Applied.Find)),
		get("/api/v1/clock/", h.platform.Clock.Read).need(access.PlatformRead),
		post("/api/v1/clock/accept/", h.platform.Clock.Accept).need(access.PlatformWrite),

		get("/api/v1/plans/", h.platform.Plans.List).need(access.PlatformRead).pages(),
		post("/api/v1/plans/", h.platform.Plans.Create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/plans/{name}/", h.platform.Plans.Read).need(access.PlatformRead).of(plan),
		patch("/api/v1/plans/{name}/", h.platform.Plans.Update).need(access.PlatformWrite).body(maxSmallBody).of(plan),
		del("/api/v1/plans/{name}/", h.platform.Plans.Remove).need(access.PlatformWrite).of(plan),

		get("/api/v1/permissions/", h.platform.Permissions.List).need(access.PlatformRead).pages(),
		post("/api/v1/permissions/", h.platform.Permissions.Create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/permissions/{key}/", h.platform.Permissions.Read).need(access.PlatformRead).of(permission),
		patch("/api/v1/permissions/{key}/", h.platform.Permissions.Update).need(access.PlatformWrite).body(maxSmallBody).of(permission),
		del("/api/v1/permissions/{key}/", h.platform.Permissions.Remove).need(access.PlatformWrite).of(permission),

		get("/api/v1/roles/", h.platform.Roles.List).need(access.PlatformRead).pages(),
		post("/api/v1/roles/", h.platform.Roles.Create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/roles/{name}/", h.platform.Roles.Read).need(access.PlatformRead).of(role),
		patch("/api/v1/roles/{name}/", h.platform.Roles.Update).need(access.PlatformWrite).body(maxSmallBody).of(role),
		del("/api/v1/roles/{name}/", h.platform.Roles.Remove).need(access.PlatformWrite).of(role),

		get("/api/v1/organizations/", h.platform.Organizations.List).need(access.PlatformRead).pages("search", "sort"),
		post("/api/v1/organizations/", h.platform.Organizations.Create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/organizations/{id}/", h.platform.Organizations.Read).need(access.PlatformRead).of(organization),
		put("/api/v1/organizations/{id}/", h.platform.Organizations.Put).need(access.PlatformWrite).body(maxSmallBody),
		patch("/api/v1/organizations/{id}/", h.platform.Organizations.Update).need(access.PlatformWrite).body(maxSmallBody).of(organization),
		del("/api/v1/organizations/{id}/", h.platform.Organizations.Remove).need(access.PlatformWrite).of(organization),

		post("/api/v1/organizations/{id}/portal-links/", h.platform.Portals.Create).need(access.PlatformActAs).body(maxSmallBody).of(organization),
		post("/api/v1/organizations/{id}/close/", h.platform.Removals.Close).need(access.PlatformWrite).body(maxSmallBody).of(organization),
		get("/api/v1/organizations/{id}/members/", h.platform.Members.List).need(access.PlatformRead).pages().of(organization),
		put("/api/v1/organizations/{id}/members/{user_id}/", h.platform.Members.Set).need(access.PlatformWrite).body(maxSmallBody).of(member),
		del("/api/v1/organizations/{id}/members/{user_id}/", h.platform.Members.Remove).need(access.PlatformWrite).of(member),

		get("/api/v1/users/", h.platform.Users.List).need(access.PlatformRead).pages("search"),
		post("/api/v1/users/", h.platform.Users.Create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/users/{id}/", h.platform.Users.Read).need(access.PlatformRead).of(user),
		put("/api/v1/users/{id}/", h.platform.Users.Put).need(access.PlatformWrite).body(maxSmallBody),
		patch("/api/v1/users/{id}/", h.platform.Users.Update).need(access.PlatformWrite).body(maxSmallBody).of(user),
		del("/api/v1/users/{id}/", h.platform.Users.Remove).need(access.PlatformWrite).of(user),
		post("/api/v1/users/{id}/erase/", h.platform.Removals.Erase).need(access.PlatformWrite).body(maxSmallBody).of(user),

		get("/api/v1/users/{id}/memberships/", h.platform.Users.Memberships).need(access.PlatformRead).pages().of(user),
		get("/api/v1/users/{id}/access-tokens/", h.platform.Tokens.List).need(access.PlatformRead).pages().of(user),
		post("/api/v1/users/{id}/access-tokens/", h.platform.Tokens.Create).need(access.PlatformWrite).body(maxSmallBody).of(user),
		get("/api/v1/users/{id}/access-tokens/{token_id}/", h.platform.Tokens.Read).need(access.PlatformRead).of(token),
		del("/api/v1/users/{id}/access-tokens/{token_id}/", h.platform.Tokens.Revoke).need(access.PlatformWrite).of(token),

		// Usage stands last, because router.advice names the first path with the last name of a wrong one.
		get("/api/v1/usage/keys/", h.usage.OfKeys).need(access.APIKeysRead).pages("organization", "since", "until", "step", "key_id"),
		get("/api/v1/usage/organizations/", h.usage.OfOrganizations).need(access.APIKeysRead).pages("organization", "since", "until", "step"),
	}
}

// The largest bodies of requests, in bytes.
const (
	maxSmallBody = 64 << 10
	maxEventBody = webhook.MaxEvent
	maxBatchBody = exchange.LargestBody
)

// reach says who reaches the handler of a route, and which limit counts the request.
type reach uint8

const (
	permitted reach = iota // a credential with the permissions of the route; one request of its rate limit
	anyone                 // any valid credential; one request of its rate limit
	open                   // everybody; no credential is read, and nothing is counted
	local                  // open for requests from this machine, permitted for all others
	proxied                // the API key of a proxied request; one request of its rate limit
)

// route is one row of the table. Its methods set what differs from a request without query and body.
type route struct {
	method     string // anyMethod if match decides
	pattern    string // ends in a slash; the same path without it is served too
	access     reach
	needs      access.Scope // all of these permissions
	anyOf      access.Scope // one of these permissions, too; empty needs none
	maxBody    int64        // bytes; 0 takes no body
	parameters []string     // of the query; any other is refused
	handle     func(*call) error
	exists     handler                // NotFound if the resource in the path does not exist; nil if the path names none
	match      func(path string) bool // instead of the pattern
}

// anyMethod is the method of a route that serves all methods.
const anyMethod = "*"

func get(pattern string, handle handler) route { return handle.at(http.MethodGet, pattern) }

func post(pattern string, handle handler) route { return handle.at(http.MethodPost, pattern) }

func put(pattern string, handle handler) route { return handle.at(http.MethodPut, pattern) }

func patch(pattern string, handle handler) route { return handle.at(http.MethodPatch, pattern) }

func del(pattern string, handle handler) route { return handle.at(http.MethodDelete, pattern) }

// handler handles a request after the checks of its credential, or answers a question about it.
type handler func(*exchange.Exchange) error

func (h handler) at(method, pattern string) route {
	r := route{method: method, pattern: pattern}
	if h != nil {
		r.handle = func(c *call) error { return h(&c.Exchange) }
	}
	return r
}

// signIn is a route whose handler reads a credential from another place than the header, and has it checked.
func signIn(method, pattern string, handle func(*call) error) route {
	return route{method: method, pattern: pattern, handle: handle}
}

// anyPath serves all methods at the paths that match.
func anyPath(pattern string, match func(path string) bool, handle func(*call) error) route {
	return route{method: anyMethod, pattern: pattern, match: match, handle: handle}
}

// matching serves the method at the paths that match, instead of the pattern.
func (r route) matching(match func(path string) bool) route {
	r.match = match
	return r
}

func (r route) to(who reach) route {
	r.access = who
	return r
}

// need lists the permissions that a credential must have, all of them.
func (r route) need(permissions ...string) route {
	r.needs = access.NewScope(permissions...)
	return r
}

// needAny lists permissions of which a credential must have one.
func (r route) needAny(permissions ...string) route {
	r.anyOf = access.NewScope(permissions...)
	return r
}

func (r route) body(most int64) route {
	r.maxBody = most
	return r
}

func (r route) query(parameters ...string) route {
	r.parameters = parameters
	return r
}

// pages is a list of pages with these filters.
func (r route) pages(filters ...string) route {
	return r.query(append([]string{"limit", "cursor"}, filters...)...)
}

// of names the resource in the path. It decides between 404 and a problem with the query or the body.
func (r route) of(exists handler) route {
	r.exists = exists
	return r
}

// exists adapts a finder to a yes/no check.
func exists[T any](find func(*exchange.Exchange) (T, error)) handler {
	return func(x *exchange.Exchange) error {
		_, err := find(x)
		return err
	}
}

// handlers has the handlers of every resource. Each one has only what it needs.
type handlers struct {
	health       health
	metrics      handler // nil: another listener serves the metrics
	description  description
	documents    documents
	console      *console.Site // nil is not served
	whoami       whoami
	usage        usage.Endpoints
	search       searches
	sessions     sessions
	signIns      signIns
	forwardAuth  forwardAuth
	verification verification
	leaks        leaks
	explainKey   keyExplanation
	keys         keys
	audit        audit
	apply        handler
	webhooks     webhooks.Handlers
	platform     platform.Handlers
}

// newHandlers creates the handlers. base is the path before every path that a response shows.
func newHandlers(o Options, base string, site *console.Site, auth *authenticator, router *router, draining *atomic.Bool, stopping <-chan struct{}) *handlers {
	lookup, api := form.Lookup{Store: o.Store}, newDescription(o.BaseURL)
	h := &handlers{
		health:       health{o.Store, o.Deliveries, o.Checks, o.Settings, draining, &cachedReadiness{lock: make(chan struct{}, 1)}},
		description:  api,
		documents:    newDocuments(o, base, api),
		console:      site,
		whoami:       whoami{o.Store},
		usage:        usage.Endpoints{Store: o.Store},
		search:       searches{o.Store},
		sessions:     sessions{o.Store, auth, whoami{o.Store}},
		signIns:      signIns{o.SignIn, o.Store, auth, base},
		forwardAuth:  forwardAuth{auth, o.Store},
		verification: verification{auth.checker, lookup},
		leaks:        leaks{o.Store, auth},
		explainKey:   keyExplanation{auth.checker, router, o.Store, lookup},
		keys:         keys{o.Store, lookup, o.KeyPrefix},
		audit:        audit{o.Store},
	}
	h.webhooks = webhooks.New(webhooks.Options{
		Store: o.Store, Tester: stoppingTester{o.Tester, draining}, TestTimeout: o.TestTimeout, SentHeaders: o.SentHeaders,
		HeaderPrefix: o.HeaderPrefix, CheckURL: o.CheckURL, Stopping: stopping,
	})
	h.platform = platform.New(platform.Options{Store: o.Store, ConsoleURL: o.ConsoleURL, Deliveries: h.health.queue})
	h.apply = apply.Endpoint{Store: o.Store, CheckURL: o.CheckURL, HeaderPrefix: o.HeaderPrefix}.Apply
	if o.Metrics != nil {
		h.metrics = func(x *exchange.Exchange) error {
			o.Metrics.ServeHTTP(x, x.Request)
			return nil
		}
	}
	return h
}
