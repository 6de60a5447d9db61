package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

const (
	orgs  = "/api/v1/organizations/"
	users = "/api/v1/users/"
	// someID has the form of an id, and belongs to nothing.
	someID = "01h455vb4pex5vsknk084sn02q"
)

func TestExternalIDsStandForIDs(t *testing.T) {
	t.Parallel()
	f := start(t)
	org := f.do(t, call{"POST " + orgs, operator, `{"name":"Acme","plan":"growth","external_id":"acme/17"}`, nil}).want(t, 201, "").field("id")
	user := f.do(t, call{"POST " + users, operator, `{"email":"ada@example.com","external_id":"auth0|ada+b"}`, nil}).want(t, 201, "").field("id")
	known := map[string]string{"as": operator, "org": orgs + url.PathEscape("acme/17") + "/", "user": url.PathEscape("auth0|ada+b"), "org_id": org, "user_id": user}
	f.run(t, known, []scenario{
		ok("in the path of an organization, with a slash", "GET {org}", "", 200, `"id":"{org_id}","name":"Acme"`),
		ok("without the last slash", "GET "+orgs+"acme%2f17", "", 200, `"id":"{org_id}"`),
		ok("in a change of an organization", "PATCH {org}", `{"name":"ACME"}`, 200, `"id":"{org_id}","name":"ACME"`),
		ok("in the path of a user", "GET "+users+"{user}/", "", 200, `"id":"{user_id}"`),
		ok("in a change of a user", "PATCH "+users+"{user}/", `{"name":"Ada"}`, 200, `"id":"{user_id}","email":"ada@example.com","name":"Ada"`),
		ok("in both parts of the path of a member", "PUT {org}members/{user}/", `{"role":"owner"}`, 200, `"user_id":"{user_id}"`),
		ok("in the list of members", "GET {org}members/", "", 200, `"user_id":"{user_id}"`),
		bad("not as the id of another type", "GET "+orgs+"usr_"+someID+"/", "", 404, "not_found"),
		bad("not if nobody has it", "GET "+orgs+"nobody/", "", 404, "not_found"),
		bad("not in another case", "GET "+users+"AUTH0%7Cada+b/", "", 404, "not_found"),
		bad("not without a text", "GET "+orgs+"/", "", 404, "not_found"),
		bad("not with a character that none can have", "GET "+orgs+"a%00b/", "", 404, "not_found"),
		bad("not with a slash that separates", "GET "+orgs+"acme/17/", "", 404, "not_found"),
		shows("in the path and in the body of a new token", "POST "+users+"{user}/access-tokens/", `{"organization_id":"acme/17"}`, 201,
			`"user_id":"{user_id}"`, `"organization_id":"{org_id}"`, "Location: /api/v1/users/{user_id}/access-tokens/tok_"),
		ok("in the list of tokens", "GET "+users+"{user}/access-tokens/", "", 200, `"id":"{last}"`),
		ok("in the path of a token", "GET "+users+"{user}/access-tokens/{last}/", "", 200, `"id":"{last}"`),
		bad("not in a body if nobody has it", "POST "+users+"{user}/access-tokens/", `{"organization_id":"nobody"}`, 422, "", `"field":"organization_id","code":"unknown_organization"`),
	})
	token := "Bearer " + known["token"]
	in := []string{"X-Organization-Id", "acme/17"}
	t.Run("in X-Organization-Id of an operator", func(t *testing.T) {
		if got := f.do(t, call{"GET /api/v1/whoami/", operator, "", in}).want(t, 200, ""); !strings.Contains(got.body, org) {
			t.Error(got.body)
		}
	})
	t.Run("in X-Organization-Id, which says so if no external id can have the text", func(t *testing.T) {
		for _, as := range []string{operator, token} {
			for _, name := range []string{"ä1", "\xe4" + "1"} {
				got := f.do(t, call{"GET /api/v1/whoami/", as, "", []string{"X-Organization-Id", name}}).want(t, 400, "invalid_parameter")
				if !strings.Contains(got.body, "send the id of the organization") {
					t.Error(got.body)
				}
			}
		}
	})
	t.Run("in X-Organization-Id of its own member, and of nobody else", func(t *testing.T) {
		f.do(t, call{"GET /api/v1/whoami/", token, "", in}).want(t, 200, "")
		_, other := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
		f.do(t, call{"GET /api/v1/whoami/", bearer(other), "", in}).want(t, 404, "not_found")
		f.do(t, call{"GET /api/v1/whoami/", operator, "", []string{"X-Organization-Id", "nobody"}}).want(t, 404, "not_found")
	})
	t.Run("from the moment of a change, also for a cached principal", func(t *testing.T) {
		ask := func(name string, status int) {
			t.Helper()
			for _, as := range []string{token, operator} {
				f.do(t, call{"GET /api/v1/whoami/", as, "", []string{"X-Organization-Id", name}}).want(t, status, "")
			}
		}
		f.do(t, call{"PATCH " + orgs + org + "/", operator, `{"external_id":"new"}`, nil}).want(t, 200, "")
		ask("acme/17", 404)
		ask("new", 200)
		f.do(t, call{"PATCH " + orgs + "new/", operator, `{"external_id":null}`, nil}).want(t, 200, "")
		ask("new", 404)
		ask(org, 200)
	})
	t.Run("in the audit log by the id", func(t *testing.T) {
		for _, e := range f.list(t, operator, "/api/v1/audit-events/?organization=all&limit=200").Data {
			target, _ := e["target"].(map[string]any)
			if id, _ := target["id"].(string); strings.Contains(id, "acme") || strings.Contains(id, "auth0") {
				t.Errorf("%v", e)
			}
		}
	})
	f.run(t, known, []scenario{
		ok("in the revocation of a token", "DELETE "+users+"{user}/access-tokens/{last}/", "", 204),
		ok("in the removal of a member", "DELETE "+orgs+"{org_id}/members/{user}/", "", 204),
	})
}

func TestExternalIDsThatCannotBe(t *testing.T) {
	t.Parallel()
	f := start(t)
	org := f.do(t, call{"POST " + orgs, operator, `{"name":"Acme","plan":"growth","external_id":"acme"}`, nil}).want(t, 201, "").field("id")
	user := f.do(t, call{"POST " + users, operator, `{"email":"ada@example.com"}`, nil}).want(t, 201, "").field("id")
	for name, value := range map[string]string{
		"the id of an organization":      org,
		"the form of another id":         "key_" + someID,
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
		for _, c := range []call{
			{"POST " + orgs, operator, `{"name":"B","plan":"growth","external_id":"` + value + `"}`, nil},
			{"PATCH " + orgs + org + "/", operator, `{"external_id":"` + value + `"}`, nil},
			{"POST " + users, operator, `{"email":"b@example.com","external_id":"` + value + `"}`, nil},
			{"PATCH " + users + user + "/", operator, `{"external_id":"` + value + `"}`, nil},
		} {
			t.Run(name+": "+c.line[:5], func(t *testing.T) {
				got := f.do(t, c).want(t, 422, "validation_failed")
				if fields := got.fields(); len(fields) != 1 || !strings.HasPrefix(fields[0], "external_id: ") {
					t.Errorf("%s: %v", c.line, fields)
				}
			})
		}
	}
	t.Run("but an id of another product can", func(t *testing.T) {
		f.do(t, call{"POST " + orgs, operator, `{"name":"B","plan":"growth","external_id":"cus_` + someID + `"}`, nil}).want(t, 201, "")
		f.do(t, call{"GET " + orgs + "cus_" + someID + "/", operator, "", nil}).want(t, 200, "")
	})
}

func TestConflictsNameWhatExists(t *testing.T) {
	t.Parallel()
	f := start(t)
	org := f.do(t, call{"POST " + orgs, operator, `{"name":"Acme","plan":"growth","external_id":"acme"}`, nil}).want(t, 201, "").field("id")
	ada := f.do(t, call{"POST " + users, operator, `{"email":"ada@example.com","external_id":"ada"}`, nil}).want(t, 201, "").field("id")
	bob := f.do(t, call{"POST " + users, operator, `{"email":"bob@example.com"}`, nil}).want(t, 201, "").field("id")
	f.do(t, call{"POST /api/v1/permissions/", operator, `{"key":"orders:read"}`, nil}).want(t, 201, "")
	f.do(t, call{"POST /api/v1/roles/", operator, `{"name":"clerk","permissions":[]}`, nil}).want(t, 201, "")
	other := f.do(t, call{"POST " + orgs, operator, `{"name":"Other","plan":"growth"}`, nil}).want(t, 201, "").field("id")
	rotated := f.do(t, call{"POST /api/v1/api-keys/", operator, `{"name":"ci","scope":"events:read"}`, nil}).want(t, 201, "").field("id")
	heir := f.do(t, call{"POST /api/v1/api-keys/" + rotated + "/rotate/", operator, "", nil}).want(t, 201, "").field("id")
	t.Run("a rotated key", func(t *testing.T) {
		again := f.do(t, call{"POST /api/v1/api-keys/" + rotated + "/rotate/", operator, "", nil}).want(t, 409, "already_rotated")
		if again.field("conflicting_id") != heir {
			t.Error(again.body)
		}
	})
	for name, c := range map[string]struct{ line, body, want string }{
		"a new organization":                    {"POST " + orgs, `{"name":"B","plan":"growth","external_id":"acme"}`, org},
		"a change of an organization":           {"PATCH " + orgs + other + "/", `{"external_id":"acme"}`, org},
		"a new user by the external id":         {"POST " + users, `{"email":"c@example.com","external_id":"ada"}`, ada},
		"a new user by the e-mail address":      {"POST " + users, `{"email":"BOB@example.com"}`, bob},
		"a new user by both, the external id's": {"POST " + users, `{"email":"bob@example.com","external_id":"ada"}`, ada},
		"a change of a user":                    {"PATCH " + users + bob + "/", `{"email":"ada@example.com"}`, ada},
		"a plan":                                {"POST /api/v1/plans/", `{"name":"growth","api_rate_limit_per_minute":1}`, "growth"},
		"a permission":                          {"POST /api/v1/permissions/", `{"key":"orders:read"}`, "orders:read"},
		"a role":                                {"POST /api/v1/roles/", `{"name":"clerk","permissions":[]}`, "clerk"},
	} {
		t.Run(name, func(t *testing.T) {
			got := f.do(t, call{c.line, operator, c.body, nil}).want(t, 409, "already_exists")
			if got.field("conflicting_id") != c.want {
				t.Errorf("conflicting_id %q, want %q: %s", got.field("conflicting_id"), c.want, got.body)
			}
			_, path, isPost := strings.Cut(c.line, "POST ")
			mayPut := isPost && (path == orgs || path == users)
			if strings.Contains(got.field("detail"), "use PUT "+path+"{external_id}/.") != mayPut {
				t.Errorf("the detail is %q", got.field("detail"))
			}
		})
	}
}

// TestOneOfManyGetsAnExternalID creates an organization and a user with the same external ids from 20 connections.
func TestOneOfManyGetsAnExternalID(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, c := range []call{
		{"POST " + orgs, operator, `{"name":"Acme","plan":"growth","external_id":"acme"}`, nil},
		{"POST " + users, operator, `{"email":"ada@example.com","external_id":"ada"}`, nil},
	} {
		var wait sync.WaitGroup
		var mu sync.Mutex
		created, conflicting := []string{}, map[string]int{}
		for range 20 {
			wait.Go(func() {
				got := f.do(t, c)
				mu.Lock()
				defer mu.Unlock()
				if got.StatusCode == http.StatusCreated {
					created = append(created, got.field("id"))
					return
				}
				got.want(t, 409, "already_exists")
				conflicting[got.field("conflicting_id")]++
			})
		}
		wait.Wait()
		if len(created) != 1 || conflicting[created[0]] != 19 {
			t.Errorf("%s: created %v, conflicting %v", c.line, created, conflicting)
		}
	}
}
