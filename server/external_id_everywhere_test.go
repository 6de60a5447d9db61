package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// named are the ids, or the external ids, of one customer.
type named struct{ organization, user, subscription, key string }

// customer is an organization, a user, a subscription and a key with external ids, and what has none.
type customer struct {
	ids, externals           named
	event, attempt, token, n string
}

func (f *testServer) newCustomer(t *testing.T) customer {
	t.Helper()
	n := fmt.Sprint(strings.Count(f.Log.String(), "\n"))
	c := customer{n: n, externals: named{"org/" + n, "auth0|" + n, "sub~" + n, "key:" + n}}
	owner, token := storagetest.Organization(t, f.Store, "acme"+n, "growth", access.RoleOwner)
	in := []string{"X-Organization-Id", owner.Home.ID}
	f.Do(t, "PATCH "+servertest.Orgs+owner.Home.ID+"/", servertest.Operator, `{"external_id":"`+c.externals.organization+`"}`).Want(t, 200, "")
	f.Do(t, "PATCH "+servertest.Users+owner.User.ID+"/", servertest.Operator, `{"external_id":"`+c.externals.user+`"}`).Want(t, 200, "")
	sub := f.Do(t, "POST /api/v1/webhooks/subscriptions/", servertest.Operator, `{"url":"https://example.com/","external_id":"`+c.externals.subscription+`"}`, in...).Want(t, 201, "").Field("id")
	stored, err := f.Store.History.Subscription(t.Context(), owner.Home.RowID, sub)
	if err != nil {
		t.Fatal(err)
	}
	f.Attempted(t, owner, stored, 1)
	c.event = storagetest.Publish(t, f.Store, owner, "user.created").ID
	c.attempt, _ = f.List(t, servertest.Bearer(token), "/api/v1/webhooks/subscriptions/"+sub+"/deliveries/").Data[0]["id"].(string)
	c.token = owner.Token.ID
	body := `{"name":"b","scope":"webhooks:read","user_id":"` + c.externals.user + `","external_id":"` + c.externals.key + `"}`
	key := f.Do(t, "POST /api/v1/api-keys/", servertest.Bearer(token), body).Want(t, 201, "").Field("id")
	c.ids = named{owner.Home.ID, owner.User.ID, sub, key}
	storagetest.Exec(t, f.Store, "INSERT INTO key_days SELECT id, created_at / 86400000, 1, 0, 0 FROM api_keys WHERE public_id = ?", key)
	return c
}

// bodiesOf are the bodies of requests that name something in the path or in the body. NAME stands for a name.
var bodiesOf = map[string]string{
	"POST /api/v1/api-keys/":                                  `{"name":"x","scope":"webhooks:read","user_id":"USER"}`,
	"POST /api/v1/auth/explain/":                              `{"key":"KEY","method":"GET","path":"/api/v1/whoami/"}`,
	"POST /api/v1/users/{id}/access-tokens/":                  `{"organization_id":"ORGANIZATION"}`,
	"PATCH /api/v1/webhooks/subscriptions/{id}/":              `{"description":"x"}`,
	"POST /api/v1/webhooks/subscriptions/{id}/recover/":       `{"dry_run":true}`,
	"POST /api/v1/webhooks/recover/":                          `{"state":"exhausted","since":"2020-01-01T00:00:00Z","subscription_id":"SUBSCRIPTION"}`,
	"POST /api/v1/webhooks/redeliver/":                        `{"state":"exhausted","since":"2020-01-01T00:00:00Z","subscription_id":"SUBSCRIPTION"}`,
	"POST /api/v1/webhooks/subscriptions/{id}/replay/":        `{"since":"` + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) + `","dry_run":true}`,
	"PUT /api/v1/organizations/{id}/":                         `{"name":"x"}`,
	"PATCH /api/v1/organizations/{id}/":                       `{"name":"x"}`,
	"PUT /api/v1/organizations/{id}/members/{user_id}/":       `{"role":"member"}`,
	"PUT /api/v1/users/{id}/":                                 `{"name":"x"}`,
	"PATCH /api/v1/users/{id}/":                               `{"name":"x"}`,
	"POST /api/v1/organizations/{id}/portal-links/":           `{}`,
	"POST /api/v1/webhooks/subscriptions/{id}/discard/":       `{}`,
	"POST /api/v1/webhooks/subscriptions/{id}/rotate-secret/": `{}`,
}

// request returns a request to a route in which everything has the given names. It is empty if the route names nothing.
func (c customer) request(r server.Route, n named) (line, body string) {
	name := map[string]string{
		"subscription_id": n.subscription, "key_id": n.key, "user_id": n.user, "organization_id": n.organization, "actor": n.key, "target": n.subscription,
	}
	e := url.PathEscape
	path := strings.NewReplacer(
		"api-keys/{id}", "api-keys/"+e(n.key), "subscriptions/{id}", "subscriptions/"+e(n.subscription), "organizations/{id}", "organizations/"+e(n.organization),
		"users/{id}", "users/"+e(n.user), "{user_id}", e(n.user), "events/{id}", "events/"+c.event, "{attempt_id}", c.attempt, "{token_id}", c.token,
	).Replace(r.Pattern)
	query := url.Values{}
	for _, p := range r.Parameters {
		if name[p] != "" {
			query.Set(p, name[p])
		}
	}
	template := bodiesOf[r.Method+" "+r.Pattern]
	body = strings.NewReplacer("USER", n.user, "KEY", n.key, "ORGANIZATION", n.organization, "SUBSCRIPTION", n.subscription).Replace(template)
	if path == strings.NewReplacer("events/{id}", "events/"+c.event).Replace(r.Pattern) && len(query) == 0 && body == template {
		return "", ""
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return r.Method + " " + path, body
}

// TestExternalIDsEverywhere walks the table of routes. In each request, every name of an organization, a user, a subscription and a
// key is an external id: in the path, in the query, in the header and in the body.
func TestExternalIDsEverywhere(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) {
		o.ConsoleURL = "https://keys.example.com/"
	})
	isUse := func(got servertest.Response) bool {
		return got.StatusCode == http.StatusConflict && got.Field("code") == "in_use"
	}
	for _, r := range f.Server.Routes() {
		if r.Open || r.Proxied || strings.HasPrefix(r.Pattern, "/api/v1/audit-events/{") {
			continue
		}
		c := f.newCustomer(t)
		request, body := c.request(r, c.externals)
		if request == "" {
			continue
		}
		t.Run("are taken by "+line(r), func(t *testing.T) {
			got := f.Do(t, request, servertest.Operator, body, "X-Organization-Id", c.externals.organization)
			if got.StatusCode >= 300 && !isUse(got) { // whatever is found may still have something
				t.Fatalf("%s %s: %d %s", request, body, got.StatusCode, got.Text)
			}
			if r.Method != http.MethodGet && !strings.HasSuffix(r.Pattern, "/explain/") {
				return
			}
			byID, sameBody := c.request(r, c.ids)
			want := f.Do(t, byID, servertest.Operator, sameBody, "X-Organization-Id", c.ids.organization)
			if diff := cmp.Diff(want.Text, got.Text); diff != "" {
				t.Errorf("not as %s (-want +got):\n%s", byID, diff)
			}
			if strings.Contains(request, "?") && !strings.Contains(got.Text, c.ids.subscription) && !strings.Contains(got.Text, c.event) && !strings.Contains(got.Text, `"totals"`) && !strings.Contains(got.Text, c.ids.key) && !strings.Contains(request, "actor") {
				t.Errorf("%s finds nothing: %s", request, got.Text)
			}
		})
	}
}

// TestFieldsThatNameSomethingAreTried lists the fields of bodies that take an id. A new one needs a body in bodiesOf.
func TestFieldsThatNameSomethingAreTried(t *testing.T) {
	t.Parallel()
	names := []string{"subscription_id", "key_id", "user_id", "organization_id", "subscription", "user", "organization"}
	d := written(t)
	for _, op := range d.Operations {
		if op.Body == "" {
			continue
		}
		schema, err := d.Compile(op.Body)
		if err != nil {
			t.Fatal(err)
		}
		for schema.Ref != nil {
			schema = schema.Ref
		}
		for _, field := range slices.Sorted(maps.Keys(schema.Properties)) {
			if slices.Contains(names, field) && !strings.Contains(bodiesOf[op.Line()], `"`+field+`"`) {
				t.Errorf("%s has the field %s", op.Line(), field)
			}
		}
	}
}
