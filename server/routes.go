package server

import (
	"strings"

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
func (s *Server) table(site *console.Site) []route {
	o, api := s.options, newDescription(s.options.BaseURL)
	h := &handlers{s, form.Lookup{Store: o.Store}, &health{Server: s, lock: make(chan struct{}, 1)}, newSite(o, s.base, api), site}
	hooks := webhooks.Endpoints{
		Store: o.Store, Tester: o.Tester, TestTimeout: o.TestTimeout, SentHeaders: o.SentHeaders,
		HeaderPrefix: o.HeaderPrefix, CheckURL: o.CheckURL, Stopping: s.stopping.Done(),
	}
	operator := platform.New(o.Store, o.ConsoleURL, h.health.queue)
	document := apply.Endpoint{Store: o.Store, CheckURL: o.CheckURL, HeaderPrefix: o.HeaderPrefix}
	usages := usage.Endpoints{Store: o.Store}
	var (
		key, subscription, event = exists(h.findKey), exists(hooks.FindSubscription), exists(hooks.FindEvent)
		plan, permission, role   = exists(operator.Plans.Find), exists(operator.Permissions.Find), exists(operator.Roles.Find)
		organization, member     = exists(operator.Organizations.Find), operator.MemberExists
		user, token              = exists(operator.Users.Find), exists(operator.FindToken)
		sub                      = hooks.OfSubscription
	)
	return []route{
		// The process and its documents.
		on("GET /healthz/", h.health.live).to(open),
		on("GET /readyz/", h.health.ready).to(open),
		on("GET /metrics/", h.readMetrics).to(local).need(access.PlatformRead).when(o.Metrics != nil),
		on("GET /openapi.yaml/", serveDocument(api.yaml)).to(open),
		on("GET /openapi.json/", serveDocument(api.json)).to(open),
		on("GET /docs/", h.readDocument).to(open).query("q"),
		on("GET /docs/{name}/", h.readDocument).to(open),

		// The console: the page, and every path below it.
		on("GET /", h.redirectToConsole).matching(isRoot).to(open).when(h.console != nil),
		on("GET /console/", h.consoleFile).matching(isConsole).to(open).when(h.console != nil),
		onCall("GET /console/oidc/start/", h.beginSignIn).to(open).query("to").when(o.SignIn != nil),
		onCall("GET "+callbackPath, h.finishSignIn).to(open).when(o.SignIn != nil),

		// The caller. Sign-in checks the access token or the link in its body.
		on("GET /api/v1/whoami/", show(h.callerBody)).to(anyone),
		on("GET /api/v1/usage/", usages.OfPlan).to(anyone),
		on("GET /api/v1/usage/keys/", usages.OfKeys).need(access.APIKeysRead).pages("organization", "since", "until", "step", "key_id"),
		on("GET /api/v1/usage/organizations/", usages.OfOrganizations).need(access.APIKeysRead).pages("organization", "since", "until", "step"),
		onCall("POST /api/v1/session/", h.createSession).to(open).body(maxSmallBody),
		on("GET /api/v1/session/", show(h.describeSession)).to(anyone),
		on("DELETE /api/v1/session/", h.endSession).to(anyone),

		on("GET /api/v1/search/", h.search).to(anyone).query("q"),

		// Questions about a key. Forward authentication also serves {dialect}/{permission}/, and the key needs that permission.
		onCall("* /api/v1/authz/{dialect}/", h.authorize).matching(isForwardAuth).to(proxied),
		on("POST /api/v1/auth/verify/", h.verifyKey).need(access.APIKeysRead, access.PlatformActAs).body(maxSmallBody),
		onCall("POST /api/v1/auth/leaked/", h.reportLeak).to(open).body(maxSmallBody),
		on("POST /api/v1/auth/explain/", h.explainKey).need(access.APIKeysRead).body(maxSmallBody),

		on("GET /api/v1/api-keys/", h.listKeys).need(access.APIKeysRead).pages("organization", "status", "prefix", "unused_for"),
		on("POST /api/v1/api-keys/", h.createKey).need(access.APIKeysWrite).body(maxSmallBody),
		read("/api/v1/api-keys/{id}/", h.findKey).need(access.APIKeysRead),
		on("DELETE /api/v1/api-keys/{id}/", h.revokeKey).need(access.APIKeysWrite).of(key),
		on("POST /api/v1/api-keys/{id}/rotate/", h.rotateKey).need(access.APIKeysWrite).body(maxSmallBody).of(key),

		on("GET /api/v1/webhooks/subscriptions/", hooks.ListSubscriptions).need(access.WebhooksRead).pages("organization", "status", "paused", "pending", "search"),
		on("POST /api/v1/webhooks/subscriptions/", hooks.CreateSubscription).need(access.WebhooksWrite).body(maxSmallBody),
		read("/api/v1/webhooks/subscriptions/{id}/", hooks.FindSubscription).need(access.WebhooksRead),
		on("PATCH /api/v1/webhooks/subscriptions/{id}/", sub(hooks.UpdateSubscription)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		on("DELETE /api/v1/webhooks/subscriptions/{id}/", sub(hooks.RemoveSubscription)).need(access.WebhooksWrite).of(subscription),
		on("POST /api/v1/webhooks/subscriptions/{id}/rotate-secret/", sub(hooks.RotateSecret)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		on("POST /api/v1/webhooks/subscriptions/{id}/test/", sub(hooks.Test)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		on("POST /api/v1/webhooks/subscriptions/{id}/recover/", sub(hooks.Recover)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		on("POST /api/v1/webhooks/subscriptions/{id}/discard/", sub(hooks.Discard)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		on("POST /api/v1/webhooks/subscriptions/{id}/replay/", sub(hooks.Replay)).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		on("GET /api/v1/webhooks/subscriptions/{id}/deliveries/", sub(hooks.ListAttempts)).need(access.WebhooksRead).
			pages("outcome", "event_type", "event_id", "since", "until").of(sub(hooks.LogExists)),
		read("/api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/", hooks.FindAttempt).need(access.WebhooksRead),
		on("POST /api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/redeliver/", sub(hooks.Redeliver)).need(access.WebhooksWrite).of(subscription),
		on("GET /api/v1/webhooks/subscriptions/{id}/feed/", sub(hooks.ReadFeed)).need(access.EventsRead).query("after", "since", "limit", "wait").of(subscription),
		on("POST /api/v1/webhooks/recover/", hooks.RecoverListed).need(access.WebhooksWrite).body(maxSmallBody),
		on("POST /api/v1/webhooks/redeliver/", hooks.RedeliverListed).need(access.WebhooksWrite).body(maxSmallBody),
		on("POST /api/v1/webhooks/filters/preview/", hooks.PreviewFilter).need(access.WebhooksRead, access.EventsRead).body(maxSmallBody),
		on("GET /api/v1/webhooks/stats/", hooks.ReadStats).need(access.WebhooksRead).query("organization", "since", "until", "subscription_id", "step"),
		on("GET /api/v1/webhooks/backlog/", hooks.ReadBacklog).need(access.WebhooksRead).query("organization"),

		on("GET /api/v1/events/", hooks.ListEvents).need(access.EventsRead).
			pages("organization", "type", "since", "until", "idempotency_key", "audit_events", "state", "subscription_id"),
		on("POST /api/v1/events/", hooks.Publish).need(access.EventsWrite).body(maxEventBody),
		on("POST /api/v1/events/batch/", hooks.PublishBatch).need(access.EventsWrite).body(maxBatchBody),
		read("/api/v1/events/{id}/", hooks.FindEvent).need(access.EventsRead),
		on("GET /api/v1/events/{id}/explain/", hooks.ExplainEvent).need(access.EventsRead).pages("subscription_id").of(event),
		on("GET /api/v1/event-types/", hooks.ListEventTypes).needAny(access.EventsRead, access.WebhooksRead),
		read("/api/v1/event-types/{type}/", hooks.FindEventType).needAny(access.EventsRead, access.WebhooksRead),
		on("PUT /api/v1/event-types/{type}/", hooks.PutEventType).need(access.PlatformWrite).body(maxEventBody),
		on("DELETE /api/v1/event-types/{type}/", hooks.RemoveEventType).need(access.PlatformWrite).of(exists(hooks.FindCatalogued)),

		on("GET /api/v1/audit-events/", h.listAudit).need(access.AuditRead).pages("organization", "type", "actor", "target", "since", "until"),
		read("/api/v1/audit-events/{id}/", h.findAuditEvent).need(access.AuditRead),

		on("GET /api/v1/system/", operator.ReadSystem).need(access.PlatformRead),
		on("GET /api/v1/queue/", operator.ReadQueue).need(access.PlatformRead),
		on("POST /api/v1/queue/hold/", operator.HoldQueue).need(access.PlatformWrite).body(maxSmallBody),
		on("POST /api/v1/queue/release/", operator.ReleaseQueue).need(access.PlatformWrite),
		on("POST /api/v1/queue/discard/", operator.DiscardQueue).need(access.PlatformWrite),
		on("POST /api/v1/backups/", operator.CreateBackup).need(access.PlatformWrite).body(maxSmallBody),
		on("POST /api/v1/apply/", document.Apply).need(access.PlatformWrite).body(maxBatchBody),
		on("GET /api/v1/applied/", operator.ListApplied).need(access.PlatformRead).pages(),
		on("GET /api/v1/clock/", operator.ReadClock).need(access.PlatformRead),
		on("POST /api/v1/clock/accept/", operator.AcceptClock).need(access.PlatformWrite),

		on("GET /api/v1/plans/", operator.Plans.List).need(access.PlatformRead).pages(),
		on("POST /api/v1/plans/", operator.Plans.Create).need(access.PlatformWrite).body(maxSmallBody),
		read("/api/v1/plans/{name}/", operator.Plans.Find).need(access.PlatformRead),
		on("PATCH /api/v1/plans/{name}/", operator.Plans.Update).need(access.PlatformWrite).body(maxSmallBody).of(plan),
		on("DELETE /api/v1/plans/{name}/", operator.Plans.Remove).need(access.PlatformWrite).of(plan),

		on("GET /api/v1/permissions/", operator.Permissions.List).need(access.PlatformRead).pages(),
		on("POST /api/v1/permissions/", operator.Permissions.Create).need(access.PlatformWrite).body(maxSmallBody),
		read("/api/v1/permissions/{key}/", operator.Permissions.Find).need(access.PlatformRead),
		on("PATCH /api/v1/permissions/{key}/", operator.Permissions.Update).need(access.PlatformWrite).body(maxSmallBody).of(permission),
		on("DELETE /api/v1/permissions/{key}/", operator.Permissions.Remove).need(access.PlatformWrite).of(permission),

		on("GET /api/v1/roles/", operator.Roles.List).need(access.PlatformRead).pages(),
		on("POST /api/v1/roles/", operator.Roles.Create).need(access.PlatformWrite).body(maxSmallBody),
		read("/api/v1/roles/{name}/", operator.Roles.Find).need(access.PlatformRead),
		on("PATCH /api/v1/roles/{name}/", operator.Roles.Update).need(access.PlatformWrite).body(maxSmallBody).of(role),
		on("DELETE /api/v1/roles/{name}/", operator.Roles.Remove).need(access.PlatformWrite).of(role),

		on("GET /api/v1/organizations/", operator.ListOrganizations).need(access.PlatformRead).pages("search", "sort"),
		on("POST /api/v1/organizations/", operator.Organizations.Create).need(access.PlatformWrite).body(maxSmallBody),
		read("/api/v1/organizations/{id}/", operator.Organizations.Find).need(access.PlatformRead),
		on("PUT /api/v1/organizations/{id}/", operator.Organizations.Put).need(access.PlatformWrite).body(maxSmallBody),
		on("PATCH /api/v1/organizations/{id}/", operator.Organizations.Update).need(access.PlatformWrite).body(maxSmallBody).of(organization),
		on("DELETE /api/v1/organizations/{id}/", operator.Organizations.Remove).need(access.PlatformWrite).of(organization),

		on("POST /api/v1/organizations/{id}/portal-links/", operator.CreatePortalLink).need(access.PlatformActAs).body(maxSmallBody).of(organization),
		on("POST /api/v1/organizations/{id}/close/", operator.CloseOrganization).need(access.PlatformWrite).body(maxSmallBody).of(organization),
		on("GET /api/v1/organizations/{id}/members/", operator.ListMembers).need(access.PlatformRead).pages().of(organization),
		on("PUT /api/v1/organizations/{id}/members/{user_id}/", operator.SetMember).need(access.PlatformWrite).body(maxSmallBody).of(member),
		on("DELETE /api/v1/organizations/{id}/members/{user_id}/", operator.RemoveMember).need(access.PlatformWrite).of(member),

		on("GET /api/v1/users/", operator.ListUsers).need(access.PlatformRead).pages("search"),
		on("POST /api/v1/users/", operator.Users.Create).need(access.PlatformWrite).body(maxSmallBody),
		read("/api/v1/users/{id}/", operator.Users.Find).need(access.PlatformRead),
		on("PUT /api/v1/users/{id}/", operator.Users.Put).need(access.PlatformWrite).body(maxSmallBody),
		on("PATCH /api/v1/users/{id}/", operator.Users.Update).need(access.PlatformWrite).body(maxSmallBody).of(user),
		on("DELETE /api/v1/users/{id}/", operator.Users.Remove).need(access.PlatformWrite).of(user),
		on("POST /api/v1/users/{id}/erase/", operator.EraseUser).need(access.PlatformWrite).body(maxSmallBody).of(user),

		on("GET /api/v1/users/{id}/memberships/", operator.ListMemberships).need(access.PlatformRead).pages().of(user),
		on("GET /api/v1/users/{id}/access-tokens/", operator.ListTokens).need(access.PlatformRead).pages().of(user),
		on("POST /api/v1/users/{id}/access-tokens/", operator.CreateToken).need(access.PlatformWrite).body(maxSmallBody).of(user),
		read("/api/v1/users/{id}/access-tokens/{token_id}/", operator.FindToken).need(access.PlatformRead),
		on("DELETE /api/v1/users/{id}/access-tokens/{token_id}/", operator.RevokeToken).need(access.PlatformWrite).of(token),
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

// handler handles a request after the checks of its credential, or answers a question about it.
type handler func(*exchange.Exchange) error

// on is a route from a line such as "GET /api/v1/plans/".
func on(line string, handle handler) route {
	return onCall(line, func(c *call) error { return handle(&c.Exchange) })
}

// read is a route that responds with what find finds.
func read[B any](pattern string, find func(*exchange.Exchange) (B, error)) route {
	return on("GET "+pattern, show(find)).of(exists(find))
}

// show responds with what find finds.
func show[B any](find func(*exchange.Exchange) (B, error)) handler {
	return func(x *exchange.Exchange) error {
		body, err := find(x)
		if err != nil {
			return err
		}
		return x.OK(body)
	}
}

// onCall is a route whose handler gets the whole call: it reads a credential from another place, or by other rules, and has it checked.
func onCall(line string, handle func(*call) error) route {
	method, pattern, _ := strings.Cut(line, " ")
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

// handlers are the handlers of this package.
type handlers struct {
	*Server
	lookup    form.Lookup
	health    *health
	documents func() (site, error)
	console   *console.Site // nil is not served
}

func (h *handlers) readMetrics(x *exchange.Exchange) error {
	h.options.Metrics.ServeHTTP(x, x.Request)
	return nil
}
