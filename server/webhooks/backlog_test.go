package webhooks_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
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

func readBacklog(t *testing.T, f *servertest.Fixture, as, query string) (b backlogOf) {
	t.Helper()
	got := f.Do(t, "GET /api/v1/webhooks/backlog/"+query, as, "").Want(t, 200, "")
	if err := json.Unmarshal([]byte(got.Text), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	_, quiet := storagetest.Organization(t, f.Store, "quiet", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	storagetest.Subscription(t, f.Store, owner, "https://a.example.com/", "a")
	paused, _ := storagetest.Subscription(t, f.Store, owner, "https://b.example.com/", "b")
	storagetest.Subscription(t, f.Store, owner, "https://c.example.com/", "never.happens")
	gone, _ := storagetest.Subscription(t, f.Store, owner, "https://d.example.com/", "a")
	storagetest.Subscription(t, f.Store, other, "https://e.example.com/", "a")
	f.Do(t, "PATCH /api/v1/webhooks/subscriptions/"+paused.ID+"/", as, `{"is_active":false}`).Want(t, 200, "")
	for _, eventType := range []string{"a", "b", "b", "a"} {
		storagetest.Publish(t, f.Store, owner, eventType)
		time.Sleep(2 * time.Millisecond) // no two are due at the same time
	}
	storagetest.Publish(t, f.Store, other, "a")
	f.Do(t, "DELETE /api/v1/webhooks/subscriptions/"+gone.ID+"/", as, "").Want(t, 204, "")

	t.Run("counts what waits by what blocks it, in one organization", func(t *testing.T) {
		b := readBacklog(t, f, as, "")
		want := map[string][2]int{"": {1, 2}, "paused": {1, 2}}
		if d := cmp.Diff(want, b.blocks()); d != "" || b.Pending != 4 || b.Statuses.Healthy != 2 || b.Statuses.Disabled != 1 || b.Statuses.Paused != 1 {
			t.Errorf("%+v (-want +got):\n%s", b, d)
		}
		if b.Oldest == nil || b.Blocked[0].Oldest == nil || *b.Oldest != *b.Blocked[0].Oldest {
			t.Errorf("oldest: %+v", b)
		}
		for query, want := range map[string]string{
			"pending=true": "b a", "pending=false": "c", "": "c b a", "pending=true&paused=true": "b", "pending=true&organization=all": "e b a",
		} {
			who := as
			if strings.Contains(query, "all") {
				who = servertest.Operator
			}
			urls := f.All(t, who, "/api/v1/webhooks/subscriptions/?"+query, "url", 1)
			if got := strings.NewReplacer("https://", "", ".example.com/", "").Replace(strings.Join(urls, " ")); got != want {
				t.Errorf("the list with %q has %s, want %s", query, got, want)
			}
		}
	})
	t.Run("is empty where nothing waits", func(t *testing.T) {
		if b := readBacklog(t, f, servertest.Bearer(quiet), ""); b.Pending != 0 || b.Oldest != nil || b.Blocked == nil || len(b.Blocked) != 0 {
			t.Errorf("%+v", b)
		}
	})
	t.Run("has all organizations for an operator", func(t *testing.T) {
		b := readBacklog(t, f, servertest.Operator, "?organization=all")
		if d := cmp.Diff(map[string][2]int{"": {2, 3}, "paused": {1, 2}}, b.blocks()); d != "" || b.Pending != 5 || b.Statuses.Healthy != 3 {
			t.Errorf("%+v (-want +got):\n%s", b, d)
		}
		f.Do(t, "GET /api/v1/webhooks/backlog/?organization=all", as, "").Want(t, 403, "permission_denied")
		f.Do(t, "GET /api/v1/webhooks/backlog/?organization=acme", servertest.Operator, "").Want(t, 400, "invalid_parameter")
		f.Do(t, "GET /api/v1/webhooks/backlog/?status=failing", servertest.Operator, "").Want(t, 400, "unknown_parameter")
	})
	t.Run("says that the plan or an operator blocks what nothing else blocks", func(t *testing.T) {
		f.Do(t, "POST /api/v1/queue/hold/", servertest.Operator, "").Want(t, 200, "")
		if d := cmp.Diff(map[string][2]int{"queue_held": {1, 2}, "paused": {1, 2}}, readBacklog(t, f, as, "").blocks()); d != "" {
			t.Errorf("held (-want +got):\n%s", d)
		}
		f.Move(t, owner.Organization.ID, "free")
		if d := cmp.Diff(map[string][2]int{"plan": {1, 2}, "paused": {1, 2}}, readBacklog(t, f, as, "").blocks()); d != "" {
			t.Errorf("without webhooks (-want +got):\n%s", d)
		}
	})
}
