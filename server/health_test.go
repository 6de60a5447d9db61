package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// checked is what /readyz says: its status, and what is wrong with each check.
type checked struct {
	Status string
	Checks map[string]struct {
		OK      bool
		Problem string
	}
}

func (f *floor) ready(t *testing.T, status int) (checked, map[string]string) {
	t.Helper()
	got := f.do(t, call{"GET /readyz", "", "", nil}).want(t, status, "")
	if (status == 503) != (got.Header.Get("Retry-After") != "") {
		t.Errorf("status %d with Retry-After %q", status, got.Header.Get("Retry-After"))
	}
	var c checked
	if err := json.Unmarshal([]byte(got.body), &c); err != nil {
		t.Fatal(err)
	}
	wrong := map[string]string{}
	for name, check := range c.Checks {
		if check.OK != (check.Problem == "") {
			t.Errorf("%s: ok is %v, but the problem is %q", name, check.OK, check.Problem)
		}
		if !check.OK {
			wrong[name] = check.Problem
		}
	}
	return c, wrong
}

func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ticked := time.Now()
		f := build(t, func(o *server.Options) {
			o.Checks = []server.Check{server.Ticking("scheduler", func() time.Time { return ticked }, 10*time.Second)}
		})
		if got, wrong := f.ready(t, 200); got.Status != "ready" || len(got.Checks) != 4 {
			t.Errorf("%+v %v", got, wrong)
		}
		want := func(wrong map[string]string, expected map[string]string) {
			t.Helper()
			if diff := cmp.Diff(expected, wrong); diff != "" {
				t.Errorf("what is wrong (-want +got):\n%s", diff)
			}
		}
		owner, _ := storagetest.Tenant(t, f.store, "acme", "growth", access.RoleOwner)
		sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/", "user.created")
		storagetest.Publish(t, f.store, owner, "user.created")

		time.Sleep(59 * time.Second)
		ticked = time.Now()
		f.ready(t, 200)
		time.Sleep(time.Second)
		got, wrong := f.ready(t, 503)
		want(wrong, map[string]string{"deliveries": "the oldest due delivery is 1m0s late"})
		if got.Status != "not_ready" {
			t.Errorf("status %s", got.Status)
		}
		f.move(t, owner.Organization.ID, "free") // closed now, so nothing is due
		f.ready(t, 200)
		f.move(t, owner.Organization.ID, "growth")
		f.ready(t, 503)
		f.pace(t, owner, sub, new(int64(1))) // what waits for its pace is not late
		f.ready(t, 200)
		f.pace(t, owner, sub, nil)
		f.ready(t, 503)
		if err := f.store.DeleteSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID, sub.ID); err != nil {
			t.Fatal(err)
		}
		f.ready(t, 200)

		time.Sleep(10 * time.Second)
		_, wrong = f.ready(t, 503)
		want(wrong, map[string]string{"scheduler": "has not ticked for 11s"})
		ticked = time.Time{}
		_, wrong = f.ready(t, 503)
		want(wrong, map[string]string{"scheduler": "has not ticked yet"})
		f.do(t, call{"GET /healthz", "", "", nil}).want(t, 200, "")
	})
}

// pace sets the rate limit of a subscription.
func (f *floor) pace(t *testing.T, owner access.Principal, sub webhook.Subscription, limit *int64) {
	t.Helper()
	if _, err := f.store.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID, sub.ID,
		webhook.SubscriptionChange{SetRateLimit: true, RateLimitPerSecond: limit}); err != nil {
		t.Fatal(err)
	}
}

// silent is a store whose database does not answer.
type silent struct{ server.Store }

func (silent) Ping(context.Context) error { return errors.New("secret path") }

func (silent) OldestDue(context.Context) (int64, bool, error) {
	return 0, false, errors.New("secret path")
}

func TestReadyWithoutDatabase(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.Store = silent{o.Store} })
	_, wrong := f.ready(t, 503)
	if diff := cmp.Diff(map[string]string{"database": "does not answer", "deliveries": "cannot be read"}, wrong); diff != "" {
		t.Errorf("what is wrong (-want +got):\n%s", diff)
	}
	if got := f.do(t, call{"GET /readyz", "", "", nil}); strings.Contains(got.body, "secret") {
		t.Errorf("the answer says too much: %s", got.body)
	}
	f.do(t, call{"GET /healthz", "", "", nil}).want(t, 200, "")
}
