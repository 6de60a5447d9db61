package exchange_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// filled returns a server with several resources of every kind, and the paths of all lists with the field that identifies
// items. Lists of a part of something are there twice, for two of it.
func filled(t *testing.T) (f *servertest.Fixture, as string, lists map[string]string) {
	t.Helper()
	f = servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOperator)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	for range 6 {
		storagetest.Key(t, f.Store, owner, access.AuditRead)
		storagetest.Subscription(t, f.Store, owner, "https://example.com/", "never.happens")
		storagetest.Publish(t, f.Store, owner, "user.created")
	}
	for i := range 6 {
		n := string(rune('a' + i))
		for _, created := range []servertest.Call{
			servertest.NewCall("POST /api/v1/plans/", servertest.Operator, `{"name":"plan-`+n+`","api_rate_limit_per_minute":1}`),
			servertest.NewCall("POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:`+n+`"}`),
			servertest.NewCall("POST /api/v1/roles/", servertest.Operator, `{"name":"role-`+n+`","permissions":["orders:`+n+`"]}`),
			servertest.NewCall("POST /api/v1/organizations/", servertest.Operator, `{"name":"org `+n+`","plan":"free"}`),
		} {
			f.Call(t, created).Want(t, 201, "")
		}
	}
	f.Attempted(t, owner, sub, 6)
	lists = map[string]string{
		"/api/v1/api-keys/": "id", "/api/v1/webhooks/subscriptions/": "id", "/api/v1/events/": "id", "/api/v1/audit-events/": "id",
		"/api/v1/plans/": "name", "/api/v1/permissions/": "key", "/api/v1/roles/": "name",
		"/api/v1/organizations/": "id", "/api/v1/users/": "id", "/api/v1/applied/": "key",
		"/api/v1/usage/keys/": "key_id", "/api/v1/usage/organizations/": "period",
	}
	second, _ := storagetest.Organization(t, f.Store, "second", "enterprise", access.RoleOwner)
	other, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/other")
	for _, by := range []access.Principal{owner, second} {
		for i := range 6 {
			name := by.Organization.Name + string(rune('a'+i))
			storagetest.Member(t, f.Store, by.Organization, name, access.RoleMember)
			o := f.Do(t, "POST /api/v1/organizations/", servertest.Operator, `{"name":"`+name+`","plan":"free"}`).Field("id")
			f.Do(t, "PUT /api/v1/organizations/"+o+"/members/"+by.User.ID+"/", servertest.Operator, `{"role":"member"}`).Want(t, 200, "")
			if _, err := f.Store.Directory.CreateToken(t.Context(), by.Actor("", ""), by.User.ID, by.Organization.ID, access.Mint("kat"), name, nil); err != nil {
				t.Fatal(err)
			}
		}
		lists["/api/v1/organizations/"+by.Organization.ID+"/members/"] = "user_id"
		lists["/api/v1/users/"+by.User.ID+"/access-tokens/"] = "id"
		lists["/api/v1/users/"+by.User.ID+"/memberships/"] = "role"
	}
	for _, s := range []webhook.Subscription{sub, other} {
		f.Attempted(t, owner, s, 6)
		lists["/api/v1/webhooks/subscriptions/"+s.ID+"/deliveries/"] = "id"
		lists["/api/v1/events/"+storagetest.Publish(t, f.Store, owner, "user.created").ID+"/explain/"] = "subscription_id"
	}
	var plans []string
	for i := range 6 {
		plans = append(plans, `{"name":"applied-`+string(rune('a'+i))+`","api_rate_limit_per_minute":1}`)
	}
	f.Do(t, "POST /api/v1/apply/", servertest.Operator, `{"document":{"plans":[`+strings.Join(plans, ",")+`]}}`).Want(t, 200, "")
	const days = "WITH RECURSIVE d (day) AS (SELECT unixepoch() / 86400 UNION ALL SELECT day - 1 FROM d WHERE day > unixepoch() / 86400 - 5) "
	storagetest.Exec(t, f.Store, days+"INSERT INTO key_days SELECT k.id, day, 1, 0, 0 FROM d, api_keys k")
	storagetest.Exec(t, f.Store, days+"INSERT OR REPLACE INTO organization_days SELECT o.id, day, 1, 0, 0, 0 FROM d, organizations o")
	return f, servertest.Bearer(token), lists
}

func TestLists(t *testing.T) {
	t.Parallel()
	f, as, lists := filled(t)
	d, err := servertest.Described()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range d.Operations {
		_, hasPages := op.Parameters["query cursor"]
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(op.Path, "[^/]+") + "$")
		if hasPages && !slices.ContainsFunc(slices.Collect(maps.Keys(lists)), pattern.MatchString) {
			t.Errorf("a list is not tested: %s", op.Path)
		}
	}
	var cursors []string
	for path, id := range lists {
		t.Run("return every item once, newest first, page by page: "+path, func(t *testing.T) {
			whole := f.All(t, as, path, id, 200)
			if len(whole) < 6 {
				t.Fatalf("only %d items", len(whole))
			}
			for _, limit := range []int{1, 2, 5, len(whole)} {
				if diff := cmp.Diff(whole, f.All(t, as, path, id, limit)); diff != "" {
					t.Errorf("pages of %d (-whole +paged):\n%s", limit, diff)
				}
			}
		})
		cursors = append(cursors, path+" "+*f.List(t, as, path+"?limit=1").NextCursor)
	}
	for path := range lists {
		t.Run("accept only their own cursors: "+path, func(t *testing.T) {
			for _, c := range cursors {
				from, cursor, _ := strings.Cut(c, " ")
				got := f.Do(t, "GET "+path+"?cursor="+cursor, as, "")
				if from == path {
					got.Want(t, 200, "")
				} else {
					got.Want(t, 400, "invalid_cursor")
				}
			}
		})
		t.Run("refuse unknown parameters: "+path, func(t *testing.T) {
			for query, code := range map[string]string{
				"limit=0": "invalid_parameter", "limit=201": "invalid_parameter", "limit=-1": "invalid_parameter", "limit=x": "invalid_parameter",
				"limit=": "invalid_parameter", "limit=1.5": "invalid_parameter", "limit=99999999999999999999": "invalid_parameter",
				"limit=1&limit=2": "invalid_parameter", "limit=%zz": "invalid_parameter", "a;b": "invalid_parameter",
				"a=1;limit=2": "invalid_parameter", "%zz=1": "invalid_parameter",
				"cursor=": "invalid_cursor", "cursor=x": "invalid_cursor", "cursor=%00": "invalid_cursor", "cursor=AAAA": "invalid_cursor",
				"Limit=1": "unknown_parameter", "page=2": "unknown_parameter",
			} {
				got := f.Do(t, "GET "+path+"?"+query, as, "").Want(t, 400, code)
				name, _, _ := strings.Cut(query, "=")
				if strings.ContainsAny(query, "%;") && code == "invalid_parameter" {
					name = "" // the query cannot be split
				}
				if diff := cmp.Diff([]string{name + ": " + code}, got.Fields()); diff != "" || !strings.Contains(got.Field("detail"), name) {
					t.Errorf("%s: the parameter is not named in %s (-want +got):\n%s", query, got.Field("detail"), diff)
				}
			}
		})
	}
}

func TestCursorOfAnotherOrganization(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	cursorOf := map[string]string{}
	for _, name := range []string{"acme", "other"} {
		owner, token := storagetest.Organization(t, f.Store, name, "growth", access.RoleOwner)
		storagetest.Key(t, f.Store, owner, access.AuditRead)
		storagetest.Key(t, f.Store, owner, access.AuditRead)
		cursorOf[servertest.Bearer(token)] = *f.List(t, servertest.Bearer(token), "/api/v1/api-keys/?limit=1").NextCursor
	}
	for as, own := range cursorOf {
		for _, cursor := range cursorOf {
			got := f.Do(t, "GET /api/v1/api-keys/?cursor="+cursor, as, "")
			if want := map[bool]int{true: 200, false: 400}[cursor == own]; got.StatusCode != want {
				t.Errorf("status %d, want %d", got.StatusCode, want)
			}
		}
	}
}

func TestQueryWhereThereIsNone(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	f.Do(t, "GET /api/v1/whoami/?verbose=1", servertest.Operator, "").Want(t, 400, "unknown_parameter")
	f.Do(t, "POST /api/v1/roles/?dry_run=1", servertest.Operator, `{}`).Want(t, 400, "unknown_parameter")
	f.Do(t, "GET /healthz/?probe=1", "", "").Want(t, 200, "")
}

func TestAllThatIsWrongWithAQuery(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	long := strings.Repeat("y", 101)
	for query, tt := range map[string]struct {
		path, code string
		want       []string
	}{
		"page=2&type=X&limit=0&since=x&until=y&actor=%20&cursor=c&type=a": {"/api/v1/audit-events/", "invalid_parameter", []string{
			"page: unknown_parameter", "type: invalid_parameter", "actor: invalid_parameter",
			"since: invalid_parameter", "until: invalid_parameter", "limit: invalid_parameter", "cursor: invalid_cursor",
		}},
		"z=1&limit=1&a=1&%1b=1&" + long + "=1": {"/api/v1/events/", "unknown_parameter", []string{
			"\ufffd: unknown_parameter", "a: unknown_parameter", long[1:] + "…: unknown_parameter", "z: unknown_parameter",
		}},
		"b=%zz&a=1&b=2":         {"/api/v1/whoami/", "invalid_parameter", []string{": invalid_parameter", "a: unknown_parameter", "b: unknown_parameter"}},
		"status=x&limit=201":    {"/api/v1/api-keys/", "invalid_parameter", []string{"status: invalid_parameter", "limit: invalid_parameter"}},
		"status=x&Limit=1":      {"/api/v1/webhooks/subscriptions/", "invalid_parameter", []string{"Limit: unknown_parameter", "status: invalid_parameter"}},
		"&&limit=%32&&cursor=x": {"/api/v1/plans/", "invalid_cursor", []string{"cursor: invalid_cursor"}},
	} {
		t.Run("are listed together, in a fixed order: "+query, func(t *testing.T) {
			for range 5 {
				got := f.Do(t, "GET "+tt.path+"?"+query, servertest.Operator, "").Want(t, 400, tt.code)
				if diff := cmp.Diff(tt.want, got.Fields()); diff != "" {
					t.Errorf("problems (-want +got):\n%s", diff)
				}
			}
		})
	}
}
