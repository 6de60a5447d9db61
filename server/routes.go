package server

import "github.com/keyhook/keyhook/storage/access"

// table lists every path that is served: method, path, handler, permissions and limits. A row without "to" needs a
// credential with its permissions and counts one request of its rate limit. HEAD is served wherever GET is.
func (h *handlers) table() []route {
	var (
		key, subscription, event = exists(h.keys.find), exists(h.subscriptions.find), h.events.exists
		plan, permission, role   = exists(h.plans.find), exists(h.permissions.find), exists(h.roles.find)
		organization, member     = exists(h.organizations.find), h.members.find
		user, token              = exists(h.users.find), exists(h.tokens.find)
	)
	return []route{
		// The process and its documents.
		get("/healthz/", h.health.live).to(open),
		get("/readyz/", h.health.ready).to(open),
		get("/metrics/", h.metrics).to(local).need(access.PlatformRead),
		get("/openapi.yaml/", h.description.asYAML).to(open),
		get("/openapi.json/", h.description.asJSON).to(open),
		get("/docs/", h.documents.index).to(open),
		get("/docs/{name}/", h.documents.read).to(open),

		// The caller. Sign-in checks the access token in its body.
		get("/api/v1/whoami/", h.whoami.read).to(anyone),
		post("/api/v1/session/", h.sessions.create).to(open).body(maxSmallBody),
		get("/api/v1/session/", h.sessions.read).to(anyone),
		del("/api/v1/session/", h.sessions.end).to(anyone),

		// Questions about a key. Forward authentication also serves {dialect}/{permission}/, and the key needs that permission.
		anyPath("/api/v1/authz/{dialect}/", isForwardAuth, h.forwardAuth.authorize).to(proxied),
		post("/api/v1/auth/verify/", h.verification.verify).need(access.APIKeysRead, access.PlatformActAs).body(maxSmallBody),
		post("/api/v1/auth/explain/", h.explanation.explain).need(access.APIKeysRead).body(maxSmallBody),

		get("/api/v1/api-keys/", h.keys.list).need(access.APIKeysRead).pages("status"),
		post("/api/v1/api-keys/", h.keys.create).need(access.APIKeysWrite).body(maxSmallBody),
		get("/api/v1/api-keys/{id}/", h.keys.read).need(access.APIKeysRead).of(key),
		del("/api/v1/api-keys/{id}/", h.keys.revoke).need(access.APIKeysWrite).of(key),
		post("/api/v1/api-keys/{id}/rotate/", h.keys.rotate).need(access.APIKeysWrite).body(maxSmallBody).of(key),

		get("/api/v1/webhooks/subscriptions/", h.subscriptions.list).need(access.WebhooksRead).pages("status"),
		post("/api/v1/webhooks/subscriptions/", h.subscriptions.create).need(access.WebhooksWrite).body(maxSmallBody),
		get("/api/v1/webhooks/subscriptions/{id}/", h.subscriptions.read).need(access.WebhooksRead).of(subscription),
		patch("/api/v1/webhooks/subscriptions/{id}/", h.subscriptions.update).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		del("/api/v1/webhooks/subscriptions/{id}/", h.subscriptions.remove).need(access.WebhooksWrite).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/rotate-secret/", h.subscriptions.rotate).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/test/", h.deliveries.test).need(access.WebhooksWrite).of(subscription),
		post("/api/v1/webhooks/subscriptions/{id}/replay/", h.replays.replay).need(access.WebhooksWrite).body(maxSmallBody).of(subscription),
		get("/api/v1/webhooks/subscriptions/{id}/deliveries/", h.deliveries.list).need(access.WebhooksRead).
			pages("outcome", "event_type", "event_id", "since", "until").of(h.deliveries.findLog),
		post("/api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/redeliver/", h.deliveries.redeliver).need(access.WebhooksWrite).of(subscription),
		get("/api/v1/webhooks/stats/", h.stats.read).need(access.WebhooksRead).query("since", "until", "subscription_id", "step"),

		get("/api/v1/events/", h.events.list).need(access.EventsRead).pages(),
		post("/api/v1/events/", h.events.publish).need(access.EventsWrite).body(maxEventBody),
		post("/api/v1/events/batch/", h.events.publishBatch).need(access.EventsWrite).body(maxBatchBody),
		get("/api/v1/events/{id}/", h.events.read).need(access.EventsRead).of(event),

		get("/api/v1/audit-events/", h.audit.list).need(access.AuditRead).pages("type", "actor", "since", "until"),

		get("/api/v1/queue/", h.queue.read).need(access.PlatformRead),
		post("/api/v1/queue/hold/", h.queue.hold).need(access.PlatformWrite).body(maxSmallBody),
		post("/api/v1/queue/release/", h.queue.release).need(access.PlatformWrite),
		post("/api/v1/queue/discard/", h.queue.discard).need(access.PlatformWrite),
		post("/api/v1/backups/", h.backups.create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/clock/", h.clock.read).need(access.PlatformRead),
		post("/api/v1/clock/accept/", h.clock.accept).need(access.PlatformWrite),

		get("/api/v1/plans/", h.plans.list).need(access.PlatformRead).pages(),
		post("/api/v1/plans/", h.plans.create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/plans/{name}/", h.plans.read).need(access.PlatformRead).of(plan),
		patch("/api/v1/plans/{name}/", h.plans.update).need(access.PlatformWrite).body(maxSmallBody).of(plan),
		del("/api/v1/plans/{name}/", h.plans.remove).need(access.PlatformWrite).of(plan),

		get("/api/v1/permissions/", h.permissions.list).need(access.PlatformRead).pages(),
		post("/api/v1/permissions/", h.permissions.create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/permissions/{key}/", h.permissions.read).need(access.PlatformRead).of(permission),
		patch("/api/v1/permissions/{key}/", h.permissions.update).need(access.PlatformWrite).body(maxSmallBody).of(permission),
		del("/api/v1/permissions/{key}/", h.permissions.remove).need(access.PlatformWrite).of(permission),

		get("/api/v1/roles/", h.roles.list).need(access.PlatformRead).pages(),
		post("/api/v1/roles/", h.roles.create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/roles/{name}/", h.roles.read).need(access.PlatformRead).of(role),
		patch("/api/v1/roles/{name}/", h.roles.update).need(access.PlatformWrite).body(maxSmallBody).of(role),
		del("/api/v1/roles/{name}/", h.roles.remove).need(access.PlatformWrite).of(role),

		get("/api/v1/organizations/", h.organizations.list).need(access.PlatformRead).pages(),
		post("/api/v1/organizations/", h.organizations.create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/organizations/{id}/", h.organizations.read).need(access.PlatformRead).of(organization),
		patch("/api/v1/organizations/{id}/", h.organizations.update).need(access.PlatformWrite).body(maxSmallBody).of(organization),
		del("/api/v1/organizations/{id}/", h.organizations.remove).need(access.PlatformWrite).of(organization),

		get("/api/v1/organizations/{id}/members/", h.members.list).need(access.PlatformRead).pages().of(organization),
		put("/api/v1/organizations/{id}/members/{user_id}/", h.members.set).need(access.PlatformWrite).body(maxSmallBody).of(member),
		del("/api/v1/organizations/{id}/members/{user_id}/", h.members.remove).need(access.PlatformWrite).of(member),

		get("/api/v1/users/", h.users.list).need(access.PlatformRead).pages(),
		post("/api/v1/users/", h.users.create).need(access.PlatformWrite).body(maxSmallBody),
		get("/api/v1/users/{id}/", h.users.read).need(access.PlatformRead).of(user),
		patch("/api/v1/users/{id}/", h.users.update).need(access.PlatformWrite).body(maxSmallBody).of(user),
		del("/api/v1/users/{id}/", h.users.remove).need(access.PlatformWrite).of(user),

		get("/api/v1/users/{id}/access-tokens/", h.tokens.list).need(access.PlatformRead).pages().of(user),
		post("/api/v1/users/{id}/access-tokens/", h.tokens.create).need(access.PlatformWrite).body(maxSmallBody).of(user),
		get("/api/v1/users/{id}/access-tokens/{token_id}/", h.tokens.read).need(access.PlatformRead).of(token),
		del("/api/v1/users/{id}/access-tokens/{token_id}/", h.tokens.revoke).need(access.PlatformWrite).of(token),
	}
}
