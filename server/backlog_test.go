package server_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// backlogOf is the response of the backlog endpoint. Due times are replaced by whether there is one.
type backlogOf struct {
	Pending  int
	Oldest   *string `json:"oldest_due_at"`
	Statuses struct{ Healthy, Failing, Disabled, Paused int }
	Blocked  []struct {
		By            *string `json:"blocked_by"`
		Subscriptions int
		Pending       int
		Oldest        *string `json:"oldest_due_at"`
	}
}

// blocks returns the number of subscriptions and of pending deliveries by block.
func (b backlogOf) blocks() map[string][2]int {
	found := map[string][2]int{}
	for _, item := range b.Blocked {
		by := ""
		if item.By != nil {
			by = *item.By
		}
		found[by] = [2]int{item.Subscriptions, item.Pending}
	}
	return found
}

func (f *testServer) backlog(t *testing.T, as, query string) (b backlogOf) {
	t.Helper()
	got := f.do(t, call{"GET /api/v1/webhooks/backlog/" + query, as, "", nil}).want(t, 200, "")
	if err := json.Unmarshal([]byte(got.body), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
	_, quiet := storagetest.Organization(t, f.store, "quiet", "growth", access.RoleOwner)
	as := bearer(token)
	storagetest.Subscription(t, f.store, owner, "https://a.example.com/", "a")
	paused, _ := storagetest.Subscription(t, f.store, owner, "https://b.example.com/", "b")
	storagetest.Subscription(t, f.store, owner, "https://c.example.com/", "never.happens")
	gone, _ := storagetest.Subscription(t, f.store, owner, "https://d.example.com/", "a")
	storagetest.Subscription(t, f.store, other, "https://e.example.com/", "a")
	f.do(t, call{"PATCH /api/v1/webhooks/subscriptions/" + paused.ID + "/", as, `{"is_active":false}`, nil}).want(t, 200, "")
	for _, eventType := range []string{"a", "b", "b", "a"} {
		storagetest.Publish(t, f.store, owner, eventType)
	}
	storagetest.Publish(t, f.store, other, "a")
	f.do(t, call{"DELETE /api/v1/webhooks/subscriptions/" + gone.ID + "/", as, "", nil}).want(t, 204, "")

	t.Run("counts what waits by what blocks it, in one organization", func(t *testing.T) {
		b := f.backlog(t, as, "")
		want := map[string][2]int{"": {1, 2}, "paused": {1, 2}}
		if d := cmp.Diff(want, b.blocks()); d != "" || b.Pending != 4 || b.Statuses.Healthy != 2 || b.Statuses.Disabled != 1 || b.Statuses.Paused != 1 {
			t.Errorf("%+v (-want +got):\n%s", b, d)
		}
		if b.Oldest == nil || b.Blocked[0].Oldest == nil || *b.Oldest != *b.Blocked[0].Oldest {
			t.Errorf("oldest: %+v", b)
		}
	})
	t.Run("is empty where nothing waits", func(t *testing.T) {
		if b := f.backlog(t, bearer(quiet), ""); b.Pending != 0 || b.Oldest != nil || b.Blocked == nil || len(b.Blocked) != 0 {
			t.Errorf("%+v", b)
		}
	})
	t.Run("has all organizations for an operator", func(t *testing.T) {
		b := f.backlog(t, operator, "?organization=all")
		if d := cmp.Diff(map[string][2]int{"": {2, 3}, "paused": {1, 2}}, b.blocks()); d != "" || b.Pending != 5 || b.Statuses.Healthy != 3 {
			t.Errorf("%+v (-want +got):\n%s", b, d)
		}
		f.do(t, call{"GET /api/v1/webhooks/backlog/?organization=all", as, "", nil}).want(t, 403, "permission_denied")
		f.do(t, call{"GET /api/v1/webhooks/backlog/?organization=acme", operator, "", nil}).want(t, 400, "invalid_parameter")
		f.do(t, call{"GET /api/v1/webhooks/backlog/?status=failing", operator, "", nil}).want(t, 400, "unknown_parameter")
	})
	t.Run("says that the plan or an operator blocks what nothing else blocks", func(t *testing.T) {
		f.do(t, call{"POST /api/v1/queue/hold/", operator, "", nil}).want(t, 200, "")
		if d := cmp.Diff(map[string][2]int{"queue_held": {1, 2}, "paused": {1, 2}}, f.backlog(t, as, "").blocks()); d != "" {
			t.Errorf("held (-want +got):\n%s", d)
		}
		f.move(t, owner.Organization.ID, "free")
		if d := cmp.Diff(map[string][2]int{"plan": {1, 2}, "paused": {1, 2}}, f.backlog(t, as, "").blocks()); d != "" {
			t.Errorf("without webhooks (-want +got):\n%s", d)
		}
	})
}
