package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// fill replaces the parameters of a pattern by ids and names of the right type.
func fill(key, sub, event, audit, organization, user, token, attempt, name, permission, eventType string) *strings.Replacer {
	return strings.NewReplacer(
		"api-keys/{id}", "api-keys/"+key, "subscriptions/{id}", "subscriptions/"+sub, "audit-events/{id}", "audit-events/"+audit, "events/{id}", "events/"+event,
		"organizations/{id}", "organizations/"+organization, "users/{id}", "users/"+user, "{user_id}", user,
		"{token_id}", token, "{attempt_id}", attempt, "plans/{name}", "plans/"+name, "roles/{name}", "roles/"+name, "{kind}", access.KindPermission, "{key}", permission,
		"{type}", eventType,
	)
}

// TestMissingBeforeWrong asks for resources that do not exist, or belong to others, with an invalid query or body. The response
// must be 404, and no more.
func TestMissingBeforeWrong(t *testing.T) {
	t.Parallel()
	f := start(t)
	const none = "_01h455vb4pex5vsknk084sn02q"
	missing := fill("key"+none, "sub"+none, "evt"+none, "aud"+none, "org"+none, "usr"+none, "tok"+none, "att"+none, "nothing", "nothing:read", "no.type")

	victim, _ := storagetest.Organization(t, f.Store, "victim", "growth", access.RoleOwner)
	key, _ := storagetest.Key(t, f.Store, victim, access.EventsRead)
	sub, _ := storagetest.Subscription(t, f.Store, victim, "https://example.com/", "user.created")
	f.Attempted(t, victim, sub, 1)
	page, err := f.Store.History.AttemptPage(t.Context(), victim.Organization.RowID, sub.ID, webhook.AttemptFilter{Limit: 1})
	if err != nil || len(page.Attempts) != 1 {
		t.Fatal(err)
	}
	token, err := f.Store.Directory.CreateToken(t.Context(), victim.Actor("", ""), victim.User.ID, victim.Organization.ID, access.Mint("kat"), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	event := storagetest.Publish(t, f.Store, victim, "user.created")
	f.Plan(t, "clerk", true, true, "1")
	f.Do(t, "POST /api/v1/apply/", servertest.Operator, `{"document":{"permissions":[{"key":"orders:read","description":""}]}}`).Want(t, 200, "")
	f.Do(t, "PUT /api/v1/event-types/order.paid/", servertest.Operator, `{"description":"Paid"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"clerk","permissions":[]}`).Want(t, 201, "")
	audit, err := f.Store.History.AuditPage(t.Context(), victim.Organization.RowID, access.AuditFilter{Limit: 1})
	if err != nil || len(audit.Rows) != 1 {
		t.Fatal(err)
	}
	theirs := fill(key.ID, sub.ID, event.ID, audit.Rows[0].ID, victim.Organization.ID, victim.User.ID, token.ID, page.Attempts[0].ID, "clerk", "orders:read", "order.paid")

	withBody := []string{"PUT", "PATCH", "POST"}
	withoutBody := []string{"POST /api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/redeliver/"}
	creates := []string{"PUT /api/v1/organizations/{id}/", "PUT /api/v1/users/{id}/", "PUT /api/v1/event-types/{type}/"}
	for _, r := range f.Server.Routes() {
		if !strings.Contains(r.Pattern, "{") || r.Open || r.Proxied { // these paths name nothing that belongs to an organization
			continue
		}
		t.Run(line(r), func(t *testing.T) {
			type wrong struct {
				query, body string
				header      []string
				status      int
			}
			tries := []wrong{{"?nobody=1", "", nil, 400}, {"?limit=%zz", "", nil, 400}}
			for _, name := range r.Parameters {
				tries = append(tries, wrong{"?" + name + "=%00", "", nil, 400})
			}
			if slices.Contains(withBody, r.Method) && !slices.Contains(withoutBody, line(r)) {
				tries = append(tries, wrong{"", "{", nil, 400}, wrong{"", `{"x":1,"x":1}`, nil, 400}, wrong{"", `{"nobody":1}`, nil, 422},
					wrong{"", "{}", []string{"Content-Type", "text/plain"}, 415}, wrong{"", strings.Repeat(" ", int(r.Body)+1), nil, 413})
			}
			own, _, _ := strings.Cut(append(r.Permissions, "platform:")[0], ":") // event types belong to no organization
			for _, try := range tries {
				ask := func(names *strings.Replacer, as, organization string) servertest.Response {
					header := append([]string{"X-Organization-Id", organization}, try.header...)
					return f.Do(t, r.Method+" "+names.Replace(r.Pattern)+try.query, as, try.body, header...)
				}
				home := storagetest.Operator(t, f.Store).Organization.ID
				if slices.Contains(creates, line(r)) {
					ask(missing, servertest.Operator, home).Want(t, try.status, "")
				} else {
					ask(missing, servertest.Operator, home).Want(t, 404, "not_found")
				}
				ask(theirs, servertest.Operator, victim.Organization.ID).Want(t, try.status, "")
				if own != "platform" { // platform resources belong to no organization
					ask(theirs, servertest.Operator, home).Want(t, 404, "not_found")
				}
			}
		})
	}
}

// TestRemovedSubscription reads the log of a deleted subscription.
func TestRemovedSubscription(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	f.Attempted(t, owner, sub, 3)
	as, path := servertest.Bearer(token), "/api/v1/webhooks/subscriptions/"+sub.ID+"/"
	attempt, _ := f.List(t, as, path+"deliveries/").Data[0]["id"].(string)
	f.Do(t, "DELETE "+path, as, "").Want(t, 204, "")

	if got := f.All(t, as, path+"deliveries/", "id", 2); len(got) != 3 || got[0] != attempt {
		t.Errorf("the log has %q, want 3 attempts, %s first", got, attempt)
	}
	f.Do(t, "GET "+path+"deliveries/?outcome=lost", as, "").Want(t, 400, "invalid_parameter")
	for _, c := range []servertest.Call{
		servertest.NewCall("GET "+path, as, ""),
		servertest.NewCall("GET "+path+"?x=1", as, ""),
		servertest.NewCall("PATCH "+path, as, `{"is_active":"yes"}`),
		servertest.NewCall("POST "+path+"rotate-secret/", as, `{`),
		servertest.NewCall("POST "+path+"deliveries/"+attempt+"/redeliver/", as, ""),
		servertest.NewCall("POST "+path+"deliveries/"+attempt+"/redeliver/?x=1", as, ""),
		servertest.NewCall("GET "+path+"deliveries/", servertest.Bearer(other), ""),
		servertest.NewCall("GET "+path+"deliveries/?outcome=lost", servertest.Bearer(other), ""),
	} {
		f.Call(t, c).Want(t, 404, "not_found")
	}
}

// unreadable is a store that cannot look up a resource.
type unreadable struct{ server.Store }

func (unreadable) Subscription(context.Context, int64, string) (webhook.Subscription, error) {
	panic("looked for")
}

func (unreadable) Plan(context.Context, string) (access.Plan, error) { panic("looked for") }

func (unreadable) User(context.Context, string) (access.User, error) { panic("looked for") }

func TestWhatIsRightIsNotLookedForTwice(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.Store = unreadable{o.Store} })
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	f.Do(t, "PATCH /api/v1/webhooks/subscriptions/"+sub.ID+"/", servertest.Bearer(token), `{"is_active":false}`).Want(t, 200, "")
	f.Do(t, "PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"name":"Ada"}`).Want(t, 200, "")
	f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(token), "").Want(t, 200, "") // its plan comes with the token
}
