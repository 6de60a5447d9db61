package webhooks_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	const path = "/api/v1/webhooks/subscriptions/"
	const given = `[{"path":"amount","op":"gte","value":100},{"path":"customer.country","op":"in","value":["CH",1.50,null,"<a&b>"]}]`
	made := f.Do(t, "POST "+path, servertest.Bearer(token), `{"url":"https://example.com/","filter":`+given+`}`).Want(t, 201, "")
	if !strings.Contains(made.Text, `"filter":`+given+`,"filter_changed_at":"20`) {
		t.Error(made.Text)
	}
	sub := path + made.Field("id") + "/"
	known := map[string]string{"as": servertest.Bearer(token), "org": owner.Organization.ID, "sub": made.Field("id")}
	refused := func(name, conditions, field, code string) servertest.Scenario {
		return servertest.Bad(name, "PATCH "+sub, `{"filter":`+conditions+`}`, 422, "", `"field":"`+field+`","code":"`+code+`"`)
	}
	one := func(condition string) string { return `[{"path":"a","op":"eq","value":1},` + condition + `]` }
	f.Run(t, known, []servertest.Scenario{
		refused("are arrays", `{}`, "filter", "wrong_type"),
		refused("have objects", `["a"]`, "filter.0", "wrong_type"),
		refused("have complete conditions", `[{"path":"a"}]`, "filter.0.op", "missing"),
		refused("have known members", one(`{"path":"a","op":"eq","value":1,"negate":true}`), "filter.1.negate", "unknown_field"),
		refused("have known operators", one(`{"path":"a","op":"like","value":1}`), "filter.1.op", "invalid"),
		refused("have paths that can be", one(`{"path":"a..b","op":"eq","value":1}`), "filter.1.path", "invalid"),
		refused("have values of the type of the operator", one(`{"path":"a","op":"gt","value":true}`), "filter.1.value", "wrong_type"),
		refused("have at most 10 conditions", `[`+strings.Repeat(`{"path":"a","op":"eq","value":1},`, 10)+`{"path":"a","op":"eq","value":1}]`, "filter", "too_many"),
		refused("have at most 4096 bytes", one(`{"path":"a","op":"eq","value":"`+strings.Repeat("a", 4096)+`"}`), "filter", "too_long"),
		servertest.OK("stay as they are", "GET "+sub, "", 200, `"filter":`+given),
		servertest.OK("decide about events", "POST "+eventPath, `{"type":"order.paid","data":{"amount":99.99,"customer":{"country":"CH"}}}`, 202, `"deliveries":0,"held":0,"notice":"all_filtered"}`),
		servertest.OK("let events pass", "POST "+eventPath, `{"type":"order.paid","data":{"amount":1e2,"customer":{"country":1.5}}}`, 202, `"deliveries":1,"held":0,"notice":null}`),
		servertest.OK("can be tried", "POST /api/v1/webhooks/filters/preview/", `{"event_types":["order.*"],"filter":`+given+`}`, 200, `{"examined":2,"matched":1,"sample":["evt_`),
		servertest.Bad("are refused in a trial, too", "POST /api/v1/webhooks/filters/preview/", `{"filter":[{"path":"","op":"eq","value":1}]}`, 422, "", `"field":"filter.0.path"`),
		servertest.Bad("are needed in a trial", "POST /api/v1/webhooks/filters/preview/", `{}`, 422, "", `"field":"filter","code":"missing"`),
		servertest.OK("are removed by null", "PATCH "+sub, `{"filter":null}`, 200, `"filter":null,"filter_changed_at":"20`),
		servertest.OK("are removed", "POST "+eventPath, `{"type":"order.paid","data":{}}`, 202, `"deliveries":1`),
		servertest.OK("may be empty", "PATCH "+sub, `{"filter":[]}`, 200, `"filter":null`),
	})
	audit := f.List(t, servertest.Bearer(token), "/api/v1/audit-events/?type="+access.SubscriptionCreated)
	if details, ok := audit.Data[0]["details"].(map[string]any); !ok || len(details["filter"].([]any)) != 2 || details["filter"].([]any)[0] != "amount gte" {
		t.Errorf("%v", audit.Data[0])
	}
}

func TestWhenAFilterHasChanged(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	const path = "/api/v1/webhooks/subscriptions/"
	change := func(line, body string) servertest.Response {
		time.Sleep(2 * time.Millisecond)
		return f.Do(t, line, servertest.Bearer(token), body)
	}
	made := change("POST "+path, `{"url":"https://example.com/"}`).Want(t, 201, "")
	if !strings.Contains(made.Text, `"filter":null,"filter_changed_at":null`) {
		t.Error(made.Text)
	}
	line := "PATCH " + path + made.Field("id") + "/"
	first := change(line, `{"filter":[{"path":"a","op":"eq","value":1}]}`).Want(t, 200, "")
	other := change(line, `{"description":"x"}`).Want(t, 200, "")
	last := change(line, `{"filter":[{"path":"a","op":"eq","value":2}]}`).Want(t, 200, "")
	if at := first.Field("filter_changed_at"); at != first.Field("updated_at") || at != other.Field("filter_changed_at") || at >= other.Field("updated_at") || at >= last.Field("filter_changed_at") {
		t.Errorf("%s\n%s\n%s", first.Text, other.Text, last.Text)
	}
}

// TestAFilterOfAuditEvents has a caller with audit:read. Audit events count only for the types that name them, as for a subscription.
func TestAFilterOfAuditEvents(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.Do(t, "POST "+eventPath, servertest.Bearer(token), `{"type":"order.paid","data":{}}`).Want(t, 202, "")
	f.Do(t, "POST /api/v1/api-keys/", servertest.Bearer(token), `{"name":"k","scope":"events:read"}`).Want(t, 201, "")
	for types, want := range map[string]string{"": `"examined":1,`, `"event_types":[],`: `"examined":1,`, `"event_types":["` + access.KeyCreated + `"],`: `"examined":1,`, `"event_types":["order.*"],`: `"examined":1,`} {
		got := f.Do(t, "POST /api/v1/webhooks/filters/preview/", servertest.Bearer(token), `{`+types+`"filter":[]}`).Want(t, 200, "")
		if !strings.Contains(got.Text, want) {
			t.Errorf("%s: %s, want %s", types, got.Text, want)
		}
	}
}

// TestWhoMayTryAFilter gives keys one of the two permissions, and then both without that for audit events.
func TestWhoMayTryAFilter(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.Do(t, "POST "+eventPath, servertest.Bearer(token), `{"type":"order.paid","data":{}}`).Want(t, 202, "")
	for scope, want := range map[string]string{"events:read": "", "webhooks:read": "", "events:read webhooks:read": `"examined":1`} {
		key := f.Do(t, "POST /api/v1/api-keys/", servertest.Bearer(token), `{"name":"k","scope":"`+scope+`"}`).Want(t, 201, "").Field("key")
		got := f.Do(t, "POST /api/v1/webhooks/filters/preview/", "ApiKey "+key, `{"filter":[]}`)
		if want == "" && got.StatusCode != 403 || !strings.Contains(got.Text, want) {
			t.Errorf("%s: %d %s", scope, got.StatusCode, got.Text)
		}
		if want == "" {
			continue
		}
		named := f.Do(t, "POST /api/v1/webhooks/filters/preview/", "ApiKey "+key, `{"event_types":["`+access.KeyCreated+`"],"filter":[]}`).Want(t, 200, "")
		if named.Text != `{"examined":0,"matched":0,"sample":[]}`+"\n" {
			t.Errorf("%s: audit events that the types name: %s", scope, named.Text)
		}
	}
}
