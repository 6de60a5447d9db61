package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestReservedTypesCannotBePublished(t *testing.T) {
	t.Parallel()
	f := build(t)
	for _, name := range append(access.AuditTypes(), webhook.TestType) {
		event := `{"type":"` + name + `","data":{}}`
		got := f.do(t, call{"POST /api/v1/events/", operator, event, nil}).want(t, http.StatusUnprocessableEntity, "reserved_type")
		if d := cmp.Diff([]string{"type: reserved_type"}, got.fields()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		got = f.do(t, call{"POST /api/v1/events/batch/", operator, `{"events":[{"type":"order.paid","data":{}},` + event + `]}`, nil}).
			want(t, http.StatusUnprocessableEntity, "reserved_type")
		if d := cmp.Diff([]string{"events.1.type: reserved_type"}, got.fields()); d != "" {
			t.Errorf("%s in a batch (-want +got):\n%s", name, d)
		}
	}
	f.do(t, call{"POST /api/v1/events/", operator, `{"type":"app.api_key_created","data":{}}`, nil}).want(t, http.StatusAccepted, "")
}

// TestAuditEventsNeedAuditRead tries to read audit events in every way with a key without audit:read.
func TestAuditEventsNeedAuditRead(t *testing.T) {
	t.Parallel()
	f := build(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "enterprise", access.RoleOwner)
	_, narrow := storagetest.Key(t, f.store, owner, access.EventsRead, access.EventsWrite, access.WebhooksRead, access.WebhooksWrite)
	full, without := bearer(token), apiKey(narrow)
	const hooks, body = "/api/v1/webhooks/subscriptions/", `"url":"https://example.com/hook"`
	known := map[string]string{"as": without}

	type listed struct {
		Data       []struct{ ID, Type string }
		HasMore    bool    `json:"has_more"`
		NextCursor *string `json:"next_cursor"`
	}
	list := func(t *testing.T, as, query string) (page listed) {
		t.Helper()
		got := f.do(t, call{"GET /api/v1/events/" + query, as, "", nil}).want(t, http.StatusOK, "")
		if err := json.Unmarshal([]byte(got.body), &page); err != nil {
			t.Fatal(err)
		}
		return page
	}

	t.Run("a list omits them, page by page", func(t *testing.T) {
		var want, got []string
		for range 5 {
			want = append([]string{storagetest.Publish(t, f.store, owner, "order.paid").ID}, want...)
			storagetest.Key(t, f.store, owner, access.EventsRead) // an event of the audit log in between
		}
		query := "?limit=2"
		for page := list(t, without, query); ; page = list(t, without, query) {
			for _, e := range page.Data {
				got = append(got, e.ID)
			}
			if !page.HasMore {
				break
			}
			query = "?limit=2&cursor=" + *page.NextCursor
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
	t.Run("one of them is not found", func(t *testing.T) {
		newest := list(t, full, "?limit=1").Data[0]
		if newest.Type != access.KeyCreated {
			t.Fatalf("the newest event is %+v", newest)
		}
		path := "GET /api/v1/events/" + newest.ID + "/"
		f.do(t, call{path, full, "", nil}).want(t, http.StatusOK, "")
		f.do(t, call{path, without, "", nil}).want(t, http.StatusNotFound, "not_found")
		f.do(t, call{path + "?x=1", without, "", nil}).want(t, http.StatusNotFound, "not_found")
	})

	const denied = "permission_denied"
	everything, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/all")
	orders, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/orders", "order.*")
	leaving, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/leaving")
	plain, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/plain")
	f.do(t, call{"PATCH " + hooks + plain.ID + "/", full, `{"audit_events":false}`, nil}).want(t, http.StatusOK, "")
	known["everything"], known["orders"], known["plain"], known["leaving"] = everything.ID, orders.ID, plain.ID, leaving.ID
	f.run(t, known, []scenario{
		bad("a subscription to one of them is refused", "POST "+hooks, `{`+body+`,"event_types":["order.*","api_key_created"]}`, 403, denied, access.AuditRead),
		bad("a subscription with audit events is refused", "POST "+hooks, `{`+body+`,"audit_events":true}`, 403, denied, access.AuditRead),
		shows("a subscription to every type gets none of them", "POST "+hooks, `{`+body+`,"event_types":[]}`, 201, `"audit_events":false`),
		shows("a subscription without types gets none of them", "POST "+hooks, `{`+body+`}`, 201, `"audit_events":false`),
		shows("a subscription to other types is created", "POST "+hooks, `{`+body+`,"event_types":["api_key.*","webhook_test"]}`, 201),
		bad("the URL of a subscription that gets them stays", "PATCH "+hooks+"{everything}/", `{"url":"https://example.com/mine"}`, 403, denied, access.AuditRead),
		bad("the types stay too, because audit events may be pending", "PATCH "+hooks+"{everything}/", `{"event_types":["order.*"]}`, 403, denied, access.AuditRead, "audit_events"),
		ok("the rest of it may change", "PATCH "+hooks+"{everything}/", `{"is_active":true,"description":"d","url":"https://example.com/all","event_types":[]}`, 200),
		bad("another subscription cannot start to get them", "PATCH "+hooks+"{orders}/", `{"event_types":[]}`, 403, denied, access.AuditRead),
		bad("audit events cannot be turned on again", "PATCH "+hooks+"{plain}/", `{"audit_events":true}`, 403, denied, access.AuditRead),
		ok("one that receives none may get every type, and another address", "PATCH "+hooks+"{plain}/", `{"event_types":[],"url":"https://example.com/x"}`, 200, `"audit_events":false`),
		ok("one that stops receiving them may move", "PATCH "+hooks+"{leaving}/", `{"audit_events":false,"url":"https://example.com/x"}`, 200, `"audit_events":false`),
		ok("another one may change", "PATCH "+hooks+"{orders}/", `{"url":"https://example.com/new","event_types":["order.paid"]}`, 200),
	})
	known["as"] = full
	f.run(t, known, []scenario{
		shows("with audit:read all of it is allowed", "POST "+hooks, `{`+body+`}`, 201, `"audit_events":true`),
		shows("with audit:read a subscription can stop them", "POST "+hooks, `{`+body+`,"audit_events":false}`, 201, `"audit_events":false`),
		ok("and get them later", "PATCH "+hooks+"{plain}/", `{"audit_events":true}`, 200, `"audit_events":true`),
		ok("and the address may change", "PATCH "+hooks+"{everything}/", `{"url":"https://example.com/mine","event_types":["api_key_created"]}`, 200),
	})
	if !strings.Contains(f.do(t, call{"GET " + hooks + everything.ID + "/", full, "", nil}).body, "https://example.com/mine") {
		t.Error("the address has not changed")
	}
}
