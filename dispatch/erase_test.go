package dispatch_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// echoAfter answers each request with its own body, after d.
func echoAfter(d time.Duration, status int) handler {
	return respondAfter(d, func(q *http.Request) (*http.Response, error) {
		text, err := io.ReadAll(q.Body)
		return newResponse(status, string(text)), err
	})
}

// erase erases a user, and waits until the erasure is complete. It returns the time of that.
func (x *fixture) erase(t *testing.T, user string) time.Time {
	t.Helper()
	by := storagetest.Operator(t, x.Store).Actor("127.0.0.1", "test")
	for {
		erasure, err := x.EraseUser(t.Context(), by, user)
		if err != nil {
			t.Fatal(err)
		}
		if erasure.Complete {
			return time.Now()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestErasedName(t *testing.T) {
	for name, change := range map[string]webhook.SubscriptionChange{
		"with many requests at once":               {},
		"of an ordered subscription":               {Ordered: new(true)},
		"with a rate limit":                        {RateLimitPerSecond: new(new(int64(2)))},
		"whose receiver fails, so that it retries": {Description: new("fails")},
	} {
		t.Run("a full lane "+name+" sends no request with the name after the erasure is complete, and keeps no echo of it", func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				x := newFixture(t, dispatch.Options{PerSubscription: 4, RetryBase: time.Second, RetryMax: 2 * time.Second, Policy: policy(20, 900, 1000)})
				status := 200
				if change.Description != nil {
					status = 500
				}
				other := x.subscribe(t, "other.example", respond(200))
				change.URL = new("https://slow.example/")
				slow, _, err := x.Subscriptions.CreateSubscription(t.Context(), x.actor(), x.org(), change)
				if err != nil {
					t.Fatal(err)
				}
				quick, _ := storagetest.Subscription(t, x.Store, x.owner, "https://quick.example/") // shares the bodies
				x.setReceiver("slow.example", echoAfter(3*time.Second, status))
				x.setReceiver("quick.example", echoAfter(50*time.Millisecond, 503))

				ada, _ := storagetest.Member(t, x.Store, x.owner.Organization, "Ada Lovelace", access.RoleOwner)
				for i := range 60 {
					if _, err := x.Subscriptions.UpdateSubscription(t.Context(), ada.Actor("127.0.0.1", "test"), x.org(), other.ID,
						webhook.SubscriptionChange{Description: new(strconv.Itoa(i))}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(4 * time.Second)
				complete := x.erase(t, ada.User.ID)
				sent := map[bool]int{}
				time.Sleep(2 * time.Minute)
				for _, host := range []string{"slow.example", "quick.example"} {
					for _, q := range x.requests(host) {
						named := strings.Contains(q.body, "Ada")
						if sent[named]++; named && q.at.After(complete) {
							t.Errorf("%s got the name %s after the erasure was complete", host, q.at.Sub(complete))
						}
					}
				}
				if sent[true] == 0 || sent[false] < 60 {
					t.Errorf("the test is wrong: %d requests with the name, %d without", sent[true], sent[false])
				}
				for _, sub := range []webhook.Subscription{slow, quick} {
					echoes := 0
					for _, a := range x.attempts(t, sub) {
						if strings.Contains(a.ResponseBody, "Ada") {
							t.Errorf("attempt %d of %s keeps an echo of the name", a.Number, a.EventID)
						}
						if a.ResponseBody != "" {
							echoes++
						}
					}
					if echoes == 0 {
						t.Error("the test is wrong: no attempt has an echo")
					}
				}
			})
		})
	}
}
