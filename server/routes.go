package server

import (
	"net/http"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Bounds of a request body, in bytes.
const (
	none      = 0
	small     = 64 << 10
	oneEvent  = webhook.MaxEvent
	manyEvent = 16 << 20
)

// reach says who gets as far as the handler of a route. It is the class of the limiter too: who is asked for a
// credential is counted.
type reach uint8

const (
	permitted reach = iota // a credential with the permission; one request of its window
	anyone                 // any valid credential; one request of its window
	open                   // everybody: no credential is looked at, and nothing counted
)

// route is one line of the table.
type route struct {
	method     string
	pattern    string // closed by a slash; served without it too
	permission string
	access     reach
	body       int64    // bytes at most
	parameters []string // of the query; any other is refused
	handle     func(*call) error
}

var (
	paged       = []string{"limit", "cursor"}
	byStatus    = []string{"limit", "cursor", "status"}
	byAttempt   = []string{"limit", "cursor", "outcome", "event_type", "event_id", "since", "until"}
	byAudit     = []string{"limit", "cursor", "type", "actor", "since", "until"}
	noParameter []string
)

// table lists every route. HEAD is served wherever GET is.
func (s *Server) table(o Options) []route {
	const (
		get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

		api           = "/api/v1/"
		keyPath       = api + "api-keys/"
		hookPath      = api + "webhooks/subscriptions/"
		eventPath     = api + "events/"
		planPath      = api + "plans/"
		permitPath    = api + "permissions/"
		rolePath      = api + "roles/"
		orgPath       = api + "organizations/"
		memberPath    = orgPath + "{id}/members/"
		userPath      = api + "users/"
		tokenPath     = userPath + "{id}/access-tokens/"
		attemptPath   = hookPath + "{id}/deliveries/"
		operatorReads = access.PlatformRead
		operatorWrite = access.PlatformWrite
	)
	var (
		re = references{o.Store}
		k  = keys{o.Store, re, o.KeyPrefix}
		h  = subscriptions{o.Store, o.CheckURL}
		d  = deliveries{o.Store, o.Tester, o.TestTimeout, &s.draining}
		e  = events{o.Store}
		a  = audit{o.Store}
		pl = plans{o.Store}
		pe = permissions{o.Store}
		ro = roles{o.Store, re}
		or = organizations{o.Store, re}
		me = members{o.Store, re}
		us = users{o.Store}
		to = tokens{o.Store, re}
		he = health{o.Store, o.Checks, &s.draining}
	)
	return []route{
		{get, "/healthz/", "", open, none, noParameter, he.live},
		{get, "/readyz/", "", open, none, noParameter, he.ready},

		{get, api + "whoami/", "", anyone, none, noParameter, whoami},

		{get, keyPath, access.APIKeysRead, permitted, none, byStatus, k.list},
		{post, keyPath, access.APIKeysWrite, permitted, small, noParameter, k.create},
		{get, keyPath + "{id}/", access.APIKeysRead, permitted, none, noParameter, k.read},
		{del, keyPath + "{id}/", access.APIKeysWrite, permitted, none, noParameter, k.revoke},

		{get, hookPath, access.WebhooksRead, permitted, none, byStatus, h.list},
		{post, hookPath, access.WebhooksWrite, permitted, small, noParameter, h.create},
		{get, hookPath + "{id}/", access.WebhooksRead, permitted, none, noParameter, h.read},
		{patch, hookPath + "{id}/", access.WebhooksWrite, permitted, small, noParameter, h.update},
		{del, hookPath + "{id}/", access.WebhooksWrite, permitted, none, noParameter, h.remove},
		{post, hookPath + "{id}/rotate-secret/", access.WebhooksWrite, permitted, small, noParameter, h.rotate},
		{post, hookPath + "{id}/test/", access.WebhooksWrite, permitted, none, noParameter, d.test},
		{get, attemptPath, access.WebhooksRead, permitted, none, byAttempt, d.list},
		{post, attemptPath + "{attempt_id}/redeliver/", access.WebhooksWrite, permitted, none, noParameter, d.redeliver},

		{get, eventPath, access.EventsRead, permitted, none, paged, e.list},
		{post, eventPath, access.EventsWrite, permitted, oneEvent, noParameter, e.publish},
		{post, eventPath + "batch/", access.EventsWrite, permitted, manyEvent, noParameter, e.publishBatch},
		{get, eventPath + "{id}/", access.EventsRead, permitted, none, noParameter, e.read},

		{get, api + "audit-events/", access.AuditRead, permitted, none, byAudit, a.list},

		{get, planPath, operatorReads, permitted, none, paged, pl.list},
		{post, planPath, operatorWrite, permitted, small, noParameter, pl.create},
		{get, planPath + "{name}/", operatorReads, permitted, none, noParameter, pl.read},
		{patch, planPath + "{name}/", operatorWrite, permitted, small, noParameter, pl.update},
		{del, planPath + "{name}/", operatorWrite, permitted, none, noParameter, pl.remove},

		{get, permitPath, operatorReads, permitted, none, paged, pe.list},
		{post, permitPath, operatorWrite, permitted, small, noParameter, pe.create},
		{get, permitPath + "{key}/", operatorReads, permitted, none, noParameter, pe.read},
		{patch, permitPath + "{key}/", operatorWrite, permitted, small, noParameter, pe.update},
		{del, permitPath + "{key}/", operatorWrite, permitted, none, noParameter, pe.remove},

		{get, rolePath, operatorReads, permitted, none, paged, ro.list},
		{post, rolePath, operatorWrite, permitted, small, noParameter, ro.create},
		{get, rolePath + "{name}/", operatorReads, permitted, none, noParameter, ro.read},
		{patch, rolePath + "{name}/", operatorWrite, permitted, small, noParameter, ro.update},
		{del, rolePath + "{name}/", operatorWrite, permitted, none, noParameter, ro.remove},

		{get, orgPath, operatorReads, permitted, none, paged, or.list},
		{post, orgPath, operatorWrite, permitted, small, noParameter, or.create},
		{get, orgPath + "{id}/", operatorReads, permitted, none, noParameter, or.read},
		{patch, orgPath + "{id}/", operatorWrite, permitted, small, noParameter, or.update},
		{del, orgPath + "{id}/", operatorWrite, permitted, none, noParameter, or.remove},

		{get, memberPath, operatorReads, permitted, none, paged, me.list},
		{put, memberPath + "{user_id}/", operatorWrite, permitted, small, noParameter, me.set},
		{del, memberPath + "{user_id}/", operatorWrite, permitted, none, noParameter, me.remove},

		{get, userPath, operatorReads, permitted, none, paged, us.list},
		{post, userPath, operatorWrite, permitted, small, noParameter, us.create},
		{get, userPath + "{id}/", operatorReads, permitted, none, noParameter, us.read},
		{patch, userPath + "{id}/", operatorWrite, permitted, small, noParameter, us.update},
		{del, userPath + "{id}/", operatorWrite, permitted, none, noParameter, us.remove},

		{get, tokenPath, operatorReads, permitted, none, paged, to.list},
		{post, tokenPath, operatorWrite, permitted, small, noParameter, to.create},
		{get, tokenPath + "{token_id}/", operatorReads, permitted, none, noParameter, to.read},
		{del, tokenPath + "{token_id}/", operatorWrite, permitted, none, noParameter, to.revoke},
	}
}

// Route is a line of the table as others see it: the tests that walk it, and the description of the API.
type Route struct {
	Method     string
	Pattern    string   // with {id}, {name} and {key} for what varies
	Permission string   // empty: Open, or any valid credential will do
	Open       bool     // no credential is looked at
	Parameters []string // of the query
}

// Routes lists the table in order, without the HEAD that stands beside every GET.
func (s *Server) Routes() []Route {
	routes := make([]Route, len(s.routes))
	for i, r := range s.routes {
		routes[i] = Route{r.method, r.pattern, r.permission, r.access == open, r.parameters}
	}
	return routes
}
