package server

import (
	"net/http"

	"github.com/keyhook/keyhook/server/form"
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
	local                  // as open for who asks from this machine, as permitted for all others
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
	find       func(*call) error // NotFound where there is not what the path names; nil where it names nothing
}

var (
	paged       = []string{"limit", "cursor"}
	byStatus    = []string{"limit", "cursor", "status"}
	byAttempt   = []string{"limit", "cursor", "outcome", "event_type", "event_id", "since", "until"}
	byAudit     = []string{"limit", "cursor", "type", "actor", "since", "until"}
	byPeriod    = []string{"since", "until", "subscription_id", "step"}
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
		queuePath     = api + "queue/"
		operatorReads = access.PlatformRead
		operatorWrite = access.PlatformWrite
	)
	var (
		re = form.Lookup{Store: o.Store}
		id = identity{o.Store}
		k  = keys{o.Store, re, o.KeyPrefix}
		ve = verification{s, re}
		ex = explanation{s, o.Store, re}
		h  = subscriptions{o.Store, o.CheckURL}
		rp = replays{o.Store}
		d  = deliveries{o.Store, o.Tester, o.TestTimeout, &s.draining}
		e  = events{o.Store}
		st = stats{o.Store}
		a  = audit{o.Store}
		pl = plans{o.Store}
		pe = permissions{o.Store}
		ro = roles{o.Store, re}
		or = organizations{o.Store, re}
		me = members{o.Store, re}
		us = users{o.Store}
		to = tokens{o.Store, re}
		se = sessions{s, o.Store, id}
		qu = queue{o.Store}
		ba = backups{o.Store}
		cl = clocks{o.Store}
		he = health{o.Store, o.Deliveries, o.Checks, &s.draining, &look{turn: make(chan struct{}, 1)}}
		de = newDescription(o.BaseURL)
		do = newDocuments(s.base)
	)
	var (
		key, hook, plan, permission = there(k.find), there(h.find), there(pl.find), there(pe.find)
		role, org, user, token      = there(ro.find), there(or.find), there(us.find), there(to.find)
	)
	return []route{
		{get, "/healthz/", "", open, none, noParameter, he.live, nil},
		{get, "/readyz/", "", open, none, noParameter, he.ready, nil},
		{get, "/openapi.yaml/", "", open, none, noParameter, de.asYAML, nil},
		{get, "/openapi.json/", "", open, none, noParameter, de.asJSON, nil},
		{get, docsPath, "", open, none, noParameter, do.index, nil},
		{get, docsPath + "{name}/", "", open, none, noParameter, do.read, nil},

		{get, api + "whoami/", "", anyone, none, noParameter, id.read, nil},

		{post, api + "session/", "", open, small, noParameter, se.create, nil},
		{get, api + "session/", "", anyone, none, noParameter, se.read, nil},
		{del, api + "session/", "", anyone, none, noParameter, se.end, nil},

		{get, keyPath, access.APIKeysRead, permitted, none, byStatus, k.list, nil},
		{post, keyPath, access.APIKeysWrite, permitted, small, noParameter, k.create, nil},
		{get, keyPath + "{id}/", access.APIKeysRead, permitted, none, noParameter, k.read, key},
		{del, keyPath + "{id}/", access.APIKeysWrite, permitted, none, noParameter, k.revoke, key},
		{post, keyPath + "{id}/rotate/", access.APIKeysWrite, permitted, small, noParameter, k.rotate, key},

		{post, verifyPath, access.APIKeysRead, permitted, small, noParameter, ve.verify, nil},
		{post, explainPath, access.APIKeysRead, permitted, small, noParameter, ex.explain, nil},

		{get, hookPath, access.WebhooksRead, permitted, none, byStatus, h.list, nil},
		{post, hookPath, access.WebhooksWrite, permitted, small, noParameter, h.create, nil},
		{get, hookPath + "{id}/", access.WebhooksRead, permitted, none, noParameter, h.read, hook},
		{patch, hookPath + "{id}/", access.WebhooksWrite, permitted, small, noParameter, h.update, hook},
		{del, hookPath + "{id}/", access.WebhooksWrite, permitted, none, noParameter, h.remove, hook},
		{post, hookPath + "{id}/rotate-secret/", access.WebhooksWrite, permitted, small, noParameter, h.rotate, hook},
		{post, hookPath + "{id}/test/", access.WebhooksWrite, permitted, none, noParameter, d.test, hook},
		{post, hookPath + "{id}/replay/", access.WebhooksWrite, permitted, small, noParameter, rp.replay, hook},
		{get, attemptPath, access.WebhooksRead, permitted, none, byAttempt, d.list, d.findLog},
		{post, attemptPath + "{attempt_id}/redeliver/", access.WebhooksWrite, permitted, none, noParameter, d.redeliver, hook},

		{get, api + "webhooks/stats/", access.WebhooksRead, permitted, none, byPeriod, st.read, nil},

		{get, eventPath, access.EventsRead, permitted, none, paged, e.list, nil},
		{post, eventPath, access.EventsWrite, permitted, oneEvent, noParameter, e.publish, nil},
		{post, eventPath + "batch/", access.EventsWrite, permitted, manyEvent, noParameter, e.publishBatch, nil},
		{get, eventPath + "{id}/", access.EventsRead, permitted, none, noParameter, e.read, e.exists},

		{get, api + "audit-events/", access.AuditRead, permitted, none, byAudit, a.list, nil},

		{get, queuePath, operatorReads, permitted, none, noParameter, qu.read, nil},
		{post, queuePath + "hold/", operatorWrite, permitted, small, noParameter, qu.hold, nil},
		{post, queuePath + "release/", operatorWrite, permitted, none, noParameter, qu.release, nil},
		{post, queuePath + "discard/", operatorWrite, permitted, none, noParameter, qu.discard, nil},

		{post, api + "backups/", operatorWrite, permitted, small, noParameter, ba.create, nil},

		{get, api + "clock/", operatorReads, permitted, none, noParameter, cl.read, nil},
		{post, api + "clock/accept/", operatorWrite, permitted, none, noParameter, cl.accept, nil},

		{get, planPath, operatorReads, permitted, none, paged, pl.list, nil},
		{post, planPath, operatorWrite, permitted, small, noParameter, pl.create, nil},
		{get, planPath + "{name}/", operatorReads, permitted, none, noParameter, pl.read, plan},
		{patch, planPath + "{name}/", operatorWrite, permitted, small, noParameter, pl.update, plan},
		{del, planPath + "{name}/", operatorWrite, permitted, none, noParameter, pl.remove, plan},

		{get, permitPath, operatorReads, permitted, none, paged, pe.list, nil},
		{post, permitPath, operatorWrite, permitted, small, noParameter, pe.create, nil},
		{get, permitPath + "{key}/", operatorReads, permitted, none, noParameter, pe.read, permission},
		{patch, permitPath + "{key}/", operatorWrite, permitted, small, noParameter, pe.update, permission},
		{del, permitPath + "{key}/", operatorWrite, permitted, none, noParameter, pe.remove, permission},

		{get, rolePath, operatorReads, permitted, none, paged, ro.list, nil},
		{post, rolePath, operatorWrite, permitted, small, noParameter, ro.create, nil},
		{get, rolePath + "{name}/", operatorReads, permitted, none, noParameter, ro.read, role},
		{patch, rolePath + "{name}/", operatorWrite, permitted, small, noParameter, ro.update, role},
		{del, rolePath + "{name}/", operatorWrite, permitted, none, noParameter, ro.remove, role},

		{get, orgPath, operatorReads, permitted, none, paged, or.list, nil},
		{post, orgPath, operatorWrite, permitted, small, noParameter, or.create, nil},
		{get, orgPath + "{id}/", operatorReads, permitted, none, noParameter, or.read, org},
		{patch, orgPath + "{id}/", operatorWrite, permitted, small, noParameter, or.update, org},
		{del, orgPath + "{id}/", operatorWrite, permitted, none, noParameter, or.remove, org},

		{get, memberPath, operatorReads, permitted, none, paged, me.list, org},
		{put, memberPath + "{user_id}/", operatorWrite, permitted, small, noParameter, me.set, me.find},
		{del, memberPath + "{user_id}/", operatorWrite, permitted, none, noParameter, me.remove, me.find},

		{get, userPath, operatorReads, permitted, none, paged, us.list, nil},
		{post, userPath, operatorWrite, permitted, small, noParameter, us.create, nil},
		{get, userPath + "{id}/", operatorReads, permitted, none, noParameter, us.read, user},
		{patch, userPath + "{id}/", operatorWrite, permitted, small, noParameter, us.update, user},
		{del, userPath + "{id}/", operatorWrite, permitted, none, noParameter, us.remove, user},

		{get, tokenPath, operatorReads, permitted, none, paged, to.list, user},
		{post, tokenPath, operatorWrite, permitted, small, noParameter, to.create, user},
		{get, tokenPath + "{token_id}/", operatorReads, permitted, none, noParameter, to.read, token},
		{del, tokenPath + "{token_id}/", operatorWrite, permitted, none, noParameter, to.revoke, token},
	}
}

// Route is a line of the table as others see it: the tests that walk it, and the description of the API.
type Route struct {
	Method     string
	Pattern    string   // with {id}, {name} and {key} for what varies
	Permission string   // empty: Open, or any valid credential will do
	Open       bool     // no credential is looked at
	Local      bool     // nor is one of a request from this machine
	Parameters []string // of the query
	Body       int64    // bytes at most; 0 takes none
}

// Routes lists the table in order, without the HEAD that stands beside every GET.
func (s *Server) Routes() []Route {
	routes := make([]Route, len(s.routes))
	for i, r := range s.routes {
		routes[i] = Route{r.method, r.pattern, r.permission, r.access == open, r.access == local, r.parameters, r.body}
	}
	return routes
}
