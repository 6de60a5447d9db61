package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestSentAttempt(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) {
		o.SentHeaders = func(a webhook.Attempt) http.Header { return http.Header{"Webhook-Id": {a.EventID}} }
	})
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
	_, blind := storagetest.Key(t, f.store, owner, access.WebhooksRead)
	as := bearer(token)
	sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/hook?token=abc", "user.created", access.KeyCreated)
	attempted(t, f, owner, sub, 2)
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/"
	listed := f.list(t, as, path+"deliveries/?outcome=failed").Data[0]
	at := path + "deliveries/" + listed["id"].(string) + "/"

	read := func(t *testing.T, as, at string) map[string]any {
		t.Helper()
		var found map[string]any
		if err := json.Unmarshal([]byte(f.do(t, call{"GET " + at, as, "", nil}).want(t, 200, "").body), &found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	t.Run("is the record of the list with its request", func(t *testing.T) {
		found := read(t, as, at)
		request := found["request"].(map[string]any)
		delete(found, "request")
		if diff := cmp.Diff(listed, found); diff != "" {
			t.Errorf("attempt (-listed +read):\n%s", diff)
		}
		if body, _ := request["body"].(string); !strings.HasPrefix(body, `{"id":"`+listed["event_id"].(string)+`","type":"user.created",`) {
			t.Errorf("body %s", body)
		}
		delete(request, "body")
		want := map[string]any{"method": "POST", "url": "https://example.com/hook", "headers": map[string]any{"Webhook-Id": listed["event_id"]}}
		if diff := cmp.Diff(want, request); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	})
	t.Run("has no body for a caller who may not read events", func(t *testing.T) {
		if body := read(t, apiKey(blind), at)["request"].(map[string]any)["body"]; body != nil {
			t.Errorf("body %v", body)
		}
	})
	t.Run("is not found in another organization, and at another subscription", func(t *testing.T) {
		f.do(t, call{"GET " + at, bearer(stranger), "", nil}).want(t, 404, "not_found")
		other, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/", "never")
		f.do(t, call{"GET " + strings.Replace(at, sub.ID, other.ID, 1), as, "", nil}).want(t, 404, "not_found")
	})
	t.Run("has no URL once the subscription has another one", func(t *testing.T) {
		f.do(t, call{"PATCH " + path, as, `{"description":"the same URL"}`, nil}).want(t, 200, "")
		if url := read(t, as, at)["request"].(map[string]any)["url"]; url == nil {
			t.Error("no URL after another change")
		}
		f.do(t, call{"PATCH " + path, as, `{"url":"https://example.com/other"}`, nil}).want(t, 200, "")
		if url := read(t, as, at)["request"].(map[string]any)["url"]; url != nil {
			t.Errorf("URL %v", url)
		}
	})
	t.Run("is readable when the subscription is deleted, and has no next attempt then", func(t *testing.T) {
		if listed["next_attempt_at"] == nil {
			t.Fatal("no next attempt before")
		}
		f.do(t, call{"DELETE " + path, as, "", nil}).want(t, 204, "")
		if next := read(t, as, at)["next_attempt_at"]; next != nil {
			t.Errorf("next attempt %v", next)
		}
	})
}

// TestSentAuditEvent checks that the body of an audit event needs the permission that reading it as an event needs.
func TestSentAuditEvent(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	_, limited := storagetest.Key(t, f.store, owner, access.WebhooksRead, access.EventsRead)
	sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/", access.KeyCreated)
	storagetest.Key(t, f.store, owner, access.EventsRead)
	jobs, err := f.store.Queue.PendingJobs(t.Context(), sub.RowID, 10, nil)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v, error %v", jobs, err)
	}
	ids, err := f.store.Queue.Begin(t.Context(), []webhook.Start{{Delivery: jobs[0].Delivery, Subscription: sub.RowID, Epoch: sub.Epoch, Number: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Queue.Record(t.Context(), webhook.Result{Attempt: ids[0], Delivery: jobs[0].Delivery, Subscription: sub.RowID, Epoch: sub.Epoch, Number: 1, Succeeded: true}); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/deliveries/"
	at := path + f.list(t, bearer(token), path).Data[0]["id"].(string) + "/"
	for as, wanted := range map[string]bool{bearer(token): true, apiKey(limited): false} {
		if got := strings.Contains(f.do(t, call{"GET " + at, as, "", nil}).want(t, 200, "").body, `"body":"{`); got != wanted {
			t.Errorf("shows the body: %v, want %v", got, wanted)
		}
	}
}

// TestNextAttempts checks that no response names a time in the past, nor a time at which nothing will happen.
func TestNextAttempts(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	as := bearer(token)
	sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/", "user.created")
	attempted(t, f, owner, sub, 2)
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/"
	waiting := storagetest.Publish(t, f.store, owner, "user.created")
	next := func(t *testing.T) (ofAttempt, ofEvent, ofNew any) {
		t.Helper()
		attempt := f.list(t, as, path+"deliveries/?outcome=failed").Data[0]
		ofDelivery := func(event string) any {
			var body struct {
				Deliveries []map[string]any
			}
			got := f.do(t, call{"GET /api/v1/events/" + event + "/", as, "", nil}).want(t, 200, "")
			if err := json.Unmarshal([]byte(got.body), &body); err != nil || len(body.Deliveries) != 1 {
				t.Fatalf("%v %s", err, got.body)
			}
			return body.Deliveries[0]["next_attempt_at"]
		}
		return attempt["next_attempt_at"], ofDelivery(attempt["event_id"].(string)), ofDelivery(waiting.ID)
	}
	attempt, event, fresh := next(t)
	at, err := time.Parse(time.RFC3339, attempt.(string))
	if err != nil || !at.After(time.Now()) || event != attempt || fresh != nil {
		t.Errorf("the retry is at %v and %v, and a delivery that waits for a slot is at %v", attempt, event, fresh)
	}
	for name, change := range map[string]struct{ block, unblock call }{
		"paused": {call{"PATCH " + path, as, `{"is_active":false}`, nil}, call{"PATCH " + path, as, `{"is_active":true}`, nil}},
		"plan": {call{"PATCH /api/v1/organizations/" + owner.Organization.ID + "/", operator, `{"plan":"free"}`, nil},
			call{"PATCH /api/v1/organizations/" + owner.Organization.ID + "/", operator, `{"plan":"growth"}`, nil}},
		"queue_held": {call{"POST /api/v1/queue/hold/", operator, "", nil}, call{"POST /api/v1/queue/release/", operator, "", nil}},
	} {
		t.Run("there is none while it is blocked: "+name, func(t *testing.T) {
			f.do(t, change.block).want(t, 200, "")
			attempt, event, _ := next(t)
			if by := f.do(t, call{"GET " + path, as, "", nil}).want(t, 200, "").field("blocked_by"); by != name {
				t.Errorf("blocked by %q", by)
			}
			if attempt != nil || event != nil {
				t.Errorf("it is at %v and %v", attempt, event)
			}
			f.do(t, change.unblock).want(t, 200, "")
			if attempt, _, _ := next(t); attempt == nil {
				t.Error("there is none afterwards")
			}
		})
	}
}
