package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// fixture is a server on a new database.
type fixture struct {
	handler http.Handler
	store   *storage.Store
	token   string
}

type noTester struct{}

func (noTester) Test(context.Context, int64, string, string) (webhook.Attempt, error) {
	return webhook.Attempt{}, nil
}

func serve(t testing.TB) *fixture {
	t.Helper()
	store := storagetest.Open(t)
	s, err := server.New(server.Options{
		Store: store, Tester: noTester{}, CheckURL: egress.Policy{}.CheckURL, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{s, store, storagetest.OperatorToken}
}

// response is what a request got.
type response struct {
	status  int
	text    string
	Code    string
	Changes []struct {
		Action, Kind, Key string
		Path              *string
		Fields            []struct {
			Name     string
			From, To any
		}
	}
	Unchanged int
	Errors    []struct{ Field, Code, Message string }
}

func (f *fixture) do(t testing.TB, method, path, body string) (r response) {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/"+path, content)
	request.Header.Set("Authorization", "Bearer "+f.token)
	if strings.HasPrefix(f.token, "svc_") {
		request.Header.Set("Authorization", "ApiKey "+f.token)
	}
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, request)
	r.status, r.text = w.Code, w.Body.String()
	if r.text != "" {
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, r.text)
		}
	}
	return r
}

// apply applies a document. options are further members of the body, such as "prune":true.
func (f *fixture) apply(t testing.TB, document string, options ...string) response {
	t.Helper()
	return f.do(t, "POST", "apply/", "{"+strings.Join(append(options, `"document":{`+document+"}"), ",")+"}")
}

// summary returns one line for each change, or for each problem.
func (r response) summary() (lines []string) {
	for _, c := range r.Changes {
		var line strings.Builder
		line.WriteString(c.Action + " " + c.Kind + " " + c.Key)
		for _, f := range c.Fields {
			fmt.Fprintf(&line, " %s:%v>%v", f.Name, f.From, f.To)
		}
		lines = append(lines, line.String())
	}
	for _, e := range r.Errors {
		lines = append(lines, e.Field+" "+e.Code)
	}
	return lines
}

// want checks the status, and the changes or problems.
func (r response) want(t testing.TB, status int, lines ...string) {
	t.Helper()
	if d := cmp.Diff(lines, r.summary()); r.status != status || d != "" {
		t.Errorf("status %d, want %d (-want +got):\n%s\n%s", r.status, status, d, r.text)
	}
}

// state returns everything that documents may change, and the audit log.
func (f *fixture) state(t testing.TB) (all []string) {
	t.Helper()
	for _, list := range []string{
		"plans/", "permissions/", "roles/", "organizations/", "users/", "webhooks/subscriptions/?organization=all", "applied/",
		"audit-events/?organization=all",
	} {
		r := f.do(t, "GET", list, "")
		if r.status != http.StatusOK {
			t.Fatalf("%s: %s", list, r.text)
		}
		all = append(all, r.text)
	}
	return all
}

const secret = `"secret":"a-secret-of-thirty-two-characters"`

const full = `
	"subscriptions":[{"organization":"c7","external_id":"orders","url":"https://EXAMPLE.com/hook","event_types":["order.*"],` + secret + `}],
	"members":[{"organization":"c7","user":"ada","role":"clerk"}],
	"users":[{"external_id":"ada","name":"Ada","email":"ada@example.com"}],
	"organizations":[{"external_id":"c7","name":"Customer 7","plan":"startup"}],
	"roles":[{"name":"clerk","permissions":["parcels:read"]}],
	"permissions":[{"key":"parcels:read"}],
	"plans":[{"name":"startup","webhooks":true,"api_rate_limit_per_minute":600}]`

var made = []string{
	"create plan startup webhooks:<nil>>true api_rate_limit_per_minute:<nil>>600",
	"create permission parcels:read",
	"create role clerk permissions:<nil>>[parcels:read]",
	"create organization c7 name:<nil>>Customer 7 plan:<nil>>startup",
	"create user ada name:<nil>>Ada email:<nil>>ada@example.com",
	"create member c7/ada role:<nil>>clerk",
	"create subscription c7/orders url:<nil>>https://example.com/hook event_types:<nil>>[order.*]",
}

func TestApply(t *testing.T) {
	t.Parallel()
	t.Run("makes objects in any order, and then finds nothing to do", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		f.apply(t, full).want(t, 200, made...)
		before := f.state(t)
		again := f.apply(t, full, `"prune":true`)
		again.want(t, 200)
		if d := cmp.Diff(before, f.state(t)); d != "" || again.Unchanged != 7 {
			t.Errorf("%d unchanged (-before +after):\n%s", again.Unchanged, d)
		}
	})
	t.Run("writes nothing in a dry run, and needs no secret for it", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		before := f.state(t)
		f.apply(t, strings.Replace(full, ","+secret, "", 1), `"dry_run":true`).want(t, 200, made...)
		if d := cmp.Diff(before, f.state(t)); d != "" {
			t.Errorf("(-before +after):\n%s", d)
		}
		f.apply(t, strings.Replace(full, ","+secret, "", 1)).want(t, 422, "document.subscriptions.0.secret missing")
	})
	t.Run("undoes everything if the last object has a problem", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		f.do(t, "POST", "organizations/", `{"external_id":"other","name":"Other","plan":"growth"}`)
		before := f.state(t)
		f.apply(t, strings.Replace(full, "https://EXAMPLE.com", "https://10.0.0.1", 1)).want(t, 422, "document.subscriptions.0.url address_not_allowed")
		f.apply(t, `"organizations":[{"external_id":"other","name":"Renamed","plan":"business"},{"external_id":"x","name":"X","plan":"none"}]`).
			want(t, 422, "document.organizations.1.plan unknown_plan")
		if d := cmp.Diff(before, f.state(t)); d != "" {
			t.Errorf("(-before +after):\n%s", d)
		}
		f.apply(t, full).want(t, 200, made...) // the writer remembers nothing of the undone rows
	})
	t.Run("changes only the fields of the document, unless it has created the object", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		f.do(t, "POST", "plans/", `{"name":"pro","webhooks":true,"api_rate_limit_per_minute":1,"max_subscriptions":7}`)
		f.apply(t, `"plans":[{"name":"pro","api_rate_limit_per_minute":null},{"name":"mine","webhooks":true,"max_api_keys":3,"api_rate_limit_per_minute":1}]`).
			want(t, 200, "update plan pro api_rate_limit_per_minute:1><nil>", "create plan mine webhooks:<nil>>true api_rate_limit_per_minute:<nil>>1 max_api_keys:<nil>>3")
		f.apply(t, `"plans":[{"name":"mine","api_rate_limit_per_minute":1}]`).
			want(t, 200, "update plan mine webhooks:true>false max_api_keys:3><nil>")
	})
	t.Run("refuses more than 1,000 changes, and takes as many", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		before := f.state(t)
		permissions := func(n int) string {
			list := make([]string, n)
			for i := range list {
				list[i] = fmt.Sprintf(`{"key":"a:b%d"}`, i)
			}
			return `"permissions":[` + strings.Join(list, ",") + "]"
		}
		if r := f.apply(t, permissions(1001)); r.status != 422 || r.Code != "too_many_changes" {
			t.Errorf("%d: %s", r.status, r.text)
		}
		if d := cmp.Diff(before, f.state(t)); d != "" {
			t.Errorf("(-before +after):\n%s", d)
		}
		if r := f.apply(t, permissions(1000)); r.status != 200 || len(r.Changes) != 1000 {
			t.Errorf("%d: %s", r.status, r.text)
		}
		if r := f.apply(t, permissions(1001)); r.status != 200 || len(r.Changes) != 1 || r.Unchanged != 1000 {
			t.Errorf("%d: %s", r.status, r.text)
		}
	})
	t.Run("makes each object once if two requests come at the same time", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		var both sync.WaitGroup
		changes := make([]int, 8)
		for i := range changes {
			both.Go(func() {
				r := f.apply(t, full)
				if changes[i] = len(r.Changes); r.status != 200 || len(r.Changes)+r.Unchanged != 7 {
					t.Errorf("%d: %s", r.status, r.text)
				}
			})
		}
		both.Wait()
		total := 0
		for _, n := range changes {
			total += n
		}
		if total != 7 {
			t.Errorf("%v changes, want 7 together", changes)
		}
	})
}

// TestManyMovedDeliveries refuses changes of subscriptions that move more than 10,000 pending deliveries in all.
func TestManyMovedDeliveries(t *testing.T) {
	t.Parallel()
	f := serve(t)
	document := func(subscriptions int, fields string) string {
		list := make([]string, subscriptions)
		for i := range list {
			list[i] = fmt.Sprintf(`{"organization":"c","external_id":"s%d","url":"https://example.com/",%s,"event_types":["a"]%s}`, i, secret, fields)
		}
		return `"organizations":[{"external_id":"c","name":"C","plan":"enterprise"}],"subscriptions":[` + strings.Join(list, ",") + "]"
	}
	if r := f.apply(t, document(3, "")); r.status != 200 {
		t.Fatal(r.text)
	}
	c, err := f.store.Directory.Organization(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		batch := slices.Repeat([]webhook.NewEvent{{Type: "a", Data: []byte(`{}`)}}, 2000)
		if _, err := f.store.Queue.PublishEvents(t.Context(), c.RowID, batch); err != nil {
			t.Fatal(err)
		}
	}
	before := f.state(t)
	if r := f.apply(t, document(3, `,"ordered":true`)); r.status != 422 || r.Code != "too_many_changes" || !strings.Contains(r.text, "move 12000 pending deliveries") {
		t.Errorf("%d: %s", r.status, r.text)
	}
	if d := cmp.Diff(before, f.state(t)); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	if r := f.apply(t, document(2, `,"ordered":true`)); r.status != 200 || len(r.Changes) != 2 {
		t.Errorf("%d: %s", r.status, r.text)
	}
	for range 4 {
		batch := slices.Repeat([]webhook.NewEvent{{Type: "a", Data: []byte(`{}`)}}, 2000)
		if _, err := f.store.Queue.PublishEvents(t.Context(), c.RowID, batch); err != nil {
			t.Fatal(err)
		}
	}
	one := `"subscriptions":[{"organization":"c","external_id":"s2","url":"https://example.com/",` + secret + `,"event_types":["a"],"ordered":true}]`
	if r := f.apply(t, one); r.status != 422 || !strings.Contains(r.text, "too_many_pending") {
		t.Errorf("one subscription with too many: %d: %s", r.status, r.text)
	}
}

// TestManyAuditEvents refuses changes whose audit events go to so many subscriptions that everybody would wait for the write.
func TestManyAuditEvents(t *testing.T) {
	t.Parallel()
	f := serve(t)
	document := func(changed int) string {
		list := make([]string, 150)
		for i := range list {
			list[i] = fmt.Sprintf(`{"organization":"c","external_id":"s%d","url":"https://example.com/",%s,"event_types":["webhook_subscription_updated"],"audit_events":true,"description":"%t"}`,
				i, secret, i < changed)
		}
		return `"organizations":[{"external_id":"c","name":"C","plan":"enterprise"}],"subscriptions":[` + strings.Join(list, ",") + "]"
	}
	if r := f.apply(t, document(0)); r.status != 200 {
		t.Fatal(r.text)
	}
	before := f.state(t)
	if r := f.apply(t, document(150)); r.status != 422 || r.Code != "too_many_changes" || !strings.Contains(r.text, "more than 20000 deliveries") {
		t.Errorf("%d: %.2000s", r.status, r.text)
	}
	if d := cmp.Diff(before, f.state(t)); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	if r := f.apply(t, document(100)); r.status != 200 || len(r.Changes) != 100 {
		t.Errorf("%d: %.2000s", r.status, r.text)
	}
}

func TestEventTypes(t *testing.T) {
	t.Parallel()
	f := serve(t)
	const types = `"event_types":[
		{"type":"order.paid","description":"An order was paid","group":"Orders","example": { "number": 1001, "lines": [ ] }},
		{"type":"order.sent","description":"An order was sent"}]`
	made := []string{
		"create event_type order.paid description:<nil>>An order was paid group:<nil>>Orders example:<nil>>map[lines:[] number:1001]",
		"create event_type order.sent description:<nil>>An order was sent",
	}
	f.apply(t, types, `"dry_run":true`).want(t, 200, made...)
	f.apply(t, types).want(t, 200, made...)
	if again := f.apply(t, types, `"prune":true`); again.Unchanged != 2 || len(again.Changes) > 0 {
		t.Error(again.text)
	}
	f.do(t, "PUT", "event-types/by.hand/", `{"description":"x","group":"g"}`)
	f.apply(t, `"event_types":[{"type":"order.paid","description":"Paid"},{"type":"by.hand","description":"x"}]`, `"prune":true`).want(t, 200,
		"update event_type order.paid description:An order was paid>Paid group:Orders> example:map[lines:[] number:1001]><nil>",
		"remove event_type order.sent")
	f.apply(t, "", `"prune":true`).want(t, 200, "remove event_type order.paid")
	f.apply(t, `"event_types":[{"type":"role_created","description":"x"},{"type":"a","description":"","schema":[]},{"type":"b","description":"x"},{"type":"b","description":"x"}]`).
		want(t, 422, "document.event_types.0.type reserved_type", "document.event_types.1.schema wrong_type", "document.event_types.1.description blank",
			"document.event_types.3 duplicate")
}

func TestProblems(t *testing.T) {
	t.Parallel()
	f := serve(t)
	before := f.state(t)
	for name, test := range map[string]struct {
		document string
		want     []string
	}{
		"an unknown section": {`"colours":[]`, []string{"document.colours unknown_field"}},
		"no list":            {`"plans":{}`, []string{"document.plans wrong_type"}},
		"no object":          {`"plans":[7]`, []string{"document.plans.0 wrong_type"}},
		"a name twice":       {`"plans":[{"name":"a","name":"b"}]`, nil},
		"unknown fields and missing ones": {`"plans":[{"name":"a","colour":1}],"users":[{"external_id":"x"}]`, []string{
			"document.plans.0.api_rate_limit_per_minute missing", "document.plans.0.colour unknown_field",
			"document.users.0.name missing",
		}},
		"an object twice": {`"plans":[{"name":"a","api_rate_limit_per_minute":1},{"name":"a","api_rate_limit_per_minute":1}]`,
			[]string{"document.plans.1 duplicate"}},
		"an unchanged object twice": {`"plans":[{"name":"growth","api_rate_limit_per_minute":600},{"name":"growth","api_rate_limit_per_minute":600}]`,
			[]string{"document.plans.1 duplicate"}},
		"references to nothing, once": {`
			"organizations":[{"external_id":"c7","name":"C","plan":"nothing"}],
			"members":[{"organization":"c7","user":"nobody","role":"none"}]`,
			[]string{"document.organizations.0.plan unknown_plan", "document.members.0.user unknown_user", "document.members.0.role unknown_role"}},
		"a built-in role":     {`"roles":[{"name":"owner","permissions":[]}]`, []string{"document.roles.0 built_in"}},
		"a built-in key":      {`"permissions":[{"key":"platform:read","description":"x"}]`, []string{"document.permissions.0 built_in"}},
		"no such permission":  {`"roles":[{"name":"r","permissions":["a:b"]}]`, []string{"document.roles.0.permissions.0 unknown_permission"}},
		"one address twice":   {`"users":[{"external_id":"a","name":"A","email":"a@b.example"},{"external_id":"b","name":"B","email":"A@b.example"}]`, []string{"document.users.1.email already_exists"}},
		"a state":             {`"users":[{"external_id":"a","name":"A","email":"a@b.example","is_active":false}]`, []string{"document.users.0.is_active unknown_field"}},
		"no plan of webhooks": {`"organizations":[{"external_id":"c","name":"C","plan":"free"}],"subscriptions":[{"organization":"c","external_id":"s","url":"https://a.example/",` + secret + `}]`, []string{"document.subscriptions.0 plan_capability_required"}},
		"an empty name":       {`"organizations":[{"external_id":"","name":"C","plan":"free"}]`, []string{"document.organizations.0.external_id invalid"}},
	} {
		t.Run("have the path of "+name, func(t *testing.T) {
			r := f.apply(t, test.document)
			if test.want == nil {
				if r.status != http.StatusBadRequest {
					t.Errorf("%d: %s", r.status, r.text)
				}
				return
			}
			r.want(t, 422, test.want...)
			if d := cmp.Diff(before, f.state(t)); d != "" {
				t.Errorf("(-before +after):\n%s", d)
			}
		})
	}
	t.Run("name the object of the document that has the value", func(t *testing.T) {
		r := f.apply(t, `"users":[{"external_id":"a","name":"A","email":"a@b.example"},{"external_id":"b","name":"B","email":"A@b.example"}]`)
		if len(r.Errors) != 1 || !strings.HasSuffix(r.Errors[0].Message, " See document.users.0.") {
			t.Error(r.text)
		}
	})
	t.Run("need a document", func(t *testing.T) {
		f.do(t, "POST", "apply/", `{"prune":true}`).want(t, 422, "document missing")
	})
}

func TestGrants(t *testing.T) {
	t.Parallel()
	f := serve(t)
	operator := f.token
	key := func(scope string) string {
		f.token = operator
		var made struct{ Key string }
		r := f.do(t, "POST", "api-keys/", `{"name":"narrow","scope":"`+scope+`"}`)
		if err := json.Unmarshal([]byte(r.text), &made); err != nil || made.Key == "" {
			t.Fatal(r.text)
		}
		return made.Key
	}
	t.Run("are refused beyond what the caller has", func(t *testing.T) {
		f.token = key("platform:write platform:act_as")
		r := f.apply(t, `"roles":[{"name":"r","permissions":["events:read"]}]`)
		r.want(t, 403, "document.roles.0 permission_denied")
		if r.Code != access.CodeDenied {
			t.Error(r.text)
		}
		f.apply(t, `"permissions":[{"key":"a:b"}],"roles":[{"name":"r","permissions":["a:b"]}]`).want(t, 403, "document.roles.0 permission_denied")
	})
	t.Run("of a new permission are an operator's", func(t *testing.T) {
		f.token = operator
		f.apply(t, `"permissions":[{"key":"a:b"}],"roles":[{"name":"r","permissions":["a:b"]}]`).
			want(t, 200, "create permission a:b", "create role r permissions:<nil>>[a:b]")
	})
	t.Run("of roles to members are refused too", func(t *testing.T) {
		f.token = key("platform:write platform:act_as")
		f.apply(t, `"organizations":[{"external_id":"c","name":"C","plan":"growth"}],"users":[{"external_id":"u","name":"U","email":"u@b.example"}],
			"members":[{"organization":"c","user":"u","role":"owner"}]`).want(t, 403, "document.members.0 permission_denied")
	})
	t.Run("are needed to remove an internal permission", func(t *testing.T) {
		f.token = operator
		f.apply(t, `"permissions":[{"key":"c:d","internal":true}]`).want(t, 200, "create permission c:d internal:<nil>>true")
		f.token = key("platform:write platform:act_as webhooks:read webhooks:write")
		r := f.apply(t, `"permissions":[{"key":"a:b"}],"roles":[{"name":"r","permissions":["a:b"]}]`, `"prune":true`)
		if r.want(t, 403, "prune permission_denied"); r.Code != access.CodeDenied {
			t.Error(r.text)
		}
	})
	t.Run("of webhooks need the permissions of webhooks", func(t *testing.T) {
		for _, scope := range []string{"platform:act_as", "webhooks:read webhooks:write", "webhooks:read platform:act_as", "webhooks:write platform:act_as"} {
			f.token = key("platform:write " + scope)
			for _, r := range []response{f.apply(t, full), f.apply(t, `"plans":[]`, `"prune":true`)} {
				if r.status != 403 || r.Code != access.CodeDenied || len(r.Errors) > 0 {
					t.Errorf("%s: %s", scope, r.text)
				}
			}
		}
	})
	t.Run("are not for callers without platform:write", func(t *testing.T) {
		f.token = key("platform:read")
		if r := f.apply(t, "", `"dry_run":true`); r.status != 403 {
			t.Error(r.text)
		}
	})
}

// TestWhatIsCreated looks at what no difference shows.
func TestWhatIsCreated(t *testing.T) {
	t.Parallel()
	f := serve(t)
	f.apply(t, full).want(t, 200, made...)
	if r := f.do(t, "GET", "users/ada/", ""); !strings.Contains(r.text, `"is_active":true`) {
		t.Errorf("the user is %s", r.text)
	}
	for kind, organization := range map[string]string{access.SubscriptionCreated: `"c7"`, access.MemberSet: `"c7"`, access.PlanCreated: "null"} {
		r := f.do(t, "GET", "audit-events/?organization=all&limit=1&type="+kind, "")
		if !strings.Contains(r.text, `"organization_external_id":`+organization) {
			t.Errorf("%s is in the audit log of another organization than %s: %s", kind, organization, r.text)
		}
	}
	f.apply(t, strings.Replace(full, `"plans":[`, `"plans":[{"name":"first","api_rate_limit_per_minute":1},{"name":"second","api_rate_limit_per_minute":1},`, 1)).
		want(t, 200, "create plan first api_rate_limit_per_minute:<nil>>1", "create plan second api_rate_limit_per_minute:<nil>>1")
	f.apply(t, full, `"prune":true`).want(t, 200, "remove plan first", "remove plan second") // the oldest first
}

// TestUserWithoutAnAddress is like a PUT of a user.
func TestUserWithoutAnAddress(t *testing.T) {
	t.Parallel()
	f := serve(t)
	f.do(t, "POST", "users/", `{"email":"hand@example.com","external_id":"hand","name":"Hand"}`)
	const hand, ada = `{"external_id":"hand","name":"Hand"}`, `{"external_id":"ada","name":"Ada"}`
	address := func(email string) string { return strings.TrimSuffix(ada, "}") + `,"email":` + email + "}" }
	for _, tt := range []struct {
		document string
		want     []string
		email    string
	}{
		{ada, []string{"create user ada name:<nil>>Ada"}, `"email":null`},
		{address("null"), nil, `"email":null`},
		{address(`"ada@example.com"`), []string{"update user ada email:>ada@example.com"}, `"email":"ada@example.com"`},
		{ada, []string{"update user ada email:ada@example.com>"}, `"email":null`},
		{hand, nil, `"email":null`}, // apply did not make the user, so a field that is left out stays
	} {
		f.apply(t, `"users":[`+tt.document+`]`).want(t, 200, tt.want...)
		if r := f.do(t, "GET", "users/ada/", ""); r.status != 200 || !strings.Contains(r.text, tt.email) {
			t.Errorf("after %s: %s", tt.document, r.text)
		}
	}
	if r := f.do(t, "GET", "users/hand/", ""); !strings.Contains(r.text, `"email":"hand@example.com"`) {
		t.Errorf("the other user: %s", r.text)
	}
}

func TestSubscriptionsWithoutAName(t *testing.T) {
	t.Parallel()
	f := serve(t)
	f.apply(t, `"organizations":[{"external_id":"c","name":"C","plan":"growth"}]`)
	for name, code := range map[string]string{``: "missing", `"external_id":7,`: "wrong_type", `"external_id":"a b",`: "invalid", `"external_id":null,`: "wrong_type"} {
		r := f.apply(t, `"subscriptions":[{`+name+`"organization":"c","url":"https://a.example/"}]`, `"dry_run":true`)
		if r.status != 422 || !slices.Contains(r.summary(), "document.subscriptions.0.external_id "+code) {
			t.Errorf("%s: status %d, %v", name, r.status, r.summary())
		}
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	setUp := func(t *testing.T) *fixture {
		f := serve(t)
		f.apply(t, full).want(t, 200, made...)
		return f
	}
	t.Run("removes what apply has created and the document does not have, and nothing else", func(t *testing.T) {
		t.Parallel()
		f := setUp(t)
		f.do(t, "POST", "users/", `{"email":"hand@example.com","external_id":"hand"}`)
		f.apply(t, `"users":[{"external_id":"hand","name":"Hand","email":"hand@example.com"}]`).want(t, 200, "update user hand name:hand@example.com>Hand")
		for _, options := range []string{`"prune":true,"dry_run":true`, `"prune":true`} {
			f.apply(t, "", options).want(t, 200,
				"remove subscription c7/orders", "remove member c7/ada", "remove user ada", "remove organization c7 name:Customer 7><nil> members:1><nil> subscriptions:1><nil>",
				"remove role clerk", "remove permission parcels:read", "remove plan startup")
		}
		f.apply(t, "", `"prune":true`).want(t, 200)
		if r := f.do(t, "GET", "users/hand/", ""); r.status != 200 {
			t.Error(r.text)
		}
	})
	t.Run("refuses what the document still needs, and removes nothing then", func(t *testing.T) {
		t.Parallel()
		f := setUp(t)
		before := f.state(t)
		_, rest, _ := strings.Cut(full, `"members"`)
		rest, _, _ = strings.Cut(`"members"`+rest, `,
	"permissions"`)
		f.apply(t, rest, `"prune":true`).want(t, 422,
			"document.roles.0.permissions pruned", "document.organizations.0.plan pruned")
		if d := cmp.Diff(before, f.state(t)); d != "" {
			t.Errorf("(-before +after):\n%s", d)
		}
	})
	t.Run("says that it closes an organization that has only events, and not that it deletes an empty one", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		f.apply(t, `"organizations":[{"external_id":"empty","name":"Empty","plan":"growth"},{"external_id":"used","name":"Used","plan":"growth"}]`)
		used, err := f.store.Directory.Organization(t.Context(), "used")
		if err != nil {
			t.Fatal(err)
		}
		storagetest.Publish(t, f.store, access.Principal{Organization: used}, "a")
		f.apply(t, "", `"prune":true`, `"removals":["organization empty","organization used"]`).want(t, 422, "prune not_in_removals")
		f.apply(t, "", `"prune":true`, `"removals":["organization empty","close organization used"]`).want(t, 200,
			"remove organization empty", "remove organization used name:Used><nil>")
		if r := f.do(t, "GET", "organizations/empty/", ""); r.status != 404 {
			t.Error(r.text)
		}
	})
	t.Run("removes only what the caller has seen", func(t *testing.T) {
		t.Parallel()
		f := setUp(t)
		const rest = `"removals":["subscription c7/orders","member c7/ada"]`
		before := f.state(t)
		f.apply(t, "", `"prune":true`, rest).want(t, 422, "prune not_in_removals", "prune not_in_removals", "prune not_in_removals", "prune not_in_removals", "prune not_in_removals")
		f.apply(t, "", `"prune":true`, `"removals":[]`).want(t, 422, slices.Repeat([]string{"prune not_in_removals"}, 7)...)
		if d := cmp.Diff(before, f.state(t)); d != "" {
			t.Errorf("(-before +after):\n%s", d)
		}
	})
	t.Run("counts what refers to changed objects as named", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		const n = 600 // so that the members of both organizations are more than one request may change
		var users, members, others []string
		for i := range n {
			users = append(users, fmt.Sprintf(`{"external_id":"u%d","name":"U"}`, i))
			members = append(members, fmt.Sprintf(`{"organization":"c1","user":"u%d","role":"member"}`, i))
			others = append(others, fmt.Sprintf(`{"organization":"c2","user":"u%d","role":"member"}`, i))
		}
		document := func(plan string, members []string) string {
			return fmt.Sprintf(`"organizations":[{"external_id":"c1","name":"C","plan":%q},{"external_id":"c2","name":"C","plan":%[1]q}],"users":[%s],"members":[%s]`,
				plan, strings.Join(users, ","), strings.Join(members, ","))
		}
		for _, some := range [][]string{nil, members, append(others, members...)} {
			f.apply(t, document("growth", some))
		}
		f.apply(t, `"plans":[{"name":"fresh","api_rate_limit_per_minute":1}],`+document("fresh", append(others, members...)), `"prune":true`).want(t, 200,
			"create plan fresh api_rate_limit_per_minute:<nil>>1", "update organization c1 plan:growth>fresh", "update organization c2 plan:growth>fresh")
	})
	t.Run("leaves what others have created, so the document may name it", func(t *testing.T) {
		t.Parallel()
		f := setUp(t)
		f.apply(t, strings.Replace(full, `"plan":"startup"`, `"plan":"growth"`, 1), `"prune":true`).
			want(t, 200, "update organization c7 plan:startup>growth")
	})
	t.Run("is undone if something depends on an object", func(t *testing.T) {
		t.Parallel()
		f := setUp(t)
		f.do(t, "POST", "organizations/", `{"name":"By hand","plan":"startup"}`)
		before := f.state(t)
		f.apply(t, "", `"prune":true`).want(t, 422, "prune in_use")
		if d := cmp.Diff(before, f.state(t)); d != "" {
			t.Errorf("(-before +after):\n%s", d)
		}
	})
}
