package server_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// listsOfAll are the lists that an operator can read for all organizations.
var listsOfAll = []string{"/api/v1/api-keys/", "/api/v1/webhooks/subscriptions/", "/api/v1/events/", "/api/v1/audit-events/"}

func TestListsOfAllOrganizations(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, acmeOwner := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	tokens := map[string]string{"acme": servertest.Bearer(acmeOwner), "default": servertest.Operator}
	for _, name := range []string{"beta", "gamma"} {
		_, token := storagetest.Organization(t, f.Store, name, "enterprise", access.RoleOwner)
		tokens[name] = servertest.Bearer(token)
	}
	for _, as := range tokens {
		for range 3 {
			f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"ci","scope":"events:read"}`).Want(t, 201, "")
			f.Do(t, "POST /api/v1/webhooks/subscriptions/", as, `{"url":"https://example.com/"}`).Want(t, 201, "")
			f.Do(t, "POST /api/v1/events/", as, `{"type":"order.paid","data":{}}`).Want(t, 202, "")
		}
	}

	for _, path := range listsOfAll {
		t.Run("have the items of each, page by page: "+path, func(t *testing.T) {
			var each []string
			for _, as := range tokens {
				each = append(each, f.All(t, as, path, "id", 200)...)
			}
			slices.Sort(each)
			for _, limit := range []int{1, 200} {
				all := f.All(t, servertest.Operator, path+"?organization=all", "id", limit)
				slices.Sort(all)
				if d := cmp.Diff(each, all); d != "" {
					t.Errorf("pages of %d (-each +all):\n%s", limit, d)
				}
			}
			names := f.All(t, servertest.Operator, path+"?organization=all", "organization_name", 200)
			slices.Sort(names)
			if names = slices.Compact(names); !slices.Contains(names, "beta") || !slices.Contains(names, "gamma") {
				t.Errorf("the items are of %q", names)
			}
		})
		t.Run("need platform:read beyond the permission of the list: "+path, func(t *testing.T) {
			p := f.Do(t, "GET "+path+"?organization=all", servertest.Bearer(acmeOwner), "").Want(t, 403, "permission_denied")
			if !strings.Contains(p.Text, "platform:read") {
				t.Errorf("it does not name the permission: %s", p.Text)
			}
		})
		t.Run("accept no cursor of one organization, nor the other way round: "+path, func(t *testing.T) {
			one, all := *f.List(t, servertest.Operator, path+"?limit=1").NextCursor, *f.List(t, servertest.Operator, path+"?limit=1&organization=all").NextCursor
			f.Do(t, "GET "+path+"?organization=all&cursor="+url.QueryEscape(one), servertest.Operator, "").Want(t, 400, "invalid_cursor")
			f.Do(t, "GET "+path+"?cursor="+url.QueryEscape(all), servertest.Operator, "").Want(t, 400, "invalid_cursor")
		})
		t.Run("are only for all: "+path, func(t *testing.T) {
			for _, other := range []string{"", "acme", "ALL", "org_01h455vb4pex5vsknk084sn02q"} {
				f.Do(t, "GET "+path+"?organization="+other, servertest.Operator, "").Want(t, 400, "invalid_parameter")
			}
		})
	}
}

func TestFiltersOfLists(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	as := servertest.Bearer(token)
	key := f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"ci","scope":"events:read"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"other","scope":"events:read"}`).Want(t, 201, "")
	f.Do(t, "DELETE /api/v1/api-keys/"+key.Field("id")+"/", as, "").Want(t, 204, "")
	for _, eventType := range []string{"order.paid", "order.paid.late", "orders", "user.created"} {
		f.Do(t, "POST /api/v1/events/", as, `{"type":"`+eventType+`","data":{},"idempotency_key":"key of `+eventType+`"}`).Want(t, 202, "")
	}
	count := func(t *testing.T, path string, want int) {
		t.Helper()
		for _, organization := range []string{"", "&organization=all"} {
			reader := as
			if organization != "" {
				reader = servertest.Operator
			}
			if got := f.List(t, reader, path+organization).Data; len(got) != want {
				t.Errorf("%s: %d items, want %d", path+organization, len(got), want)
			}
		}
	}
	prefix := key.Field("key_prefix")
	bare := strings.TrimSuffix(prefix, "…")
	past, future := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for path, want := range map[string]int{
		"/api/v1/api-keys/?prefix=" + bare:                                1,
		"/api/v1/api-keys/?prefix=" + url.QueryEscape(prefix):             1,
		"/api/v1/api-keys/?status=revoked&prefix=" + bare:                 1,
		"/api/v1/api-keys/?status=active&prefix=" + bare:                  0,
		"/api/v1/events/?type=order.paid":                                 1,
		"/api/v1/events/?type=order.*":                                    2,
		"/api/v1/events/?type=order.*&since=" + past + "&until=" + future: 2,
		"/api/v1/events/?type=order.*&until=" + past:                      0,
		"/api/v1/events/?type=order.*&since=" + future:                    0,
		"/api/v1/events/?idempotency_key=key+of+orders":                   1,
		"/api/v1/events/?idempotency_key=key+of+orders&type=user.created": 0,
		"/api/v1/events/?idempotency_key=nothing":                         0,
		"/api/v1/audit-events/?type=api_key_revoked&since=" + past:        1,
		"/api/v1/webhooks/subscriptions/?status=failing":                  0,
	} {
		t.Run("select: "+path, func(t *testing.T) { count(t, path, want) })
	}
	for _, path := range []string{
		"/api/v1/api-keys/?prefix=", "/api/v1/api-keys/?prefix=svc_", "/api/v1/api-keys/?prefix=svc_AbCdE", "/api/v1/api-keys/?prefix=" + key.Field("key"),
		"/api/v1/events/?type=Order", "/api/v1/events/?type=*", "/api/v1/events/?since=yesterday", "/api/v1/events/?idempotency_key=",
		"/api/v1/events/?idempotency_key=a%00b",
	} {
		t.Run("are refused: "+strings.ReplaceAll(path, key.Field("key"), "a whole key"), func(t *testing.T) {
			p := f.Do(t, "GET "+path, as, "").Want(t, 400, "invalid_parameter")
			if strings.Contains(p.Text, key.Field("key")) {
				t.Error("the response repeats the key")
			}
		})
	}
}

func TestSortedOrganizations(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, name := range []string{"acme", "beta", "gamma"} {
		_, token := storagetest.Organization(t, f.Store, name, "enterprise", access.RoleOwner)
		if as := servertest.Bearer(token); name != "gamma" {
			made := f.Do(t, "POST /api/v1/webhooks/subscriptions/", as, `{"url":"https://`+name+`.example.com/","description":"Orders of `+name+`"}`).Want(t, 201, "")
			if got := made.Field("organization_name"); got != name {
				t.Errorf("the subscription belongs to %s", got)
			}
			f.Do(t, "POST /api/v1/events/", as, `{"type":"order.paid","data":{}}`).Want(t, 202, "")
		}
	}
	const path = "/api/v1/organizations/"
	for _, limit := range []int{1, 200} {
		for order, want := range map[string]string{"": "gamma beta acme Default", "?sort=pending_deliveries": "beta acme gamma Default", "?sort=last_event_at": "beta acme gamma Default"} {
			if got := strings.Join(f.All(t, servertest.Operator, path+order, "name", limit), " "); got != want {
				t.Errorf("%s, pages of %d: %s, want %s", order, limit, got, want)
			}
		}
	}
	one := *f.List(t, servertest.Operator, path+"?limit=1&sort=pending_deliveries").NextCursor
	f.Do(t, "GET "+path+"?sort=last_event_at&cursor="+url.QueryEscape(one), servertest.Operator, "").Want(t, 400, "invalid_cursor")
	f.Do(t, "GET "+path+"?cursor="+url.QueryEscape(one), servertest.Operator, "").Want(t, 400, "invalid_cursor")
	f.Do(t, "GET "+path+"?sort=name", servertest.Operator, "").Want(t, 400, "invalid_parameter")
	for search, want := range map[string]int{"ACME.example": 1, "orders+of+b": 1, "example.com": 2, "nothing": 0} {
		if got := f.List(t, servertest.Operator, "/api/v1/webhooks/subscriptions/?organization=all&search="+search).Data; len(got) != want {
			t.Errorf("%s finds %d", search, len(got))
		}
	}
}
