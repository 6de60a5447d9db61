package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// attempted publishes events to a subscription and records one attempt of each: odd ones fail, even ones succeed.
func attempted(t testing.TB, f *testServer, owner access.Principal, sub webhook.Subscription, n int) {
	t.Helper()
	for range n {
		storagetest.Publish(t, f.store, owner, "user.created")
	}
	jobs, err := f.store.Queue.PendingJobs(t.Context(), sub.RowID, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	jobs = slices.DeleteFunc(jobs, func(j webhook.Job) bool { return j.EventType != "user.created" })
	for i, job := range jobs[len(jobs)-n:] {
		target, err := f.store.Queue.Target(t.Context(), sub.RowID)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := f.store.Queue.Begin(t.Context(), []webhook.Start{{
			Delivery: job.Delivery, Subscription: sub.RowID, Epoch: target.Epoch, Number: job.Number(), Trigger: job.Trigger(),
		}})
		if err != nil || ids[0] == 0 {
			t.Fatalf("begin: %v %v", ids, err)
		}
		status := 200
		result := webhook.Result{
			Attempt: ids[0], Delivery: job.Delivery, Subscription: sub.RowID, Epoch: target.Epoch, Number: job.Number(),
			Trigger: job.Trigger(), Succeeded: true, ResponseStatus: &status, ResponseBody: "thanks", DurationMS: 12,
		}
		if i%2 == 1 {
			status = 503
			result.Succeeded, result.Failure = false, webhook.Failure{Class: webhook.HTTPStatus, Text: "503"}
			result.RetryAt = time.Now().Add(time.Minute).UnixMilli()
		}
		if _, err := f.store.Queue.Record(t.Context(), result); err != nil {
			t.Fatalf("record: %v", err)
		}
	}
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	as := bearer(token)
	sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/", "user.created")
	attempted(t, f, owner, sub, 4)
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/"
	first := f.list(t, as, path+"deliveries/?outcome=succeeded").Data[0]

	t.Run("list each attempt", func(t *testing.T) {
		page := f.list(t, as, path+"deliveries/")
		if len(page.Data) != 4 {
			t.Fatalf("%d attempts", len(page.Data))
		}
		failed := f.list(t, as, path+"deliveries/?outcome=failed").Data[0]
		for _, varies := range []string{"id", "event_id", "attempted_at", "next_attempt_at"} {
			if failed[varies] == nil || failed[varies] == "" {
				t.Errorf("no %s", varies)
			}
			delete(failed, varies)
		}
		want := map[string]any{
			"subscription_id": sub.ID, "event_type": "user.created", "attempt_number": 1.0, "trigger": "event", "outcome": "failed",
			"response_status": 503.0, "response_body": "thanks", "duration_ms": 12.0, "error": "http_status: 503", "hint": "receiver_error",
		}
		if diff := cmp.Diff(want, failed); diff != "" {
			t.Errorf("attempt (-want +got):\n%s", diff)
		}
		if first["error"] != nil || first["next_attempt_at"] != nil {
			t.Errorf("a success has error %v and next attempt %v", first["error"], first["next_attempt_at"])
		}
	})
	past, future := "2020-01-01T00:00:00Z", "2100-01-01T00:00:00%2B01:00"
	for query, want := range map[string]int{
		"": 4, "outcome=succeeded": 2, "outcome=failed": 2, "outcome=interrupted": 0, "outcome=sending": 0,
		"event_type=user.created": 4, "event_type=user.deleted": 0, "event_id=" + first["event_id"].(string): 1,
		"event_id=evt_01h455vb4pex5vsknk084sn02q": 0,
		"since=" + past: 4, "since=" + future: 0, "until=" + past: 0, "until=" + future: 4, "until=1960-01-01T00:00:00Z": 0,
		"since=" + past + "&until=" + future + "&outcome=failed&event_type=user.created": 2,
	} {
		t.Run("can be filtered by "+query, func(t *testing.T) {
			if got := len(f.list(t, as, path+"deliveries/?"+query).Data); got != want {
				t.Errorf("%d attempts, want %d", got, want)
			}
		})
	}
	for _, query := range []string{
		"outcome=lost", "outcome=", "event_type=Not%20a%20type", "event_id=x", "event_id=" + sub.ID, "since=yesterday", "until=2020-01-01", "since=", "until=1600000000",
	} {
		t.Run("refuse the filter "+query, func(t *testing.T) {
			got := f.do(t, call{"GET " + path + "deliveries/?" + query, as, "", nil}).want(t, 400, "invalid_parameter")
			if name, _, _ := strings.Cut(query, "="); !strings.Contains(got.field("detail"), name) {
				t.Errorf("the parameter is not named: %s", got.body)
			}
		})
	}
	t.Run("can be sent again by hand", func(t *testing.T) {
		before := f.do(t, call{"GET " + path, as, "", nil})
		got := f.do(t, call{"POST " + path + "deliveries/" + first["id"].(string) + "/redeliver/", as, "", nil}).want(t, 202, "")
		if got.body != "{\"deliveries\":1}\n" {
			t.Errorf("response %s", got.body)
		}
		after := f.do(t, call{"GET " + path, as, "", nil})
		if !strings.Contains(before.body, `"pending_deliveries":2`) || !strings.Contains(after.body, `"pending_deliveries":3`) {
			t.Errorf("pending before and after:\n%s%s", before.body, after.body)
		}
	})
	t.Run("of another subscription are not found", func(t *testing.T) {
		other, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/", "never")
		at := "/api/v1/webhooks/subscriptions/" + other.ID + "/deliveries/" + first["id"].(string) + "/redeliver/"
		f.do(t, call{"POST " + at, as, "", nil}).want(t, 404, "not_found")
	})
}

func TestTestDelivery(t *testing.T) {
	t.Parallel()
	status := 204
	attempt := webhook.Attempt{
		ID: "att_01h455vb4pex5vsknk084sn02q", SubscriptionID: "sub_01h455vb4pex5vsknk084sn02q", EventID: "evt_01h455vb4pex5vsknk084sn02q", EventType: webhook.TestType, Number: 1, Trigger: webhook.ByTest,
		Outcome: webhook.Succeeded, ResponseStatus: &status, DurationMS: 3, AttemptedAt: 1_800_000_000_123,
	}
	f := start(t, func(o *server.Options) {
		o.Tester = tester(func(context.Context) (webhook.Attempt, error) { return attempt, nil })
	})
	got := f.do(t, call{"POST /api/v1/webhooks/subscriptions/sub_01h455vb4pex5vsknk084sn02q/test/", operator, "", nil}).want(t, http.StatusOK, "")
	want := `{"id":"att_01h455vb4pex5vsknk084sn02q","subscription_id":"sub_01h455vb4pex5vsknk084sn02q","event_id":"evt_01h455vb4pex5vsknk084sn02q","event_type":"webhook_test","attempt_number":1,"trigger":"test",` +
		`"outcome":"succeeded","response_status":204,"response_body":"","duration_ms":3,"error":null,"hint":null,` +
		`"attempted_at":"2027-01-15T08:00:00.123Z","next_attempt_at":null}` + "\n"
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}
