package browser

import (
	"net/http"
	"strings"
	"testing"
)

// pages lists every page in every state that TestPages looks at. Add a row for each page that you build, and one for each of its
// states: full, empty, error, long text.
func pages(w *world) []pageRow {
	const list = "/console/subscriptions/"
	return append(overviewPages(w), []pageRow{
		{"subscriptions-none", list + "?status=failing", w.other.token, "No subscription is failing"},
		{"subscription-new", list + "new/", w.acme.token, "More options"},
		{"subscription-healthy", list + w.acme.healthy + "/", w.acme.token, "12 succeeded"},
		{"subscription-disabled", list + w.acme.disabled + "/", w.acme.token, "Disabled after 15 failures in a row"},
		{"subscription-paused", list + w.acme.paused + "/", w.acme.token, "Nothing has been sent yet"},
		{"subscription-hostile", list + w.hostile.failing + "/", w.hostile.token, "<script>alert"},
		{"subscription-settings-hostile", list + w.hostile.failing + "/?tab=settings", w.hostile.token, "Request headers"},
		{"attempt", list + w.acme.failing + "/?attempt=" + w.attempt(w.acme, w.acme.failing), w.acme.token, "Down for maintenance"},
		{"attempt-hostile", list + w.hostile.failing + "/?attempt=" + w.attempt(w.hostile, w.hostile.failing), w.hostile.token, "<script>alert"},
		{"organizations", "/console/organizations/", operatorToken, nasty},
		{"organizations-none", "/console/organizations/?search=nobody", operatorToken, "No organization begins with"},
		{"organization", "/console/organizations/" + w.acme.id + "/", operatorToken, "1 failing"},
		{"organization-long", "/console/organizations/" + w.hostile.id + "/", operatorToken, nasty},
		{"users", "/console/users/", operatorToken, "Owner of Acme"},
		{"user", "/console/users/" + w.acme.owner + "/", operatorToken, "Acme"},
		{"user-hostile", "/console/users/" + w.hostile.owner + "/", operatorToken, "Owner of <script>"},
		{"subscriptions-everywhere", list + "?in=all", operatorToken, nasty},
		{"audit-everywhere", "/console/audit/?in=all&type=organization_created", operatorToken, nasty},
		{"plans", "/console/plans/", operatorToken, "business"},
		{"plan", "/console/plans/growth/", operatorToken, "Stored data a day, in GB"},
		{"roles", "/console/roles/", operatorToken, "Everything in one organization"},
		{"role", "/console/roles/owner/", operatorToken, "webhooks:write"},
		{"permissions", "/console/permissions/", operatorToken, "Publish events"},
		{"permission", "/console/permissions/events%3Awrite/", operatorToken, "Roles that have it"},
		{"event-types", "/console/event-types/", operatorToken, "An order left the warehouse."},
		{"event-type", "/console/event-types/order.paid/", operatorToken, "For readers, such as a JSON Schema."},
		{"event-type-hostile", "/console/event-types/long." + strings.Repeat("x", 120) + "/", operatorToken, "For readers"},
		{"system", "/console/system/", operatorToken, "Largest queues"},
		{"events", "/console/events/", w.acme.token, "1 gave up"},
		{"events-empty", "/console/events/", w.empty.token, "Waiting for the first event…"},
		{"events-none", "/console/events/?type=nothing", w.acme.token, "No event matches the filters"},
		{"events-long", "/console/events/?audit=with", w.hostile.token, "long.xxx"},
		{"events-everywhere", "/console/events/?in=all", operatorToken, w.acme.name},
		{"event", eventPage(w.acme.event), w.acme.token, "Delivered to"},
		{"event-failed", eventPage(w.newest(w.acme, "invoice.created")), w.acme.token, "given up after 5 attempts"},
		{"event-waits", eventPage(w.newest(w.acme, "customer.updated")), w.acme.token, "because its subscription is paused"},
		{"event-hostile", eventPage(w.hostile.event), w.hostile.token, "<script>alert"},
		{"event-audit", eventPage(w.newest(w.acme, "api_key_created")), w.acme.token, "Created the API key Trial"},
		{"event-new", "/console/events/new/", w.acme.token, "Lower-case words with dots"},
		{"audit", "/console/audit/", w.acme.token, "Revoked the API key Old laptop"},
		{"audit-none", "/console/audit/?type=plan_deleted", w.acme.token, "No entry matches the filters"},
		{"audit-entry-hostile", "/console/audit/?type=api_key_created&id=" + w.entry(w.hostile), w.hostile.token, "<script>alert"},
		{"parts", "/console/parts/", w.acme.token, "Badges, tags and facts"},
		{"docs", "/docs/", "", "API reference"},
		{"docs-api", "/docs/api/", "", "Publish an event"}, // takes axe half a minute; the page of the objects is made of the same
		{"docs-search", "/docs/?q=retry", "", "sections have all words"},
		{"docs-search-hostile", "/docs/?q=%3Cscript%3Ealert(1)%3C/script%3E" + strings.Repeat("x", 60), "", "No section has all words"},
		{"docs-operating", "/docs/operating/", "", "Operate Keyhook"}, // long, with tables and code
		{"docs-receiving", "/docs/receiving/", "", "Receive webhooks"},
		{"sign-in", "/console/", "", "Sign in"},
		{"subscriptions", "/console/subscriptions/", w.acme.token, "Orders to the warehouse"},
		{"subscriptions-empty", "/console/subscriptions/", w.empty.token, "No subscription yet"},
		{"keys", "/console/keys/", w.acme.token, "Back end"},
		{"keys-empty", "/console/keys/", w.empty.token, "No active API key"},
		{"keys-long", "/console/keys/", w.hostile.token, nasty},
		{"key", "/console/keys/" + w.acme.key + "/", w.acme.token, "Created by Owner of Acme"},
		{"key-long", "/console/keys/" + w.hostile.key + "/", w.hostile.token, nasty},
		{"subscriptions-long", "/console/subscriptions/", w.hostile.token, nasty},
	}...)
}

// pageRow is a page in one state.
type pageRow struct {
	name  string // of the screenshots, without spaces
	path  string
	token string // the access token of who looks; empty: nobody has signed in
	text  string // a text that the page shows in this state
}

// TestPages looks at each page in light and dark and on a phone. Rows of one person follow each other in one tab: a new browser profile
// for each page costs half as much as the page. The first row of each page, by the first word of its name, loads all files again.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.describe(t)
	rows := map[string][]pageRow{} // by token
	for _, row := range pages(w) {
		rows[row.token] = append(rows[row.token], row)
	}
	people := map[string]string{
		"": "nobody", operatorToken: "operator", w.acme.token: "customer", w.other.token: "other customer", w.empty.token: "new customer",
		w.hostile.token: "hostile customer",
	}
	for token, rows := range rows {
		t.Run(people[token], func(t *testing.T) {
			t.Parallel()
			tab := open(t, w.base)
			if token != "" {
				tab.signIn(token)
			} else {
				tab.allow(http.StatusUnauthorized, "/api/v1/session/") // the console asks who has signed in
			}
			seen := map[string]bool{}
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					p := tab.during(t)
					kind, _, _ := strings.Cut(row.name, "-")
					p.useCache(seen[kind])
					seen[kind] = true
					p.visit(row.path)
					p.expect(row.text)
					p.look(row.name)
				})
			}
		})
	}
}
