package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestApplied(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, hostToken := storagetest.Organization(t, f.store, "host", "enterprise", access.RoleOperator)
	_, customer := storagetest.Organization(t, f.store, "customer", "growth", access.RoleOwner)
	host := bearer(hostToken)
	const subs = "/api/v1/webhooks/subscriptions/"
	applying := []string{"X-Keyhook-Apply", "true"}
	listed := func() (list []string) {
		for _, a := range f.list(t, host, "/api/v1/applied/").Data {
			list = append(list, fmt.Sprint(a["kind"], " ", a["key"]))
		}
		slices.Reverse(list)
		return list
	}
	do := func(line, body string, status int, header ...string) testResponse {
		return f.do(t, call{line, host, body, append(applying, header...)}).want(t, status, "")
	}
	f.do(t, call{"POST " + orgs, host, `{"name":"By hand","plan":"growth","external_id":"hand"}`, nil}).want(t, 201, "")
	do("PATCH "+orgs+"hand/", `{"name":"By apply"}`, 200)
	do("PUT "+orgs+"hand/", `{"name":"By put","plan":"growth"}`, 200)
	if got := listed(); len(got) > 0 {
		t.Fatalf("an object that was there is listed after a change: %v", got)
	}

	do("POST /api/v1/plans/", `{"name":"pro","api_rate_limit_per_minute":10,"webhooks":true}`, 201)
	do("POST /api/v1/permissions/", `{"key":"orders:read"}`, 201)
	do("POST /api/v1/roles/", `{"name":"clerk","permissions":["orders:read"]}`, 201)
	org := do("POST "+orgs, `{"name":"Acme","plan":"pro","external_id":"acme"}`, 201).field("id")
	user := do("PUT "+users+"ada/", `{"name":"Ada","email":"ada@example.com"}`, 201).field("id")
	do("PUT "+orgs+"acme/members/ada/", `{"role":"clerk"}`, 200)
	sub := do("POST "+subs, `{"url":"https://example.com/"}`, 201, "X-Organization-Id", "acme").field("id")
	member := org + "/" + user

	t.Run("lists what apply created, with names or ids", func(t *testing.T) {
		want := []string{"plan pro", "permission orders:read", "role clerk", "organization " + org, "user " + user, "member " + member, "subscription " + sub}
		if d := cmp.Diff(want, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("forgets an object that stays, on request", func(t *testing.T) {
		f.do(t, call{"POST /api/v1/plans/", host, `{"name":"kept","api_rate_limit_per_minute":10}`, applying}).want(t, 201, "")
		f.do(t, call{"DELETE /api/v1/applied/plan/kept/", host, "", nil}).want(t, 204, "")
		f.do(t, call{"GET /api/v1/plans/kept/", host, "", nil}).want(t, 200, "")
		f.do(t, call{"DELETE /api/v1/applied/plan/kept/", host, "", nil}).want(t, 404, "not_found")
		f.do(t, call{"DELETE /api/v1/applied/other/kept/", host, "", nil}).want(t, 404, "not_found")
		f.do(t, call{"DELETE /api/v1/applied/plan/pro/", bearer(customer), "", nil}).want(t, 403, "permission_denied")
		f.do(t, call{"PUT " + orgs + "acme/members/bob/", host, `{"role":"clerk"}`, applying}).want(t, 404, "not_found")
		bob := do("PUT "+users+"bob/", `{"name":"Bob","email":"bob@example.com"}`, 201).field("id")
		do("PUT "+orgs+"acme/members/bob/", `{"role":"clerk"}`, 200)
		f.do(t, call{"DELETE /api/v1/applied/member/" + org + "%2F" + bob + "/", host, "", nil}).want(t, 204, "")
		f.do(t, call{"DELETE /api/v1/applied/user/" + bob + "/", host, "", nil}).want(t, 204, "")
		f.do(t, call{"DELETE " + orgs + "acme/members/bob/", host, "", nil}).want(t, 204, "")
	})
	t.Run("forgets what is deleted, so a later one of the same name is not listed", func(t *testing.T) {
		hand := func(line, body string, status int, header ...string) {
			f.do(t, call{line, host, body, header}).want(t, status, "")
		}
		hand("DELETE "+subs+sub+"/", "", 204, "X-Organization-Id", "acme")
		hand("DELETE "+orgs+"acme/members/ada/", "", 204)
		hand("PUT "+orgs+"acme/members/ada/", `{"role":"owner"}`, 200)
		do("PUT "+orgs+"acme/members/ada/", `{"role":"clerk"}`, 200)
		if d := cmp.Diff([]string{"plan pro", "permission orders:read", "role clerk", "organization " + org, "user " + user}, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		hand("DELETE "+orgs+"acme/members/ada/", "", 204)
		hand("DELETE "+users+"ada/", "", 204)
		hand("DELETE /api/v1/roles/clerk/", "", 204)
		hand("DELETE /api/v1/permissions/orders:read/", "", 204)
		hand("PATCH "+orgs+"acme/", `{"plan":"growth"}`, 200)
		hand("DELETE /api/v1/plans/pro/", "", 204)
		hand("POST /api/v1/plans/", `{"name":"pro","api_rate_limit_per_minute":10}`, 201)
		if d := cmp.Diff([]string{"organization " + org}, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("forgets what ends with an organization or with a user", func(t *testing.T) {
		kept := listed()
		do("POST "+orgs, `{"name":"Leaving","plan":"growth","external_id":"leaving"}`, 201)
		for _, name := range []string{"eve", "joe"} {
			do("PUT "+users+name+"/", `{"name":"`+name+`","email":"`+name+`@example.com"}`, 201)
			do("PUT "+orgs+"acme/members/"+name+"/", `{"role":"member"}`, 200)
			do("PUT "+orgs+"leaving/members/"+name+"/", `{"role":"member"}`, 200)
		}
		do("POST "+subs, `{"url":"https://example.com/"}`, 201, "X-Organization-Id", "leaving")
		f.do(t, call{"POST " + orgs + "leaving/close/", host, `{"dry_run":true}`, nil}).want(t, 200, "")
		if got := listed(); len(got) != len(kept)+8 {
			t.Fatalf("%v", got)
		}
		f.do(t, call{"POST " + orgs + "leaving/close/", host, "", nil}).want(t, 202, "")
		if got := listed(); len(got) != len(kept)+4 { // the users, and the members of acme
			t.Errorf("%v", got)
		}
		f.do(t, call{"POST " + users + "eve/erase/", host, "", nil}).want(t, 202, "")
		f.do(t, call{"POST " + users + "joe/erase/", host, "", nil}).want(t, 202, "")
		if d := cmp.Diff(kept, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("needs platform:write for the header, and platform:read for the list", func(t *testing.T) {
		f.do(t, call{"POST " + subs, bearer(customer), `{"url":"https://example.com/"}`, applying}).want(t, http.StatusForbidden, "permission_denied")
		f.do(t, call{"GET /api/v1/applied/", bearer(customer), "", nil}).want(t, http.StatusForbidden, "permission_denied")
	})
	t.Run("refuses any other value of the header", func(t *testing.T) {
		f.do(t, call{"POST /api/v1/plans/", host, `{"name":"x","api_rate_limit_per_minute":1}`, []string{"X-Keyhook-Apply", "false"}}).
			want(t, http.StatusBadRequest, "invalid_parameter")
	})
}
