package webhooks_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestSentAttempt(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t, func(o *server.Options) {
		o.SentHeaders = func(a webhook.Attempt) http.Header { return http.Header{"Webhook-Id": {a.EventID}} }
	})
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	_, blind := storagetest.Key(t, f.Store, owner, access.WebhooksRead)
	as := servertest.Bearer(token)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/hook?token=abc", "user.created", access.KeyCreated)
	f.Attempted(t, owner, sub, 2)
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/"
	listed := f.List(t, as, path+"deliveries/?outcome=failed").Data[0]
	at := path + "deliveries/" + listed["id"].(string) + "/"

	read := func(t *testing.T, as, at string) map[string]any {
		t.Helper()
		var found map[string]any
		if err := json.Unmarshal([]byte(f.Do(t, "GET "+at, as, "").Want(t, 200, "").Text), &found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	t.Run("is the record of the list with its request", func(t *testing.T) {
		found := read(t, as, at)
		request := found["request"].(map[string]any)
		if d := cmp.Diff(map[string]any{"X-Request-Id": "7"}, found["response_headers"]); d != "" {
			t.Errorf("the header of the response (-want +got):\n%s", d)
		}
		delete(found, "request")
		delete(found, "response_headers") // the list is short
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
		if body := read(t, servertest.APIKey(blind), at)["request"].(map[string]any)["body"]; body != nil {
			t.Errorf("body %v", body)
		}
	})
	t.Run("is not found in another organization, and at another subscription", func(t *testing.T) {
		f.Do(t, "GET "+at, servertest.Bearer(stranger), "").Want(t, 404, "not_found")
		other, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "never")
		f.Do(t, "GET "+strings.Replace(at, sub.ID, other.ID, 1), as, "").Want(t, 404, "not_found")
	})
	t.Run("has no URL once the subscription has another one", func(t *testing.T) {
		f.Do(t, "PATCH "+path, as, `{"description":"the same URL"}`).Want(t, 200, "")
		if url := read(t, as, at)["request"].(map[string]any)["url"]; url == nil {
			t.Error("no URL after another change")
		}
		f.Do(t, "PATCH "+path, as, `{"url":"https://example.com/other"}`).Want(t, 200, "")
		if url := read(t, as, at)["request"].(map[string]any)["url"]; url != nil {
			t.Errorf("URL %v", url)
		}
	})
	t.Run("is readable when the subscription is deleted, and has no next attempt then", func(t *testing.T) {
		if listed["next_attempt_at"] == nil {
			t.Fatal("no next attempt before")
		}
		f.Do(t, "DELETE "+path, as, "").Want(t, 204, "")
		if next := read(t, as, at)["next_attempt_at"]; next != nil {
			t.Errorf("next attempt %v", next)
		}
	})
}

// TestSentAuditEvent checks that the body of an audit event needs the permission that reading it as an event needs.
func TestSentAuditEvent(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, limited := storagetest.Key(t, f.Store, owner, access.WebhooksRead, access.EventsRead)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", access.KeyCreated)
	storagetest.Key(t, f.Store, owner, access.EventsRead)
	jobs, err := f.Store.Queue.PendingJobs(t.Context(), sub.RowID, 0, 10, nil)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v, error %v", jobs, err)
	}
	ids, err := f.Store.Queue.Begin(t.Context(), []webhook.Start{{Delivery: jobs[0].Delivery, Subscription: sub.RowID, Epoch: sub.Epoch, Number: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Queue.Record(t.Context(), webhook.Result{Attempt: ids[0], Delivery: jobs[0].Delivery, Subscription: sub.RowID, Epoch: sub.Epoch, Number: 1, Succeeded: true}); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/deliveries/"
	at := path + f.List(t, servertest.Bearer(token), path).Data[0]["id"].(string) + "/"
	for as, wanted := range map[string]bool{servertest.Bearer(token): true, servertest.APIKey(limited): false} {
		if got := strings.Contains(f.Do(t, "GET "+at, as, "").Want(t, 200, "").Text, `"body":"{`); got != wanted {
			t.Errorf("shows the body: %v, want %v", got, wanted)
		}
	}
}

// TestNextAttempts checks that no response names a time in the past, nor a time at which nothing will happen.
func TestNextAttempts(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	f.Attempted(t, owner, sub, 2)
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/"
	waiting := storagetest.Publish(t, f.Store, owner, "user.created")
	next := func(t *testing.T) (ofAttempt, ofEvent, ofNew any) {
		t.Helper()
		attempt := f.List(t, as, path+"deliveries/?outcome=failed").Data[0]
		ofDelivery := func(event string) any {
			var body struct {
				Deliveries []map[string]any
			}
			got := f.Do(t, "GET /api/v1/events/"+event+"/", as, "").Want(t, 200, "")
			if err := json.Unmarshal([]byte(got.Text), &body); err != nil || len(body.Deliveries) != 1 {
				t.Fatalf("%v %s", err, got.Text)
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
	for name, change := range map[string]struct{ block, unblock servertest.Call }{
		"paused": {servertest.NewCall("PATCH "+path, as, `{"is_active":false}`), servertest.NewCall("PATCH "+path, as, `{"is_active":true}`)},
		"plan": {servertest.NewCall("PATCH /api/v1/organizations/"+owner.Organization.ID+"/", servertest.Operator, `{"plan":"free"}`),
			servertest.NewCall("PATCH /api/v1/organizations/"+owner.Organization.ID+"/", servertest.Operator, `{"plan":"growth"}`)},
		"queue_held": {servertest.NewCall("POST /api/v1/queue/hold/", servertest.Operator, ""), servertest.NewCall("POST /api/v1/queue/release/", servertest.Operator, "")},
	} {
		t.Run("there is none while it is blocked: "+name, func(t *testing.T) {
			f.Call(t, change.block).Want(t, 200, "")
			attempt, event, _ := next(t)
			if by := f.Do(t, "GET "+path, as, "").Want(t, 200, "").Field("blocked_by"); by != name {
				t.Errorf("blocked by %q", by)
			}
			if attempt != nil || event != nil {
				t.Errorf("it is at %v and %v", attempt, event)
			}
			f.Call(t, change.unblock).Want(t, 200, "")
			if attempt, _, _ := next(t); attempt == nil {
				t.Error("there is none afterwards")
			}
		})
	}
}

// TestNextAttemptOfAProbe lets a subscription fail. Its probe comes later than the retry of the delivery that it sends.
func TestNextAttemptOfAProbe(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	retry, probe := time.Now().Add(time.Minute).UnixMilli(), time.Now().Add(time.Hour).UnixMilli()
	health, epoch := webhook.Healthy, sub.Epoch
	fail := func(event string, retry int64) {
		jobs := storagetest.Must[[]webhook.Job](t)(f.Store.Queue.PendingJobs(t.Context(), sub.RowID, 0, 100, nil))
		job := jobs[slices.IndexFunc(jobs, func(j webhook.Job) bool { return j.EventID == event })]
		number := job.Attempts + 1
		attempt := storagetest.Must[[]int64](t)(f.Store.Queue.Begin(t.Context(), []webhook.Start{{Delivery: job.Delivery, Subscription: sub.RowID, Epoch: epoch, Number: number}}))[0]
		settled := storagetest.Must[[]webhook.Settled](t)(f.Store.Queue.Record(t.Context(), webhook.Result{
			Attempt: attempt, Delivery: job.Delivery, Subscription: sub.RowID, Epoch: epoch, Number: number, RetryAt: retry, ProbeAt: probe,
			Failure: webhook.Failure{Class: webhook.HTTPStatus, Text: "500"},
		}))[0]
		health, epoch = settled.Health.Status, settled.Health.Epoch
	}
	first := storagetest.Publish(t, f.Store, owner, "user.created").ID
	for health == webhook.Healthy { // the first attempts of as many other events as it takes
		fail(storagetest.Publish(t, f.Store, owner, "user.created").ID, retry+1)
	}
	fail(first, retry) // the first probe
	want := string(webhook.AppendTime(nil, probe))
	for _, attempt := range f.List(t, as, "/api/v1/webhooks/subscriptions/"+sub.ID+"/deliveries/").Data {
		if next := attempt["next_attempt_at"]; (next == want) != (attempt["event_id"] == first) || next != want && next != nil {
			t.Errorf("the log says %v for %s, and the probe comes at %s with %s", next, attempt["event_id"], want, first)
		}
	}
	if read := f.Do(t, "GET /api/v1/events/"+first+"/", as, "").Want(t, 200, "").Text; !strings.Contains(read, `"next_attempt_at":"`+want+`"`) {
		t.Errorf("the event says %s, and the probe comes at %s", read, want)
	}
}
