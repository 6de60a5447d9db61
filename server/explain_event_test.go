package server_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// arrival is one way of an event: arrange makes it and returns the event and the subscription.
type arrival struct {
	arrange func(t *testing.T, e *engine) (event, sub string)
	verdict explain.Verdict
	detail  string // a part of the detail
	advice  string // the advice, with SUB for the subscription; empty means null
	isTimed bool   // there is a time of the next attempt
	tries   int
}

// broken makes a subscription whose deliveries fail, and publishes n events.
func broken(t *testing.T, e *engine, n int) (event, sub string) {
	t.Helper()
	sub = e.subscribe(t, "bad.example", "fails")
	for range n {
		event = e.publish(t, "order.paid")
	}
	return event, sub
}

var arrivals = map[string]arrival{
	"an event that the receiver accepted": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok")
			return e.publish(t, "order.paid"), sub
		}, explain.Delivered, "the receiver answered attempt 1 with 200", "", false, 1,
	},
	"an attempt that takes long": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "slow.example", "hangs")
			return e.publish(t, "order.paid"), sub
		}, explain.Sending, "Attempt 1 began at ", "", false, 1,
	},
	"a retry to come": {
		func(t *testing.T, e *engine) (string, string) { return broken(t, e, 1) },
		explain.Scheduled, "http_status: 500", "", true, 1,
	},
	"an event behind a failing receiver": {
		func(t *testing.T, e *engine) (string, string) { return broken(t, e, 5) },
		explain.WaitingForProbe, "after 4 failures in a row. The last error: http_status: 500", "keyhook subscriptions recover SUB", true, 0,
	},
	"an event behind a rate limit": {
		func(t *testing.T, e *engine) (event, sub string) {
			sub = e.subscribe(t, "good.example", "ok")
			e.patch(t, sub, `{"rate_limit_per_second":1}`)
			for range 9 {
				event = storagetest.Publish(t, e.Store, e.owner, "order.paid").ID
			}
			return event, sub
		}, explain.WaitingForPace, "at most 1 requests a second", "keyhook subscriptions update SUB --rate-limit-per-second 2", false, 0,
	},
	"a receiver that failed too often": {
		func(t *testing.T, e *engine) (event, sub string) {
			_, sub = broken(t, e, 4)
			pass(time.Hour)
			return e.publish(t, "order.paid"), sub
		}, explain.HeldDisabled, "after 6 failures in a row. The last error: http_status: 500", "keyhook subscriptions recover SUB", false, 0,
	},
	"a subscription that somebody has paused": {
		func(t *testing.T, e *engine) (event, sub string) {
			event, sub = broken(t, e, 1)
			e.patch(t, sub, `{"is_active":false}`)
			return event, sub
		}, explain.HeldPaused, " by acme-owner. The delivery waits until the subscription is resumed.", "keyhook subscriptions reactivate SUB", false, 1,
	},
	"an event that was published in a pause": {
		func(t *testing.T, e *engine) (event, sub string) {
			sub = e.subscribe(t, "good.example", "ok")
			e.patch(t, sub, `{"is_active":false}`)
			return e.publish(t, "order.paid"), sub
		}, explain.HeldPaused, "Keyhook keeps it until ", "keyhook subscriptions reactivate SUB", false, 0,
	},
	"a held queue": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok")
			e.operate(t, "POST /api/v1/queue/hold/", `{"reason":"restored a backup"}`)
			return e.publish(t, "order.paid"), sub
		}, explain.HeldQueue, "restored a backup", "keyhook queue release", false, 0,
	},
	"a plan that lost its webhooks": {
		func(t *testing.T, e *engine) (string, string) {
			event, sub := broken(t, e, 1)
			e.setPlan(t, "free")
			return event, sub
		}, explain.BlockedByPlan, "The plan free has no webhooks", "keyhook organizations update ORG --plan growth", false, 1,
	},
	"a delivery without attempts left": {
		func(t *testing.T, e *engine) (string, string) {
			event, sub := broken(t, e, 1)
			pass(time.Hour)
			return event, sub
		}, explain.Exhausted, "Attempt 3 failed at ", "keyhook subscriptions replay SUB --since AT --only failed", false, 3,
	},
	"a subscription that was deleted": {
		func(t *testing.T, e *engine) (string, string) {
			event, sub := broken(t, e, 1)
			e.Do(t, "DELETE /api/v1/webhooks/subscriptions/"+sub+"/", e.token, "").Want(t, 204, "")
			return event, sub
		}, explain.Dropped, "The subscription was deleted at ", "", false, 1,
	},
	"a delivery that was discarded": {
		func(t *testing.T, e *engine) (string, string) {
			event, sub := broken(t, e, 1)
			e.operate(t, "POST /api/v1/queue/hold/", `{}`)
			e.operate(t, "POST /api/v1/queue/discard/", "")
			return event, sub
		}, explain.Dropped, "discarded", "keyhook deliveries redeliver SUB ATTEMPT", false, 1,
	},
	"a delivery that was discarded before its subscription became a feed": {
		func(t *testing.T, e *engine) (string, string) {
			event, sub := broken(t, e, 1)
			e.Do(t, "POST /api/v1/webhooks/subscriptions/"+sub+"/discard/", e.token, "").Want(t, 202, "")
			e.patch(t, sub, `{"url":null}`)
			return event, sub
		}, explain.Dropped, "discarded", "", false, 1,
	},
	"an event of a feed that has a URL now": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok")
			e.patch(t, sub, `{"url":null}`)
			event := e.publish(t, "order.paid")
			e.patch(t, sub, `{"url":"https://good.example/hook"}`)
			return event, sub
		}, explain.NotWanted, ", or it had no URL", "keyhook subscriptions replay SUB --since AT --only missed", false, 0,
	},
	"a delivery older than the retention": {
		func(t *testing.T, e *engine) (string, string) {
			event, sub := broken(t, e, 1)
			e.patch(t, sub, `{"is_active":false}`)
			pass(kept - 2*time.Second + time.Millisecond)
			return event, sub
		}, explain.Expired, "longer than storage.retention_events", "", false, 1,
	},
	"a type that the subscription does not want": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok", "user.*")
			return e.publish(t, "order.paid"), sub
		}, explain.NotWanted, "wants user.*, but not order.paid", "keyhook subscriptions update SUB --event-types 'user.*,order.paid'", false, 0,
	},
	"a type that was added later": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok", "user.*")
			event := e.publish(t, "order.paid")
			e.patch(t, sub, `{"event_types":[]}`)
			return event, sub
		}, explain.NotWanted, "but it did not when the event was published", "keyhook subscriptions replay SUB --since AT --only missed", false, 0,
	},
	"a subscription that is younger than the event": {
		func(t *testing.T, e *engine) (string, string) {
			event := e.publish(t, "order.paid")
			return event, e.subscribe(t, "good.example", "ok")
		}, explain.CreatedLater, "after the event of ", "", false, 0,
	},
	"a plan that had no webhooks then": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok")
			e.setPlan(t, "free")
			event := e.publish(t, "order.paid")
			e.setPlan(t, "growth")
			e.patch(t, sub, `{"description":"changed later"}`)
			return event, sub
		}, explain.PlanLackedWebhooks, "The plan growth has webhooks now", "keyhook subscriptions replay SUB --since AT --only missed", false, 0,
	},
	"a plan that had no webhooks and has none": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok")
			e.setPlan(t, "free")
			return e.publish(t, "order.paid"), sub
		}, explain.PlanLackedWebhooks, "The plan free has no webhooks.", "keyhook organizations update ORG --plan growth", false, 0,
	},
	"an event about the subscription": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "good.example", "ok")
			e.patch(t, sub, `{"description":"changed"}`)
			return newest(t, e, access.SubscriptionUpdated), sub
		}, explain.AboutItself, "about this subscription", "", false, 0,
	},
	"news about the health of a subscription at the same host": {
		func(t *testing.T, e *engine) (string, string) {
			sub := e.subscribe(t, "bad.example", "ok")
			broken(t, e, 5)
			return newest(t, e, access.SubscriptionFailing), sub
		}, explain.AboutItself, "This subscription has the same host, bad.example", "", false, 0,
	},
}

// kept is how long the engine keeps events.
const kept = 2 * time.Hour

// newest returns the newest event of a type.
func newest(t *testing.T, e *engine, eventType string) string {
	t.Helper()
	r := e.Do(t, "GET /api/v1/events/?limit=1&type="+eventType, servertest.Operator, "", "X-Organization-Id", e.owner.Organization.ID).Want(t, 200, "")
	_, rest, _ := strings.Cut(r.Text, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// stateOf has the state of the delivery for each verdict that says it.
var stateOf = map[explain.Verdict]string{
	explain.Delivered: "delivered", explain.Scheduled: "pending", explain.WaitingForProbe: "pending", explain.WaitingForPace: "pending", explain.Sending: "pending",
	explain.HeldDisabled: "pending", explain.HeldPaused: "pending", explain.HeldQueue: "pending", explain.BlockedByPlan: "pending", explain.Exhausted: "exhausted",
}

func TestExplainEvent(t *testing.T) {
	t.Parallel()
	for name, tt := range arrivals {
		t.Run("of "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(o *storage.Options) { o.Policy, o.KeepEvents = policy, kept })
				event, sub := tt.arrange(t, e)
				x := e.explain(t, event, sub)
				advice := x.advice()
				if before, rest, found := strings.Cut(advice, "--since "); found {
					at, after, _ := strings.Cut(rest, " ")
					if _, err := time.Parse(time.RFC3339, at); err != nil {
						t.Errorf("advice %s: %v", advice, err)
					}
					advice = before + "--since AT " + after
				}
				advice = strings.NewReplacer(sub, "SUB", e.owner.Organization.ID, "ORG").Replace(advice)
				if head, _, found := strings.Cut(advice, " att_"); found {
					advice = head + " ATTEMPT"
				}
				if x.Verdict != string(tt.verdict) || advice != tt.advice || !strings.Contains(x.Detail, tt.detail) ||
					(x.NextAttemptAt != nil) != tt.isTimed || x.Attempts != tt.tries {
					t.Errorf("explained as %+v\nadvice %q, want %q", x, advice, tt.advice)
				}
				if (x.Action == nil) != (x.Advice == nil) {
					t.Errorf("the action is %v with the advice %q", x.Action, x.advice())
				}
				if got, want := e.states(t, event), stateOf[tt.verdict]; len(got) > 1 || want != "" && !slices.Equal(got, []string{want}) {
					t.Errorf("the list of events counts %v, want %s", got, want)
				}
				if all := e.explainAll(t, event); all[sub].Verdict != x.Verdict {
					t.Errorf("in the list, it is %q", all[sub].Verdict)
				}
			})
		})
	}
}

func TestExplainEventOfCallers(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.Store, "other", "enterprise", access.RoleOwner)
	_, writer := storagetest.Key(t, f.Store, owner, access.EventsWrite)
	_, reader := storagetest.Key(t, f.Store, owner, access.EventsRead)
	first, _ := storagetest.Subscription(t, f.Store, owner, "https://hooks.example.com/secret-path", "order.paid")
	second, _ := storagetest.Subscription(t, f.Store, owner, "https://example.org:8443/", "user.*")
	published := storagetest.Publish(t, f.Store, owner, "order.paid")
	list := f.Do(t, "GET /api/v1/events/?limit=1&type="+access.SubscriptionCreated, servertest.Bearer(token), "").Want(t, 200, "")
	_, rest, _ := strings.Cut(list.Text, `"id":"`)
	auditEvent, _, _ := strings.Cut(rest, `"`)
	known := map[string]string{
		"as": servertest.Bearer(token), "event": "/api/v1/events/" + published.ID + "/explain/", "audit": "/api/v1/events/" + auditEvent + "/explain/",
		"reader": servertest.APIKey(reader), "writer": servertest.APIKey(writer), "stranger": servertest.Bearer(stranger), "first": first.ID, "second": second.ID,
	}
	foreign := []string{"X-Organization-Id", owner.Organization.ID}
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("is explained for each subscription, newest first", "GET {event}", "", 200, `{"data":[{"subscription_id":"`+second.ID+`","url_host":"example.org:8443","verdict":"not_wanted"`,
			`{"subscription_id":"`+first.ID+`","url_host":"hooks.example.com","verdict":"scheduled"`, `"has_more":false,"next_cursor":null,"notice":null}`),
		servertest.OK("is explained for one subscription", "GET {event}?subscription_id={first}", "", 200, `{"data":[{"subscription_id":"`+first.ID),
		servertest.OK("is explained in pages", "GET {event}?limit=1", "", 200, `"subscription_id":"`+second.ID, `"has_more":true,"next_cursor":"`),
		{Name: "is explained to readers of events", Call: servertest.NewCall("GET {event}", "{reader}", ""), Status: 200, Want: []string{`"verdict":"scheduled"`}, Never: []string{"secret-path"}},
		{Name: "names the organization in commands for those who act for it", Call: servertest.NewCall("GET {event}", servertest.Operator, "", foreign...), Status: 200, Want: []string{" --event-types 'user.*,order.paid' --organization " + owner.Organization.ID}, Never: servertest.NoSecret},
		{Name: "is not explained to others", Call: servertest.NewCall("GET {event}", "{writer}", ""), Status: 403, Code: "permission_denied", Never: servertest.NoSecret},
		{Name: "of another organization does not exist", Call: servertest.NewCall("GET {event}", "{stranger}", ""), Status: 404, Code: "not_found", Never: servertest.NoSecret},
		servertest.OK("of the audit log is explained to those who may read it", "GET {audit}?subscription_id={second}", "", 200, `"verdict":"about_itself"`),
		{Name: "of the audit log does not exist for others", Call: servertest.NewCall("GET {audit}", "{reader}", ""), Status: 404, Code: "not_found", Never: servertest.NoSecret},
		servertest.Bad("needs the id or the external id of a subscription", "GET {event}?subscription_id=key_"+servertest.SomeID, "", 400, "invalid_parameter"),
		servertest.Bad("knows no other external id", "GET {event}?subscription_id=nobody", "", 404, "not_found", "There is no such subscription"),
		servertest.Bad("needs a subscription that exists", "GET {event}?subscription_id=sub_01h455vb4pex5vsknk084sn02q", "", 404, "not_found"),
		servertest.Bad("needs an event that exists", "GET /api/v1/events/evt_01h455vb4pex5vsknk084sn02q/explain/", "", 404, "not_found"),
		servertest.Bad("needs the id of an event", "GET /api/v1/events/1/explain/?limit=x", "", 404, "not_found"),
		servertest.Bad("takes no other parameter", "GET {event}?verdict=delivered", "", 400, "unknown_parameter"),
	})
}
