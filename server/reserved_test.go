package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestReservedTypesCannotBePublished(t *testing.T) {
	t.Parallel()
	f := build(t)
	for _, name := range append(access.AuditTypes(), webhook.TestType) {
		event := `{"type":"` + name + `","data":{}}`
		got := f.Do(t, "POST /api/v1/events/", servertest.Operator, event).Want(t, http.StatusUnprocessableEntity, "reserved_type")
		if d := cmp.Diff([]string{"type: reserved_type"}, got.Fields()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		got = f.Do(t, "POST /api/v1/events/batch/", servertest.Operator, `{"events":[{"type":"order.paid","data":{}},`+event+`]}`).
			Want(t, http.StatusUnprocessableEntity, "reserved_type")
		if d := cmp.Diff([]string{"events.1.type: reserved_type"}, got.Fields()); d != "" {
			t.Errorf("%s in a batch (-want +got):\n%s", name, d)
		}
	}
	f.Do(t, "POST /api/v1/events/", servertest.Operator, `{"type":"app.api_key_created","data":{}}`).Want(t, http.StatusAccepted, "")
}

// TestAuditEventsNeedAuditRead tries to read audit events in every way with a key without audit:read.
func TestAuditEventsNeedAuditRead(t *testing.T) {
	t.Parallel()
	f := build(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	_, narrow := storagetest.Key(t, f.Store, owner, access.EventsRead, access.EventsWrite, access.WebhooksRead, access.WebhooksWrite)
	full, without := servertest.Bearer(token), servertest.APIKey(narrow)
	const hooks, body = "/api/v1/webhooks/subscriptions/", `"url":"https://example.com/hook"`
	known := map[string]string{"as": without}

	type listed struct {
		Data       []struct{ ID, Type string }
		HasMore    bool    `json:"has_more"`
		NextCursor *string `json:"next_cursor"`
	}
	list := func(t *testing.T, as, query string) (page listed) {
		t.Helper()
		got := f.Do(t, "GET /api/v1/events/"+query, as, "").Want(t, http.StatusOK, "")
		if err := json.Unmarshal([]byte(got.Text), &page); err != nil {
			t.Fatal(err)
		}
		return page
	}

	t.Run("a list omits them, page by page", func(t *testing.T) {
		var want, got []string
		for range 5 {
			want = append([]string{storagetest.Publish(t, f.Store, owner, "order.paid").ID}, want...)
			storagetest.Key(t, f.Store, owner, access.EventsRead) // an event of the audit log in between
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
		f.Do(t, path, full, "").Want(t, http.StatusOK, "")
		f.Do(t, path, without, "").Want(t, http.StatusNotFound, "not_found")
		f.Do(t, path+"?x=1", without, "").Want(t, http.StatusNotFound, "not_found")
	})

	const denied = "permission_denied"
	everything, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/all")
	orders, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/orders", "order.*")
	leaving, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/leaving")
	plain, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/plain")
	f.Do(t, "PATCH "+hooks+plain.ID+"/", full, `{"audit_events":false}`).Want(t, http.StatusOK, "")
	known["everything"], known["orders"], known["plain"], known["leaving"] = everything.ID, orders.ID, plain.ID, leaving.ID
	f.Run(t, known, []servertest.Scenario{
		servertest.Bad("a subscription to one of them is refused", "POST "+hooks, `{`+body+`,"event_types":["order.*","api_key_created"]}`, 403, denied, access.AuditRead),
		servertest.Bad("a subscription with audit events is refused", "POST "+hooks, `{`+body+`,"audit_events":true}`, 403, denied, access.AuditRead),
		servertest.Shows("a subscription to every type gets none of them", "POST "+hooks, `{`+body+`,"event_types":[]}`, 201, `"audit_events":false`),
		servertest.Shows("a subscription without types gets none of them", "POST "+hooks, `{`+body+`}`, 201, `"audit_events":false`),
		servertest.Shows("a subscription to other types is created", "POST "+hooks, `{`+body+`,"event_types":["api_key.*","webhook_test"]}`, 201),
		servertest.Bad("the URL of a subscription that gets them stays", "PATCH "+hooks+"{everything}/", `{"url":"https://example.com/mine"}`, 403, denied, access.AuditRead),
		servertest.Bad("the types stay too, because audit events may be pending", "PATCH "+hooks+"{everything}/", `{"event_types":["order.*"]}`, 403, denied, access.AuditRead, "audit_events"),
		servertest.OK("the rest of it may change", "PATCH "+hooks+"{everything}/", `{"is_active":true,"description":"d","url":"https://example.com/all","event_types":[]}`, 200),
		servertest.Bad("another subscription cannot start to get them", "PATCH "+hooks+"{orders}/", `{"event_types":[]}`, 403, denied, access.AuditRead),
		servertest.Bad("audit events cannot be turned on again", "PATCH "+hooks+"{plain}/", `{"audit_events":true}`, 403, denied, access.AuditRead),
		servertest.OK("one that receives none may get every type, and another address", "PATCH "+hooks+"{plain}/", `{"event_types":[],"url":"https://example.com/x"}`, 200, `"audit_events":false`),
		servertest.OK("one that stops receiving them may move", "PATCH "+hooks+"{leaving}/", `{"audit_events":false,"url":"https://example.com/x"}`, 200, `"audit_events":false`),
		servertest.OK("another one may change", "PATCH "+hooks+"{orders}/", `{"url":"https://example.com/new","event_types":["order.paid"]}`, 200),
	})
	known["as"] = full
	f.Run(t, known, []servertest.Scenario{
		servertest.Shows("with audit:read all of it is allowed", "POST "+hooks, `{`+body+`}`, 201, `"audit_events":true`),
		servertest.Shows("with audit:read a subscription can stop them", "POST "+hooks, `{`+body+`,"audit_events":false}`, 201, `"audit_events":false`),
		servertest.OK("and get them later", "PATCH "+hooks+"{plain}/", `{"audit_events":true}`, 200, `"audit_events":true`),
		servertest.OK("and the address may change", "PATCH "+hooks+"{everything}/", `{"url":"https://example.com/mine","event_types":["api_key_created"]}`, 200),
	})
	t.Run("the attempts do not show how a receiver answered them", func(t *testing.T) {
		echo, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/echo", access.KeyCreated)
		storagetest.Key(t, f.Store, owner, access.EventsRead)
		x := storagetest.Customer{Store: f.Store, Owner: owner, Sub: echo}
		job := x.Jobs(t)[0]
		result := x.Result(t, job, x.Begin(t, job), true)
		result.ResponseBody, result.ResponseHeader = "acme-owner made it", "X-Made-By: acme-owner\n"
		if _, err := f.Store.Queue.Record(t.Context(), result); err != nil {
			t.Fatal(err)
		}
		log := hooks + echo.ID + "/deliveries/"
		var page struct{ Data []struct{ ID string } }
		if err := json.Unmarshal([]byte(f.Do(t, "GET "+log, full, "").Text), &page); err != nil || len(page.Data) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		_, acting := storagetest.Key(t, f.Store, owner, access.WebhooksRead, access.EventsRead)
		for _, path := range []string{log, log + page.Data[0].ID + "/", "/api/v1/search/?q=" + page.Data[0].ID} {
			for as, reads := range map[string]bool{full: true, without: false, servertest.APIKey(acting): false} {
				shown := "acme-owner"
				if strings.Contains(path, "search") {
					shown = access.KeyCreated
				}
				got := f.Do(t, "GET "+path, as, "")
				if strings.Contains(strings.ReplaceAll(got.Text, "https://example.com", ""), shown) != reads {
					t.Errorf("%s, with audit:read %t: %s", path, reads, got.Text)
				}
			}
		}
	})
	if !strings.Contains(f.Do(t, "GET "+hooks+everything.ID+"/", full, "").Text, "https://example.com/mine") {
		t.Error("the address has not changed")
	}
}
