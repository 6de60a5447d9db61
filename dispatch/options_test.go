package dispatch_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestOptionsOfRequests(t *testing.T) {
	t.Parallel()

	t.Run("the header prefix is in a request, and in the headers that are shown of it", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{HeaderPrefix: "x-aCME"})
			sub := x.subscribe(t, "a.example", respond(200))
			x.publish(t, 1)
			time.Sleep(time.Second)
			got := x.requests("a.example")[0].header.Clone()
			for name, masked := range map[string]string{"X-Acme-Signature": "***", "Webhook-Signature": "v1,***"} {
				if got.Get(name) == "" {
					t.Errorf("the request has no header %s", name)
				}
				got.Set(name, masked)
			}
			if d := cmp.Diff(got, x.SentHeaders(x.attempts(t, sub)[0])); d != "" {
				t.Errorf("headers (-received +shown):\n%s", d)
			}
		})
	})

	t.Run("the timeout ends an attempt", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Timeout: 3 * time.Second})
			sub := x.subscribe(t, "a.example", hang)
			a, err := x.Test(t.Context(), x.org(), sub.ID, "")
			if err != nil || a.Error != "timeout: no complete response within 3s" {
				t.Errorf("%v, %+v", err, a)
			}
		})
	})

	t.Run("http is refused unless it is allowed", func(t *testing.T) {
		t.Parallel()
		for allowed, want := range map[bool]string{false: "protocol_error: nothing was sent: the URL of the subscription must begin with https://, unless egress.allow_http is set", true: ""} {
			x := newFixture(t, dispatch.Options{AllowHTTP: allowed})
			sub := x.subscribe(t, "a.example", respond(200))
			url := "http://a.example/hook"
			if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), sub.ID, webhook.SubscriptionChange{URL: &url}); err != nil {
				t.Fatal(err)
			}
			a, err := x.Test(t.Context(), x.org(), sub.ID, "")
			if err != nil || a.Error != want {
				t.Errorf("allowed: %t: %v, %+v", allowed, err, a)
			}
			if sent := len(x.requests("a.example")) > 0; sent != allowed {
				t.Errorf("allowed: %t, a request was sent: %t", allowed, sent)
			}
		}
	})
}
