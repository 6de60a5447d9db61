package server_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// listsOfAll are the lists that an operator can read for all organizations.
var listsOfAll = []string{"/api/v1/api-keys/", "/api/v1/webhooks/subscriptions/", "/api/v1/events/", "/api/v1/audit-events/"}

func TestListsOfAllOrganizations(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, acmeOwner := storagetest.Organization(t, f.store, "acme", "enterprise", access.RoleOwner)
	tokens := map[string]string{"acme": bearer(acmeOwner), "default": operator}
	for _, name := range []string{"beta", "gamma"} {
		_, token := storagetest.Organization(t, f.store, name, "enterprise", access.RoleOwner)
		tokens[name] = bearer(token)
	}
	for _, as := range tokens {
		for range 3 {
			f.do(t, call{"POST /api/v1/api-keys/", as, `{"name":"ci","scope":"events:read"}`, nil}).want(t, 201, "")
			f.do(t, call{"POST /api/v1/webhooks/subscriptions/", as, `{"url":"https://example.com/"}`, nil}).want(t, 201, "")
			f.do(t, call{"POST /api/v1/events/", as, `{"type":"order.paid","data":{}}`, nil}).want(t, 202, "")
		}
	}

	for _, path := range listsOfAll {
		t.Run("have the items of each, page by page: "+path, func(t *testing.T) {
			var each []string
			for _, as := range tokens {
				each = append(each, f.all(t, as, path, "id", 200)...)
			}
			slices.Sort(each)
			for _, limit := range []int{1, 200} {
				all := f.all(t, operator, path+"?organization=all", "id", limit)
				slices.Sort(all)
				if d := cmp.Diff(each, all); d != "" {
					t.Errorf("pages of %d (-each +all):\n%s", limit, d)
				}
			}
		})
		t.Run("need platform:read beyond the permission of the list: "+path, func(t *testing.T) {
			p := f.do(t, call{"GET " + path + "?organization=all", bearer(acmeOwner), "", nil}).want(t, 403, "permission_denied")
			if !strings.Contains(p.body, "platform:read") {
				t.Errorf("it does not name the permission: %s", p.body)
			}
		})
		t.Run("accept no cursor of one organization, nor the other way round: "+path, func(t *testing.T) {
			one, all := *f.list(t, operator, path+"?limit=1").NextCursor, *f.list(t, operator, path+"?limit=1&organization=all").NextCursor
			f.do(t, call{"GET " + path + "?organization=all&cursor=" + url.QueryEscape(one), operator, "", nil}).want(t, 400, "invalid_cursor")
			f.do(t, call{"GET " + path + "?cursor=" + url.QueryEscape(all), operator, "", nil}).want(t, 400, "invalid_cursor")
		})
		t.Run("are only for all: "+path, func(t *testing.T) {
			for _, other := range []string{"", "acme", "ALL", "org_01h455vb4pex5vsknk084sn02q"} {
				f.do(t, call{"GET " + path + "?organization=" + other, operator, "", nil}).want(t, 400, "invalid_parameter")
			}
		})
	}
}

func TestFiltersOfLists(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, token := storagetest.Organization(t, f.store, "acme", "enterprise", access.RoleOwner)
	as := bearer(token)
	key := f.do(t, call{"POST /api/v1/api-keys/", as, `{"name":"ci","scope":"events:read"}`, nil}).want(t, 201, "")
	f.do(t, call{"POST /api/v1/api-keys/", as, `{"name":"other","scope":"events:read"}`, nil}).want(t, 201, "")
	f.do(t, call{"DELETE /api/v1/api-keys/" + key.field("id") + "/", as, "", nil}).want(t, 204, "")
	for _, eventType := range []string{"order.paid", "order.paid.late", "orders", "user.created"} {
		f.do(t, call{"POST /api/v1/events/", as, `{"type":"` + eventType + `","data":{},"idempotency_key":"key of ` + eventType + `"}`, nil}).want(t, 202, "")
	}
	count := func(t *testing.T, path string, want int) {
		t.Helper()
		for _, organization := range []string{"", "&organization=all"} {
			reader := as
			if organization != "" {
				reader = operator
			}
			if got := f.list(t, reader, path+organization).Data; len(got) != want {
				t.Errorf("%s: %d items, want %d", path+organization, len(got), want)
			}
		}
	}
	prefix := key.field("key_prefix")
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
		"/api/v1/api-keys/?prefix=", "/api/v1/api-keys/?prefix=svc_", "/api/v1/api-keys/?prefix=svc_AbCdE", "/api/v1/api-keys/?prefix=" + key.field("key"),
		"/api/v1/events/?type=Order", "/api/v1/events/?type=*", "/api/v1/events/?since=yesterday", "/api/v1/events/?idempotency_key=",
		"/api/v1/events/?idempotency_key=a%00b",
	} {
		t.Run("are refused: "+strings.ReplaceAll(path, key.field("key"), "a whole key"), func(t *testing.T) {
			p := f.do(t, call{"GET " + path, as, "", nil}).want(t, 400, "invalid_parameter")
			if strings.Contains(p.body, key.field("key")) {
				t.Error("the response repeats the key")
			}
		})
	}
}
