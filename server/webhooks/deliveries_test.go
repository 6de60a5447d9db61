package webhooks_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestDeliveries(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	f.Attempted(t, owner, sub, 4)
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/"
	first := f.List(t, as, path+"deliveries/?outcome=succeeded").Data[0]

	t.Run("list each attempt", func(t *testing.T) {
		page := f.List(t, as, path+"deliveries/")
		if len(page.Data) != 4 {
			t.Fatalf("%d attempts", len(page.Data))
		}
		failed := f.List(t, as, path+"deliveries/?outcome=failed").Data[0]
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
			if got := len(f.List(t, as, path+"deliveries/?"+query).Data); got != want {
				t.Errorf("%d attempts, want %d", got, want)
			}
		})
	}
	for _, query := range []string{
		"outcome=lost", "outcome=", "event_type=Not%20a%20type", "event_id=x", "event_id=" + sub.ID, "since=yesterday", "until=2020-01-01", "since=", "until=1600000000",
	} {
		t.Run("refuse the filter "+query, func(t *testing.T) {
			got := f.Do(t, "GET "+path+"deliveries/?"+query, as, "").Want(t, 400, "invalid_parameter")
			if name, _, _ := strings.Cut(query, "="); !strings.Contains(got.Field("detail"), name) {
				t.Errorf("the parameter is not named: %s", got.Text)
			}
		})
	}
	t.Run("can be sent again by hand", func(t *testing.T) {
		before := f.Do(t, "GET "+path, as, "")
		got := f.Do(t, "POST "+path+"deliveries/"+first["id"].(string)+"/redeliver/", as, "").Want(t, 202, "")
		if got.Text != "{\"deliveries\":1}\n" {
			t.Errorf("response %s", got.Text)
		}
		after := f.Do(t, "GET "+path, as, "")
		if !strings.Contains(before.Text, `"pending_deliveries":2`) || !strings.Contains(after.Text, `"pending_deliveries":3`) {
			t.Errorf("pending before and after:\n%s%s", before.Text, after.Text)
		}
	})
	t.Run("of another subscription are not found", func(t *testing.T) {
		other, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "never")
		at := "/api/v1/webhooks/subscriptions/" + other.ID + "/deliveries/" + first["id"].(string) + "/redeliver/"
		f.Do(t, "POST "+at, as, "").Want(t, 404, "not_found")
	})
}

func TestTestDelivery(t *testing.T) {
	t.Parallel()
	status := 204
	attempt := webhook.Attempt{
		ID: "att_01h455vb4pex5vsknk084sn02q", SubscriptionID: "sub_01h455vb4pex5vsknk084sn02q", EventID: "evt_01h455vb4pex5vsknk084sn02q", EventType: webhook.TestType, Number: 1, Trigger: webhook.ByTest,
		Outcome: webhook.Succeeded, ResponseStatus: &status, DurationMS: 3, AttemptedAt: 1_800_000_000_123,
	}
	f := servertest.Start(t, func(o *server.Options) {
		o.Tester = servertest.Tester(func(context.Context) (webhook.Attempt, error) { return attempt, nil })
	})
	got := f.Do(t, "POST /api/v1/webhooks/subscriptions/sub_01h455vb4pex5vsknk084sn02q/test/", servertest.Operator, "").Want(t, http.StatusOK, "")
	want := `{"id":"att_01h455vb4pex5vsknk084sn02q","subscription_id":"sub_01h455vb4pex5vsknk084sn02q","event_id":"evt_01h455vb4pex5vsknk084sn02q","event_type":"webhook_test","attempt_number":1,"trigger":"test",` +
		`"outcome":"succeeded","response_status":204,"response_body":"","duration_ms":3,"error":null,"hint":null,` +
		`"attempted_at":"2027-01-15T08:00:00.123Z","next_attempt_at":null,"response_headers":{}}` + "\n"
	if diff := cmp.Diff(want, got.Text); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}
