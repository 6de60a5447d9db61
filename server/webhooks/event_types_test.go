package webhooks_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
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

func TestCatalogue(t *testing.T) {
	t.Parallel()
	var tested []string
	f := servertest.Start(t, func(o *server.Options) { o.Tester = asked{&tested} })
	owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	other, otherToken := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "order.*")
	as, path := servertest.Bearer(token), "/api/v1/event-types/"
	_, reads := storagetest.Key(t, f.Store, owner, access.WebhooksRead)
	_, writes := storagetest.Key(t, f.Store, owner, access.EventsWrite)
	narrow := servertest.APIKey(reads)
	const paid = `{"type":"order.paid","description":"An order was paid","group":"Orders","example":{"number":1.0},"schema":null,"last_seen_at":`

	t.Run("gets a type that all organizations see", func(t *testing.T) {
		body := `{"description":" An order was paid ","group":"Orders","example":{ "number" : 1.0 }}`
		made := f.Do(t, "PUT "+path+"order.paid/", servertest.Operator, body).Want(t, 201, "")
		if made.Text != paid+"null}\n" || made.Header.Get("Location") != path+"order.paid/" {
			t.Error(made.Text)
		}
		for _, body := range []string{body, `{}`, `{"schema":null}`} {
			f.Do(t, "PUT "+path+"order.paid/", servertest.Operator, body).Want(t, 200, "")
		}
		for _, as := range []string{as, servertest.Bearer(otherToken), narrow} {
			if got := f.Do(t, "GET "+path+"order.paid/", as, "").Want(t, 200, ""); got.Text != paid+"null}\n" {
				t.Error(got.Text)
			}
		}
	})
	t.Run("says when the own organization has published a type", func(t *testing.T) {
		storagetest.Publish(t, f.Store, other, "order.paid")
		storagetest.Publish(t, f.Store, other, "theirs")
		if got := f.Do(t, "GET "+path, narrow, "").Want(t, 200, ""); got.Text != `{"data":[`+paid+"null}]}\n" {
			t.Error(got.Text)
		}
		f.Do(t, "GET "+path+"theirs/", as, "").Want(t, 404, "not_found")
		f.Do(t, "GET "+path+"theirs/", servertest.Bearer(otherToken), "").Want(t, 200, "")
		if got := f.Do(t, "GET "+path+"order.paid/", servertest.Bearer(otherToken), "").Field("last_seen_at"); got == "" {
			t.Error("it was seen")
		}
		f.Do(t, "GET "+path+"api_key_created/", as, "").Want(t, 200, "")
		f.Do(t, "GET "+path+"api_key_created/", narrow, "").Want(t, 404, "not_found")
	})
	t.Run("is not for keys that read neither events nor webhooks", func(t *testing.T) {
		f.Do(t, "GET "+path, servertest.APIKey(writes), "").Want(t, 403, "permission_denied")
		f.Do(t, "PUT "+path+"order.paid/", as, `{"description":"x"}`).Want(t, 403, "permission_denied")
		f.Do(t, "DELETE "+path+"order.paid/", as, "").Want(t, 403, "permission_denied")
	})
	t.Run("refuses", func(t *testing.T) {
		long := `{"x":"` + strings.Repeat("x", 64<<10) + `"}`
		for body, want := range map[string]string{
			`{}`: "description: missing", `{"description":" "}`: "description: blank", `{"description":null}`: "description: wrong_type",
			`{"description":"x","schema":[]}`: "schema: wrong_type", `{"description":"x","schema":"{}"}`: "schema: wrong_type",
			`{"description":"x","example":1}`: "example: wrong_type", `{"description":"x","example":` + long + `}`: "example: too_long",
			`{"description":"x","schema":` + long + `}`: "schema: too_long", `{"description":"x","group":""}`: "group: blank",
			`{"description":"` + strings.Repeat("x", 501) + `"}`: "description: too_long", `{"type":"a"}`: "type: unknown_field",
		} {
			if got := f.Do(t, "PUT "+path+"new/", servertest.Operator, body).Want(t, 422, "").Fields(); len(got) != 1 || got[0] != want {
				t.Errorf("%.60s: %q, want %s", body, got, want)
			}
		}
		for name, code := range map[string]string{"api_key_created": "reserved_type", "webhook_test": "reserved_type", "Order.Paid": "validation_failed", "order.*": "validation_failed"} {
			f.Do(t, "PUT "+path+name+"/", servertest.Operator, `{"description":"x"}`).Want(t, 422, code)
		}
	})
	t.Run("gives a test its example", func(t *testing.T) {
		for body, status := range map[string]int{"": 200, `{}`: 200, `{"event_type":"order.paid"}`: 200, `{"event_type":"webhook_test"}`: 422, `{"event_type":"order.*"}`: 422} {
			f.Do(t, "POST /api/v1/webhooks/subscriptions/"+sub.ID+"/test/", as, body).Want(t, status, "")
		}
		slices.Sort(tested)
		if d := cmp.Diff([]string{"", "", "order.paid"}, tested); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("loses a type, and its subscriptions stay", func(t *testing.T) {
		f.Do(t, "DELETE "+path+"order.paid/", servertest.Operator, "").Want(t, 204, "")
		if log := f.List(t, servertest.Operator, "/api/v1/audit-events/?target=order.paid").Data; len(log) != 2 {
			t.Errorf("the audit log has %v", log)
		}
		f.Do(t, "DELETE "+path+"order.paid/", servertest.Operator, "").Want(t, 404, "not_found")
		f.Do(t, "GET "+path+"order.paid/", as, "").Want(t, 404, "not_found")
		got := f.Do(t, "POST /api/v1/events/", as, `{"type":"order.paid","data":{}}`).Want(t, 202, "")
		if !strings.Contains(got.Text, `"deliveries":1,"held":0,"notice":null`) {
			t.Error(got.Text)
		}
	})
}

// asked is a tester that notes the types of events.
type asked struct{ types *[]string }

func (a asked) Test(_ context.Context, _ int64, _, eventType string) (webhook.Attempt, error) {
	*a.types = append(*a.types, eventType)
	return webhook.Attempt{
		ID: "att_" + servertest.SomeID, SubscriptionID: "sub_" + servertest.SomeID, EventID: "evt_" + servertest.SomeID, EventType: "test", Number: 1,
		Trigger: webhook.ByTest, Outcome: webhook.Succeeded,
	}, nil
}
