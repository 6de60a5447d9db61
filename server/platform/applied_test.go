package platform_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestApplied(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, hostToken := storagetest.Organization(t, f.Store, "host", "enterprise", access.RoleOperator)
	_, customer := storagetest.Organization(t, f.Store, "customer", "growth", access.RoleOwner)
	host := servertest.Bearer(hostToken)
	const subs = "/api/v1/webhooks/subscriptions/"
	listed := func() (list []string) {
		for _, a := range f.List(t, host, "/api/v1/applied/").Data {
			list = append(list, fmt.Sprint(a["kind"], " ", a["key"]))
		}
		slices.Reverse(list)
		return list
	}
	apply := func(document string) {
		t.Helper()
		f.Do(t, "POST /api/v1/apply/", host, `{"document":{`+document+`}}`).Want(t, 200, "")
	}
	id := func(path string, header ...string) string {
		return f.Do(t, "GET "+path, host, "", header...).Want(t, 200, "").Field("id")
	}
	subscription := func(organization string) string {
		return `"subscriptions":[{"organization":"` + organization + `","external_id":"hook","url":"https://example.com/","secret":"` + webhook.NewSecret().Reveal() + `"}]`
	}
	f.Do(t, "POST "+servertest.Orgs, host, `{"name":"By hand","plan":"growth","external_id":"hand"}`).Want(t, 201, "")
	apply(`"organizations":[{"external_id":"hand","name":"By apply","plan":"growth"}]`)
	if got := listed(); len(got) > 0 {
		t.Fatalf("an object that was there is listed after a change: %v", got)
	}

	apply(`"plans":[{"name":"pro","api_rate_limit_per_minute":10,"webhooks":true}],"permissions":[{"key":"orders:read","description":"Read"}],
		"roles":[{"name":"clerk","permissions":["orders:read"]}],"organizations":[{"external_id":"acme","name":"Acme","plan":"pro"}],
		"users":[{"external_id":"ada","name":"Ada","email":"ada@example.com"}],"members":[{"organization":"acme","user":"ada","role":"clerk"}],` +
		subscription("acme"))
	org, user, sub := id(servertest.Orgs+"acme/"), id(servertest.Users+"ada/"), id(subs+"hook/", "X-Organization-Id", "acme")
	member := org + "/" + user

	t.Run("lists what apply created, with names or ids", func(t *testing.T) {
		want := []string{"plan pro", "permission orders:read", "role clerk", "organization " + org, "user " + user, "member " + member, "subscription " + sub}
		if d := cmp.Diff(want, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("forgets what is deleted, so a later one of the same name is not listed", func(t *testing.T) {
		hand := func(line, body string, status int, header ...string) {
			f.Do(t, line, host, body, header...).Want(t, status, "")
		}
		hand("DELETE "+subs+sub+"/", "", 204, "X-Organization-Id", "acme")
		hand("DELETE "+servertest.Orgs+"acme/members/ada/", "", 204)
		hand("PUT "+servertest.Orgs+"acme/members/ada/", `{"role":"owner"}`, 200)
		apply(`"members":[{"organization":"acme","user":"ada","role":"clerk"}]`)
		if d := cmp.Diff([]string{"plan pro", "permission orders:read", "role clerk", "organization " + org, "user " + user}, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		hand("DELETE "+servertest.Orgs+"acme/members/ada/", "", 204)
		hand("DELETE "+servertest.Users+"ada/", "", 204)
		hand("DELETE /api/v1/roles/clerk/", "", 204)
		hand("DELETE /api/v1/permissions/orders:read/", "", 204)
		hand("PATCH "+servertest.Orgs+"acme/", `{"plan":"growth"}`, 200)
		hand("DELETE /api/v1/plans/pro/", "", 204)
		hand("POST /api/v1/plans/", `{"name":"pro","api_rate_limit_per_minute":10}`, 201)
		if d := cmp.Diff([]string{"organization " + org}, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("forgets what ends with an organization or with a user", func(t *testing.T) {
		kept := listed()
		users, members := []string{}, []string{}
		for _, name := range []string{"eve", "joe"} {
			users = append(users, fmt.Sprintf(`{"external_id":%q,"name":%[1]q,"email":"%[1]s@example.com"}`, name))
			members = append(members, fmt.Sprintf(`{"organization":"acme","user":%q,"role":"member"},{"organization":"leaving","user":%[1]q,"role":"member"}`, name))
		}
		apply(`"organizations":[{"external_id":"leaving","name":"Leaving","plan":"growth"}],"users":[` + strings.Join(users, ",") +
			`],"members":[` + strings.Join(members, ",") + `],` + subscription("leaving"))
		f.Do(t, "POST "+servertest.Orgs+"leaving/close/", host, `{"dry_run":true}`).Want(t, 200, "")
		if got := listed(); len(got) != len(kept)+8 {
			t.Fatalf("%v", got)
		}
		f.Do(t, "POST "+servertest.Orgs+"leaving/close/", host, "").Want(t, 202, "")
		if got := listed(); len(got) != len(kept)+4 { // the users, and the members of acme
			t.Errorf("%v", got)
		}
		f.Do(t, "POST "+servertest.Users+"eve/erase/", host, "").Want(t, 202, "")
		f.Do(t, "POST "+servertest.Users+"joe/erase/", host, "").Want(t, 202, "")
		if d := cmp.Diff(kept, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("is refused with the codes that the description has", func(t *testing.T) {
		apply(`"plans":[{"name":"used","api_rate_limit_per_minute":10}],"permissions":[{"key":"a:b"}]`)
		f.Do(t, "PUT "+servertest.Orgs+"user/", host, `{"name":"U","plan":"used"}`).Want(t, 201, "")
		for body, code := range map[string]string{
			`{"document":{"event_types":[{"type":"api_key_created","description":"x"}]}}`:        "reserved_type",
			`{"document":{"permissions":[{"key":"a:b","internal":true}]}}`:                       "fixed",
			`{"document":{"roles":[{"name":"r","permissions":["a:b"]}]},"prune":true}`:           "pruned",
			`{"document":{"permissions":[{"key":"a:b"}]},"prune":true}`:                          "in_use",
			`{"document":{"roles":[{"name":"owner","permissions":[]}]}}`:                         "built_in",
			`{"document":{"members":[{"organization":"user","user":"user","role":"operator"}]}}`: "unknown_user",
		} {
			if got := f.Do(t, "POST /api/v1/apply/", host, body).Want(t, 422, "").Fields(); !strings.HasSuffix(got[0], ": "+code) {
				t.Errorf("%s: %v", body, got)
			}
		}
	})
	t.Run("needs platform:read", func(t *testing.T) {
		f.Do(t, "GET /api/v1/applied/", servertest.Bearer(customer), "").Want(t, http.StatusForbidden, "permission_denied")
	})
}
