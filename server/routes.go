package server

import (
	"net/http"

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
		key, subscription, event = exists(h.findKey), exists(h.webhooks.FindSubscription), h.webhooks.EventExists
		plan, permission, role   = exists(h.platform.Plans.Find), exists(h.platform.Permissions.Find), exists(h.platform.Roles.Find)
		organization, member     = exists(h.platform.Organizations.Find), h.platform.MemberExists
		user, token              = exists(h.platform.Users.Find), exists(h.platform.FindToken)
		sub                      = h.webhooks.OfSubscription
	)
	return []route{
		// The process and its documents.
		get("/healthz/", h.health.live).to(open),
		get("/readyz/", h.health.ready).to(open),
		get("/metrics/", h.readMetrics).to(local).need(access.PlatformRead).when(h.options.Metrics != nil),
		get("/openapi.yaml/", serveDocument(h.description.yaml)).to(open),
		get("/openapi.json/", serveDocument(h.description.json)).to(open),
		get("/docs/", h.documents.index).to(open).query("q"),
		get("/docs/{name}/", h.documents.read).to(open),

		// The console: the page, and every path below it.
		get("/", h.redirectToConsole).matching(isRoot).to(open).when(h.console != nil),
		get("/console/", h.consoleFile).matching(isConsole).to(open).when(h.console != nil),
		callRoute(http.MethodGet, "/console/oidc/start/", h.beginSignIn).to(open).query("to").when(h.options.SignIn != nil),
		callRoute(http.MethodGet, callbackPath, h.finishSignIn).to(open).when(h.options.SignIn != nil),

		// The caller. Sign-in checks the access token or the link in its body.
		get("/api/v1/whoami/", h.readCaller).to(anyone),
		get("/api/v1/usage/", h.usage.OfPlan).to(anyone),
		get("/api/v1/usage/keys/", h.usage.OfKeys).need(access.APIKeysRead).pages("organization", "since", "until", "step", "key_id"),
		get("/api/v1/usage/organizations/", h.usage.OfOrganizations).need(access.APIKeysRead).pages("organization", "since", "until", "step"),
		callRoute(http.MethodPost, "/api/v1/session/", h.createSession).to(open).body(maxSmallBody),
		get("/api/v1/session/", h.readSession).to(anyone),
		del("/api/v1/session/", h.endSession).to(anyone),

		get("/api/v1/search/", h.search).to(anyone).query("q"),

		// Questions about a key. Forward authentication also serves {dialect}/{permission}/, and the key needs that permission.
		callRoute(anyMethod, "/api/v1/authz/{dialect}/", h.authorize).matching(isForwardAuth).to(proxied),
		post("/api/v1/auth/verify/", h.verifyKey).need(access.APIKeysRead, access.PlatformActAs).body(maxSmallBody),
		callRoute(http.MethodPost, "/api/v1/auth/leaked/", h.reportLeak).to(open).body(maxSmallBody),
		post("/api/v1/auth/explain/", h.explainKey).need(access.APIKeysRead).body(maxSmallBody),

		get("/api/v1/api-keys/", h.listKeys).need(access.APIKeysRead).pages("organization", "status", "prefix", "unused_for"),
		post("/api/v1/api-keys/", h.createKey).need(access.APIKeysWrite).body(maxSmallBody),
		get("/api/v1/api-keys/{id}/", h.readKey).need(access.APIKeysRead).of(key),
		del("/api/v1/api-keys/{id}/", h.revokeKey).need(access.APIKeysWrite).of(key),
		post("/api/v1/api-keys/{id}/rotate/", h.rotateKey).need(access.APIKeysWrite).body(maxSmallBody).of(key),

		get("/api/v1/webhooks/subscriptions/", h.webhooks.ListSubscriptions).need(access.WebhooksRead).pages("organization", "status", "paused", "pending", "search"),
		post("/api/v1/webhooks/subscriptions/", h.webhooks.CreateSubscription).need(access.WebhooksWrite).body(maxSmallBody),
		get("/api/v1/webhooks/subscriptions/{id}/", h.webhooks.ReadSubscription).need(access.WebhooksRead).of(subscription),
		patch("/api/v1/webhooks/subscriptions/{id}/", sub(h.webhooks.UpdateSubscription)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		del("/api/v1/webhooks/subscriptions/{id}/", sub(h.webhooks.RemoveSubscription)).need(access.WebhooksWrite).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/rotate-secret/", sub(h.webhooks.RotateSecret)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/test/", sub(h.webhooks.Test)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/recover/", sub(h.webhooks.Recover)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/discard/", sub(h.webhooks.Discard)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/replay/", sub(h.webhooks.Replay)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		get("/api/v1/webhooks/subscriptions/{id}/deliveries/", sub(h.webhooks.ListAttempts)).need(access.WebhooksRead).
			pages("outcome", "event_type", "event_id", "since", "until").of(sub(h.webhooks.LogExists)),
		get("/api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/", h.webhooks.ReadAttempt).need(access.WebhooksRead).of(exists(h.webhooks.FindAttempt)),
		post("/api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/redeliver/", h.webhooks.Redeliver).need(access.WebhooksWrite).of(subscription),
		get("/api/v1/webhooks/subscriptions/{id}/feed/", sub(h.webhooks.ReadFeed)).need(access.EventsRead).query("after", "since", "limit", "wait").of(subscription),
		post("/api/v1/webhooks/recover/", h.webhooks.RecoverListed).need(access.WebhooksWrite).body(maxSmallBody),
		post("/api/v1/webhooks/redeliver/", h.webhooks.RedeliverListed).need(access.WebhooksWrite).body(maxSmallBody),
		post("/api/v1/webhooks/filters/preview/", h.webhooks.PreviewFilter).need(access.WebhooksRead, access.EventsRead).body(maxSmallBody),
		get("/api/v1/webhooks/stats/", h.webhooks.ReadStats).need(access.WebhooksRead).query("organization", "since", "until", "subscription_id", "step"),
		get("/api/v1/webhooks/backlog/", h.webhooks.ReadBacklog).need(access.WebhooksRead).query("organization"),

		get("/api/v1/events/", h.webhooks.ListEvents).need(access.EventsRead).
			pages("organization", "type", "since", "until", "idempotency_key", "audit_events", "state", "subscription_id"),
		post("/api/v1/events/", h.webhooks.Publish).need(access.EventsWrite).body(maxEventBody),
		post("/api/v1/events/batch/", h.webhooks.PublishBatch).need(access.EventsWrite).body(maxBatchBody),
		get("/api/v1/events/{id}/", h.webhooks.ReadEvent).need(access.EventsRead).of(event),
		get("/api/v1/events/{id}/explain/", h.webhooks.ExplainEvent).need(access.EventsRead).pages("subscription_id").of(event),
		get("/api/v1/event-types/", h.webhooks.ListEventTypes).needAny(access.EventsRead, access.WebhooksRead),
		get("/api/v1/event-types/{type}/", h.webhooks.ReadEventType).needAny(access.EventsRead, access.WebhooksRead).of(exists(h.webhooks.FindEventType)),
		put("/api/v1/event-types/{type}/", h.webhooks.PutEventType).need(access.PlatformWrite).body(maxEventBody),
		del("/api/v1/event-types/{type}/", h.webhooks.RemoveEventType).need(access.PlatformWrite).of(exists(h.webhooks.FindCatalogued)),

		get("/api/v1/audit-events/", h.listAudit).need(access.AuditRead).pages("organization", "type", "actor", "target", "since", "until"),
		get("/api/v1/audit-events/{id}/", h.readAuditEvent).need(access.AuditRead).of(exists(h.findAuditEvent)),

		get("/api/v1/system/", h.platform.ReadSystem).need(access.PlatformRead),
		get("/api/v1/queue/", h.platform.ReadQueue).need(access.PlatformRead),
		post("/api/v1/queue/hold/", h.platform.HoldQueue).need(access.PlatformWrite).body(maxSmallBody),
		post("/api/v1/queue/release/", h.platform.ReleaseQueue).need(access.PlatformWrite),
		post("/api/v1/queue/discard/", h.platform.DiscardQueue).need(access.PlatformWrite),
		post("/api/v1/backups/", h.platform.CreateBackup).need(access.PlatformWrite).body(maxSmallBody),
		post("/api/v1/apply/", h.apply).need(access.PlatformWrite).body(maxBatchBody),
		get("/api/v1/applied/", h.platform.ListApplied).need(access.PlatformRead).pages(),
		get("/api/v1/clock/", h.platform.ReadClock).need(access.PlatformRead),
		post("/api/v1/clock/accept/", h.platform.AcceptClock).need(access.PlatformWrite),

		get("/api/v1/plans/", h.platform.Plans.List).need(access.PlatformRead).pages(),
		post("/api/v1/plans/", h.platform.CreatePlan).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/plans/{name}/", h.platform.Plans.Read).need(access.PlatformRead).of(plan),
		patch("/api/v1/plans/{name}/", h.platform.UpdatePlan).need(access.PlatformWrite).body(maxSmallBody).of(plan),
		del("/api/v1/plans/{name}/", h.platform.Plans.Remove).need(access.PlatformWrite).of(plan),

		get("/api/v1/permissions/", h.platform.Permissions.List).need(access.PlatformRead).pages(),
		post("/api/v1/permissions/", h.platform.CreatePermission).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/permissions/{key}/", h.platform.Permissions.Read).need(access.PlatformRead).of(permission),
		patch("/api/v1/permissions/{key}/", h.platform.UpdatePermission).need(access.PlatformWrite).body(maxSmallBody).of(permission),
		del("/api/v1/permissions/{key}/", h.platform.Permissions.Remove).need(access.PlatformWrite).of(permission),

		get("/api/v1/roles/", h.platform.Roles.List).need(access.PlatformRead).pages(),
		post("/api/v1/roles/", h.platform.CreateRole).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/roles/{name}/", h.platform.Roles.Read).need(access.PlatformRead).of(role),
		patch("/api/v1/roles/{name}/", h.platform.UpdateRole).need(access.PlatformWrite).body(maxSmallBody).of(role),
		del("/api/v1/roles/{name}/", h.platform.Roles.Remove).need(access.PlatformWrite).of(role),

		get("/api/v1/organizations/", h.platform.ListOrganizations).need(access.PlatformRead).pages("search", "sort"),
		post("/api/v1/organizations/", h.platform.CreateOrganization).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/organizations/{id}/", h.platform.Organizations.Read).need(access.PlatformRead).of(organization),
		put("/api/v1/organizations/{id}/", h.platform.PutOrganization).need(access.PlatformWrite).body(maxSmallBody),
		patch("/api/v1/organizations/{id}/", h.platform.UpdateOrganization).need(access.PlatformWrite).body(maxSmallBody).of(organization),
		del("/api/v1/organizations/{id}/", h.platform.Organizations.Remove).need(access.PlatformWrite).of(organization),

		post("/api/v1/organizations/{id}/portal-links/", h.platform.CreatePortalLink).need(access.PlatformActAs).body(maxSmallBody).of(organization),
		post("/api/v1/organizations/{id}/close/", h.platform.CloseOrganization).need(access.PlatformWrite).body(maxSmallBody).of(organization),
		get("/api/v1/organizations/{id}/members/", h.platform.ListMembers).need(access.PlatformRead).pages().of(organization),
		put("/api/v1/organizations/{id}/members/{user_id}/", h.platform.SetMember).need(access.PlatformWrite).body(maxSmallBody).of(member),
		del("/api/v1/organizations/{id}/members/{user_id}/", h.platform.RemoveMember).need(access.PlatformWrite).of(member),

		get("/api/v1/users/", h.platform.ListUsers).need(access.PlatformRead).pages("search"),
		post("/api/v1/users/", h.platform.CreateUser).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/users/{id}/", h.platform.Users.Read).need(access.PlatformRead).of(user),
		put("/api/v1/users/{id}/", h.platform.PutUser).need(access.PlatformWrite).body(maxSmallBody),
		patch("/api/v1/users/{id}/", h.platform.UpdateUser).need(access.PlatformWrite).body(maxSmallBody).of(user),
		del("/api/v1/users/{id}/", h.platform.Users.Remove).need(access.PlatformWrite).of(user),
		post("/api/v1/users/{id}/erase/", h.platform.EraseUser).need(access.PlatformWrite).body(maxSmallBody).of(user),

		get("/api/v1/users/{id}/memberships/", h.platform.ListMemberships).need(access.PlatformRead).pages().of(user),
		get("/api/v1/users/{id}/access-tokens/", h.platform.ListTokens).need(access.PlatformRead).pages().of(user),
		post("/api/v1/users/{id}/access-tokens/", h.platform.CreateToken).need(access.PlatformWrite).body(maxSmallBody).of(user),
		get("/api/v1/users/{id}/access-tokens/{token_id}/", h.platform.ReadToken).need(access.PlatformRead).of(token),
		del("/api/v1/users/{id}/access-tokens/{token_id}/", h.platform.RevokeToken).need(access.PlatformWrite).of(token),
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
	needs      access.Scope           // all of these permissions
	anyOf      access.Scope           // one of these permissions, too; empty needs none
	maxBody    int64                  // bytes; 0 takes no body
	parameters []string               // of the query; any other is refused
	handle     func(*call) error      // nil is not served
	exists     handler                // NotFound if the resource in the path does not exist; nil if the path names none
	match      func(path string) bool // instead of the pattern
}

const anyMethod = "*"

func get(pattern string, handle handler) route { return handle.at(http.MethodGet, pattern) }

func post(pattern string, handle handler) route { return handle.at(http.MethodPost, pattern) }

func put(pattern string, handle handler) route { return handle.at(http.MethodPut, pattern) }

func patch(pattern string, handle handler) route { return handle.at(http.MethodPatch, pattern) }

func del(pattern string, handle handler) route { return handle.at(http.MethodDelete, pattern) }

// handler handles a request after the checks of its credential, or answers a question about it.
type handler func(*exchange.Exchange) error

func (h handler) at(method, pattern string) route {
	return callRoute(method, pattern, func(c *call) error { return h(&c.Exchange) })
}

// callRoute is a route whose handler gets the whole call: it reads a credential from another place, or by other rules, and has it checked.
func callRoute(method, pattern string, handle func(*call) error) route {
	return route{method: method, pattern: pattern, handle: handle}
}

// matching serves the paths that match, instead of the pattern.
func (r route) matching(match func(path string) bool) route {
	r.match = match
	return r
}

func (r route) to(who reach) route {
	r.access = who
	return r
}

func (r route) when(condition bool) route {
	if !condition {
		r.handle = nil
	}
	return r
}

func (r route) need(permissions ...string) route {
	r.needs = access.NewScope(permissions...)
	return r
}

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

type handlers struct {
	*Server
	lookup      form.Lookup
	health      *health
	description description
	documents   documents
	console     *console.Site // nil is not served
	apply       handler
	usage       usage.Endpoints
	webhooks    webhooks.Endpoints
	platform    *platform.Endpoints
}

func newHandlers(s *Server, site *console.Site) *handlers {
	o, api := s.options, newDescription(s.options.BaseURL)
	h := &handlers{
		Server: s,
		lookup: form.Lookup{Store: o.Store},
		health: &health{
			store: o.Store, deliveries: o.Deliveries, checks: o.Checks, settings: o.Settings, draining: &s.draining, lock: make(chan struct{}, 1),
		},
		description: api,
		documents:   newDocuments(o, s.base, api),
		console:     site,
		apply:       apply.Endpoint{Store: o.Store, CheckURL: o.CheckURL, HeaderPrefix: o.HeaderPrefix}.Apply,
		usage:       usage.Endpoints{Store: o.Store},
	}
	h.webhooks = webhooks.Endpoints{
		Store: o.Store, Tester: o.Tester, TestTimeout: o.TestTimeout, SentHeaders: o.SentHeaders,
		HeaderPrefix: o.HeaderPrefix, CheckURL: o.CheckURL, Stopping: s.stopping.Done(),
	}
	h.platform = platform.New(platform.Options{Store: o.Store, ConsoleURL: o.ConsoleURL, Deliveries: h.health.queue})
	return h
}

func (h *handlers) readMetrics(x *exchange.Exchange) error {
	h.options.Metrics.ServeHTTP(x, x.Request)
	return nil
}
