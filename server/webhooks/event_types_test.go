package webhooks_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestEventTypes(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	other, otherToken := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	storagetest.Publish(t, f.Store, other, "theirs")
	for _, eventType := range []string{"b", "a", "c", "b", "c", "c"} {
		storagetest.Publish(t, f.Store, owner, eventType)
	}
	key := f.Do(t, "POST /api/v1/api-keys/", servertest.Bearer(token), `{"name":"reader","scope":"events:read"}`).Want(t, 201, "").Field("key")
	get := func(t *testing.T, as string) []string {
		t.Helper()
		got := f.Do(t, "GET /api/v1/event-types/", as, "").Want(t, 200, "")
		var body struct{ Data []struct{ Type string } }
		if err := json.Unmarshal([]byte(got.Text), &body); err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, item := range body.Data {
			names = append(names, item.Type)
		}
		return names
	}

	t.Run("are of one organization, the most frequent first", func(t *testing.T) {
		if d := cmp.Diff([]string{"c", "b", "a"}, get(t, "ApiKey "+key)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("include those of audit events only for who may read them", func(t *testing.T) {
		if got := strings.Join(get(t, servertest.Bearer(token)), " "); !strings.Contains(got, "api_key_created") {
			t.Errorf("%s", got)
		}
		if got := get(t, servertest.Bearer(otherToken)); got[len(got)-1] != "theirs" {
			t.Errorf("%s", got)
		}
	})
	t.Run("are at most 100, of the newest events", func(t *testing.T) {
		batch := make([]webhook.NewEvent, 1000)
		for i := range batch {
			batch[i] = webhook.NewEvent{Type: "many.t" + strconv.Itoa(i%101), Data: []byte("{}")}
		}
		for range 3 {
			if _, err := f.Store.Queue.PublishEvents(t.Context(), owner.Organization.RowID, batch); err != nil {
				t.Fatal(err)
			}
		}
		got := get(t, "ApiKey "+key)
		if len(got) != 100 || !strings.HasPrefix(got[99], "many.t") {
			t.Errorf("%d types: %s", len(got), got)
		}
	})
}
