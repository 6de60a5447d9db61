package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestExternalIDsStandForIDs(t *testing.T) {
	t.Parallel()
	f := start(t)
	org := f.Do(t, "POST "+servertest.Orgs, servertest.Operator, `{"name":"Acme","plan":"growth","external_id":"acme/17"}`).Want(t, 201, "").Field("id")
	user := f.Do(t, "POST "+servertest.Users, servertest.Operator, `{"email":"ada@example.com","external_id":"auth0|ada+b"}`).Want(t, 201, "").Field("id")
	known := map[string]string{"as": servertest.Operator, "org": servertest.Orgs + url.PathEscape("acme/17") + "/", "user": url.PathEscape("auth0|ada+b"), "org_id": org, "user_id": user}
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("in the path of an organization, with a slash", "GET {org}", "", 200, `"id":"{org_id}","name":"Acme"`),
		servertest.OK("without the last slash", "GET "+servertest.Orgs+"acme%2f17", "", 200, `"id":"{org_id}"`),
		servertest.OK("in a change of an organization", "PATCH {org}", `{"name":"ACME"}`, 200, `"id":"{org_id}","name":"ACME"`),
		servertest.OK("in the path of a user", "GET "+servertest.Users+"{user}/", "", 200, `"id":"{user_id}"`),
		servertest.OK("in a change of a user", "PATCH "+servertest.Users+"{user}/", `{"name":"Ada"}`, 200, `"id":"{user_id}","email":"ada@example.com","name":"Ada"`),
		servertest.OK("in both parts of the path of a member", "PUT {org}members/{user}/", `{"role":"owner"}`, 200, `"user_id":"{user_id}"`),
		servertest.OK("in the list of members", "GET {org}members/", "", 200, `"user_id":"{user_id}"`),
		servertest.Bad("not as the id of another type", "GET "+servertest.Orgs+"usr_"+servertest.SomeID+"/", "", 404, "not_found"),
		servertest.Bad("not if nobody has it", "GET "+servertest.Orgs+"nobody/", "", 404, "not_found"),
		servertest.Bad("not in another case", "GET "+servertest.Users+"AUTH0%7Cada+b/", "", 404, "not_found"),
		servertest.Bad("not without a text", "GET "+servertest.Orgs+"/", "", 404, "not_found"),
		servertest.Bad("not with a character that none can have", "GET "+servertest.Orgs+"a%00b/", "", 404, "not_found"),
		servertest.Bad("not with a slash that separates", "GET "+servertest.Orgs+"acme/17/", "", 404, "not_found"),
		servertest.Shows("in the path and in the body of a new token", "POST "+servertest.Users+"{user}/access-tokens/", `{"organization_id":"acme/17"}`, 201,
			`"user_id":"{user_id}"`, `"organization_id":"{org_id}"`, "Location: /api/v1/users/{user_id}/access-tokens/tok_"),
		servertest.OK("in the list of tokens", "GET "+servertest.Users+"{user}/access-tokens/", "", 200, `"id":"{last}"`),
		servertest.OK("in the path of a token", "GET "+servertest.Users+"{user}/access-tokens/{last}/", "", 200, `"id":"{last}"`),
		servertest.Bad("not in a body if nobody has it", "POST "+servertest.Users+"{user}/access-tokens/", `{"organization_id":"nobody"}`, 422, "", `"field":"organization_id","code":"unknown_organization"`),
	})
	token := "Bearer " + known["token"]
	in := []string{"X-Organization-Id", "acme/17"}
	t.Run("in X-Organization-Id of an operator", func(t *testing.T) {
		if got := f.Do(t, "GET /api/v1/whoami/", servertest.Operator, "", in...).Want(t, 200, ""); !strings.Contains(got.Text, org) {
			t.Error(got.Text)
		}
	})
	t.Run("in X-Organization-Id, which says so if no external id can have the text", func(t *testing.T) {
		for _, as := range []string{servertest.Operator, token} {
			for _, name := range []string{"ä1", "\xe4" + "1"} {
				got := f.Do(t, "GET /api/v1/whoami/", as, "", "X-Organization-Id", name).Want(t, 400, "invalid_parameter")
				if !strings.Contains(got.Text, "send the id of the organization") {
					t.Error(got.Text)
				}
			}
		}
	})
	t.Run("in X-Organization-Id of its own member, and of nobody else", func(t *testing.T) {
		f.Do(t, "GET /api/v1/whoami/", token, "", in...).Want(t, 200, "")
		_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
		f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(other), "", in...).Want(t, 404, "not_found")
		f.Do(t, "GET /api/v1/whoami/", servertest.Operator, "", "X-Organization-Id", "nobody").Want(t, 404, "not_found")
	})
	t.Run("from the moment of a change, also for a cached principal", func(t *testing.T) {
		ask := func(name string, status int) {
			t.Helper()
			for _, as := range []string{token, servertest.Operator} {
				f.Do(t, "GET /api/v1/whoami/", as, "", "X-Organization-Id", name).Want(t, status, "")
			}
		}
		f.Do(t, "PATCH "+servertest.Orgs+org+"/", servertest.Operator, `{"external_id":"new"}`).Want(t, 200, "")
		ask("acme/17", 404)
		ask("new", 200)
		f.Do(t, "PATCH "+servertest.Orgs+"new/", servertest.Operator, `{"external_id":null}`).Want(t, 200, "")
		ask("new", 404)
		ask(org, 200)
	})
	t.Run("in the audit log by the id", func(t *testing.T) {
		for _, e := range f.List(t, servertest.Operator, "/api/v1/audit-events/?organization=all&limit=200").Data {
			target, _ := e["target"].(map[string]any)
			if id, _ := target["id"].(string); strings.Contains(id, "acme") || strings.Contains(id, "auth0") {
				t.Errorf("%v", e)
			}
		}
	})
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("in the revocation of a token", "DELETE "+servertest.Users+"{user}/access-tokens/{last}/", "", 204),
		servertest.OK("in the removal of a member", "DELETE "+servertest.Orgs+"{org_id}/members/{user}/", "", 204),
	})
}

func TestExternalIDsThatCannotBe(t *testing.T) {
	t.Parallel()
	f := start(t)
	org := f.Do(t, "POST "+servertest.Orgs, servertest.Operator, `{"name":"Acme","plan":"growth","external_id":"acme"}`).Want(t, 201, "").Field("id")
	user := f.Do(t, "POST "+servertest.Users, servertest.Operator, `{"email":"ada@example.com"}`).Want(t, 201, "").Field("id")
	for name, value := range map[string]string{
		"the id of an organization":      org,
		"the form of another id":         "key_" + servertest.SomeID,
		"a dot":                          ".",
		"two dots":                       "..",
		"a space at the end":             "a ",
		"a space":                        "a b",
		"a letter of another alphabet":   "ä1",
		"a control character":            "a\\u0000b",
		"an invisible character":         "a\\u200bb",
		"more than 255 characters":       strings.Repeat("a", 256),
		"nothing":                        "",
		"only spaces, which say nothing": " ",
	} {
		for _, c := range []servertest.Call{
			servertest.NewCall("POST "+servertest.Orgs, servertest.Operator, `{"name":"B","plan":"growth","external_id":"`+value+`"}`),
			servertest.NewCall("PATCH "+servertest.Orgs+org+"/", servertest.Operator, `{"external_id":"`+value+`"}`),
			servertest.NewCall("POST "+servertest.Users, servertest.Operator, `{"email":"b@example.com","external_id":"`+value+`"}`),
			servertest.NewCall("PATCH "+servertest.Users+user+"/", servertest.Operator, `{"external_id":"`+value+`"}`),
		} {
			t.Run(name+": "+c.Line[:5], func(t *testing.T) {
				got := f.Call(t, c).Want(t, 422, "validation_failed")
				if fields := got.Fields(); len(fields) != 1 || !strings.HasPrefix(fields[0], "external_id: ") || value == ".." && !strings.Contains(got.Text, "not be . or ..") {
					t.Errorf("%s: %v", c.Line, fields)
				}
			})
		}
	}
	t.Run("but an id of another product can", func(t *testing.T) {
		f.Do(t, "POST "+servertest.Orgs, servertest.Operator, `{"name":"B","plan":"growth","external_id":"cus_`+servertest.SomeID+`"}`).Want(t, 201, "")
		f.Do(t, "GET "+servertest.Orgs+"cus_"+servertest.SomeID+"/", servertest.Operator, "").Want(t, 200, "")
	})
}

func TestConflictsNameWhatExists(t *testing.T) {
	t.Parallel()
	f := start(t)
	org := f.Do(t, "POST "+servertest.Orgs, servertest.Operator, `{"name":"Acme","plan":"growth","external_id":"acme"}`).Want(t, 201, "").Field("id")
	ada := f.Do(t, "POST "+servertest.Users, servertest.Operator, `{"email":"ada@example.com","external_id":"ada"}`).Want(t, 201, "").Field("id")
	bob := f.Do(t, "POST "+servertest.Users, servertest.Operator, `{"email":"bob@example.com"}`).Want(t, 201, "").Field("id")
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"clerk","permissions":[]}`).Want(t, 201, "")
	other := f.Do(t, "POST "+servertest.Orgs, servertest.Operator, `{"name":"Other","plan":"growth"}`).Want(t, 201, "").Field("id")
	rotated := f.Do(t, "POST /api/v1/api-keys/", servertest.Operator, `{"name":"ci","scope":"events:read"}`).Want(t, 201, "").Field("id")
	heir := f.Do(t, "POST /api/v1/api-keys/"+rotated+"/rotate/", servertest.Operator, "").Want(t, 201, "").Field("id")
	t.Run("a rotated key", func(t *testing.T) {
		again := f.Do(t, "POST /api/v1/api-keys/"+rotated+"/rotate/", servertest.Operator, "").Want(t, 409, "already_rotated")
		if again.Field("conflicting_id") != heir {
			t.Error(again.Text)
		}
	})
	for name, c := range map[string]struct{ line, body, want string }{
		"a new organization":                    {"POST " + servertest.Orgs, `{"name":"B","plan":"growth","external_id":"acme"}`, org},
		"a change of an organization":           {"PATCH " + servertest.Orgs + other + "/", `{"external_id":"acme"}`, org},
		"a new user by the external id":         {"POST " + servertest.Users, `{"email":"c@example.com","external_id":"ada"}`, ada},
		"a new user by the e-mail address":      {"POST " + servertest.Users, `{"email":"BOB@example.com"}`, bob},
		"a new user by both, the external id's": {"POST " + servertest.Users, `{"email":"bob@example.com","external_id":"ada"}`, ada},
		"a change of a user":                    {"PATCH " + servertest.Users + bob + "/", `{"email":"ada@example.com"}`, ada},
		"a plan":                                {"POST /api/v1/plans/", `{"name":"growth","api_rate_limit_per_minute":1}`, "growth"},
		"a permission":                          {"POST /api/v1/permissions/", `{"key":"orders:read"}`, "orders:read"},
		"a role":                                {"POST /api/v1/roles/", `{"name":"clerk","permissions":[]}`, "clerk"},
	} {
		t.Run(name, func(t *testing.T) {
			got := f.Do(t, c.line, servertest.Operator, c.body).Want(t, 409, "already_exists")
			if got.Field("conflicting_id") != c.want {
				t.Errorf("conflicting_id %q, want %q: %s", got.Field("conflicting_id"), c.want, got.Text)
			}
		})
	}
}

// TestOneOfManyGetsAnExternalID creates an organization and a user with the same external ids from 20 connections.
func TestOneOfManyGetsAnExternalID(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, c := range []servertest.Call{
		servertest.NewCall("POST "+servertest.Orgs, servertest.Operator, `{"name":"Acme","plan":"growth","external_id":"acme"}`),
		servertest.NewCall("POST "+servertest.Users, servertest.Operator, `{"email":"ada@example.com","external_id":"ada"}`),
	} {
		var wait sync.WaitGroup
		var mu sync.Mutex
		created, conflicting := []string{}, map[string]int{}
		for range 20 {
			wait.Go(func() {
				got := f.Call(t, c)
				mu.Lock()
				defer mu.Unlock()
				if got.StatusCode == http.StatusCreated {
					created = append(created, got.Field("id"))
					return
				}
				got.Want(t, 409, "already_exists")
				conflicting[got.Field("conflicting_id")]++
			})
		}
		wait.Wait()
		if len(created) != 1 || conflicting[created[0]] != 19 {
			t.Errorf("%s: created %v, conflicting %v", c.Line, created, conflicting)
		}
	}
}

// TestOrganizationsAreNamedByTheirExternalID looks for the host's own id of a customer beside each id of an organization.
func TestOrganizationsAreNamedByTheirExternalID(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, bearer := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.Do(t, "PATCH "+servertest.Orgs+owner.Home.ID+"/", servertest.Operator, `{"external_id":"customer-17"}`).Want(t, 200, "")
	made, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	f.Attempted(t, owner, sub, 1)
	event := storagetest.Publish(t, f.Store, owner, "user.created")
	attempt, _ := f.List(t, servertest.Bearer(bearer), "/api/v1/webhooks/subscriptions/"+sub.ID+"/deliveries/").Data[0]["id"].(string)
	audit, _ := f.List(t, servertest.Operator, "/api/v1/audit-events/?organization=all&type=api_key_created").Data[0]["id"].(string)
	token := servertest.Users + owner.User.ID + "/access-tokens/"
	for line, body := range map[string]string{
		"POST /api/v1/auth/verify/":                              `{"key":"` + key.Reveal() + `"}`,
		"GET /api/v1/api-keys/?organization=all":                 "",
		"GET /api/v1/webhooks/subscriptions/?organization=all":   "",
		"GET /api/v1/events/?organization=all&type=user.created": "",
		"GET /api/v1/audit-events/?organization=all&limit=1":     "",
		"GET /api/v1/queue/":                                     "",
		"GET " + token:                                           "",
		"GET " + token + owner.Token.ID + "/":                    "",
		"GET /api/v1/search/?q=acme":                             "",
		"GET /api/v1/search/?q=" + made.ID:                       "",
		"GET /api/v1/search/?q=" + sub.ID:                        "",
		"GET /api/v1/search/?q=" + event.ID:                      "",
		"GET /api/v1/search/?q=" + attempt:                       "",
		"GET /api/v1/search/?q=" + audit:                         "",
		"GET /api/v1/search/?q=" + owner.Token.ID:                "",
	} {
		got := f.Do(t, line, servertest.Operator, body).Want(t, 200, "").Text
		if !strings.Contains(got, `"organization_id":"`+owner.Home.ID+`","organization_external_id":"customer-17"`) {
			t.Errorf("%s: %s", line, got)
		}
	}
	as := []string{"X-Organization-Id", "customer-17"}
	if got := f.Do(t, "GET /api/v1/events/"+event.ID+"/", servertest.Operator, "", as...).Field("organization_external_id"); got != "customer-17" {
		t.Errorf("the event names %q", got)
	}
	if got := f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(key), "").Text; !strings.Contains(got, `"name":"acme","external_id":"customer-17"}`) {
		t.Error(got)
	}
	if got := f.Do(t, "GET "+gate+"forward/", servertest.APIKey(key), "").Header.Get("X-Service-Organization-External-Id"); got != "customer-17" {
		t.Errorf("a proxy gets %q", got)
	}
}
