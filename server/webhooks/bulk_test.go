package webhooks_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestSendingAListAgain(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	other, otherToken := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	_, reader := storagetest.Key(t, f.Store, owner, access.WebhooksRead, access.EventsRead)
	_, writer := storagetest.Key(t, f.Store, owner, access.WebhooksWrite)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.*")
	foreign, _ := storagetest.Subscription(t, f.Store, other, "https://example.com/", "user.*")
	f.Attempted(t, owner, sub, 2) // one is delivered, one waits after a failure
	f.Attempted(t, other, foreign, 2)
	const period = `,"since":"2020-01-01T00:00:00Z"}`
	known := map[string]string{
		"as": servertest.Bearer(token), "other": servertest.Bearer(otherToken), "reader": servertest.APIKey(reader), "writer": servertest.APIKey(writer),
		"recover": "/api/v1/webhooks/recover/", "redeliver": "/api/v1/webhooks/redeliver/", "sub": "/api/v1/webhooks/subscriptions/" + sub.ID + "/", "foreign": foreign.ID,
	}
	call := func(name, line, as, body string, status int, want ...string) servertest.Scenario {
		return servertest.Scenario{Name: name, Call: servertest.NewCall(line, as, body), Status: status, Want: want, Never: servertest.NoSecret}
	}
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("a dry run sends nothing", "POST {redeliver}", `{"state":"delivered","dry_run":true`+period, 202,
			`{"events":1,"deliveries":1,"subscriptions":1,"pending":1,"blocked_by":null}`),
		servertest.OK("(one waits)", "GET {sub}", "", 200, `"pending_deliveries":1`),
		call("a key without events:read redelivers what has arrived", "POST {redeliver}", "{writer}", `{"state":"delivered"`+period, 202, `"deliveries":1,"subscriptions":1,"pending":1`),
		servertest.OK("and nothing more while it waits", "POST {redeliver}", `{"state":"delivered"`+period, 202, `"events":1,"deliveries":0,"subscriptions":1,"pending":2`),
		servertest.OK("(two wait)", "GET {sub}", "", 200, `"pending_deliveries":2`),
		servertest.OK("it is in the audit log", "GET /api/v1/audit-events/?type=webhook_subscription_replayed&limit=5", "", 200, `"only":"delivered"`, `"deliveries":1`, sub.ID),
		servertest.OK("(discarded)", "POST {sub}discard/", "", 202, `{"deliveries":2}`),
		servertest.OK("a subscription and a type select", "POST {recover}", `{"state":"dropped","event_type":"user.*","subscription_id":"`+sub.ID+`"`+period, 202,
			`{"events":2,"deliveries":1,"subscriptions":1,"pending":0,"blocked_by":null}`), // the other one has arrived
		servertest.OK("a recovery is in the audit log", "GET /api/v1/audit-events/?type=webhook_subscription_recovered&limit=1", "", 200, `"since":"2020-01-01T00:00:00.000Z"`, `"deliveries":1`),
		servertest.OK("another type selects nothing", "POST {recover}", `{"state":"dropped","event_type":"order.paid"`+period, 202, `"events":0,"deliveries":0,"subscriptions":0,"pending":0`),
		call("each organization has its own list", "POST {redeliver}", "{other}", `{"state":"dropped"`+period, 202, `"events":0,"deliveries":0`),
	})
	f.Run(t, known, []servertest.Scenario{
		servertest.Bad("what is pending is sent anyway", "POST {recover}", `{"state":"pending"`+period, 422, "", `"field":"state","code":"invalid"`),
		servertest.Bad("what has no delivery needs a replay", "POST {redeliver}", `{"state":"nobody"`+period, 422, "", `"field":"state","code":"invalid"`),
		servertest.Bad("what has arrived needs no recovery", "POST {recover}", `{"state":"delivered"`+period, 422, "", `"field":"state","code":"invalid"`),
		servertest.Bad("what expires needs a recovery", "POST {redeliver}", `{"state":"expired"`+period, 422, "", `"field":"state","code":"invalid"`),
		servertest.OK("(which takes it)", "POST {recover}", `{"state":"expired"`+period, 202, `"events":0`),
		servertest.Bad("an unknown state is refused", "POST {recover}", `{"state":"lost"`+period, 422, "", "exhausted, dropped, expired"),
		servertest.Bad("a state and a time are required", "POST {recover}", `{}`, 422, "", `"field":"state","code":"missing"`, `"field":"since","code":"missing"`),
		servertest.Bad("all problems are told", "POST {redeliver}", `{"state":"exhausted","since":"2120-01-01T00:00:00Z","event_type":"*","subscription_id":"","only":"all"}`, 422, "",
			`"field":"since","code":"in_the_future"`, `"field":"event_type","code":"invalid"`, `"field":"subscription_id","code":"invalid"`, `"field":"only","code":"unknown_field"`),
		servertest.Bad("the end comes after the start", "POST {redeliver}", `{"state":"exhausted","until":"2020-01-01T00:00:00Z"`+period, 422, "", `"field":"until","code":"out_of_range"`),
		servertest.Bad("another organization's subscription is not found", "POST {recover}", `{"state":"exhausted","subscription_id":"{foreign}"`+period, 404, "not_found"),
		call("a recovery needs the permission", "POST {recover}", "{reader}", `{"state":"exhausted"`+period, 403),
		call("a redelivery needs the permission", "POST {redeliver}", "{reader}", `{"state":"exhausted"`+period, 403),
	})
	f.Move(t, owner.Organization.ID, "free")
	f.Run(t, known, []servertest.Scenario{
		servertest.Bad("a recovery needs the plan", "POST {recover}", `{"state":"exhausted"`+period, 403, "plan_capability_required"),
		servertest.Bad("a dry run needs it, too", "POST {redeliver}", `{"state":"exhausted","dry_run":true,"subscription_id":"`+sub.ID+`"`+period, 403, "plan_capability_required"),
	})
}

// TestAListWithAuditEvents has an exhausted audit event, which a caller needs audit:read for.
func TestAListWithAuditEvents(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	_, writer := storagetest.Key(t, f.Store, owner, access.WebhooksWrite) // the audit event
	storagetest.Publish(t, f.Store, owner, "user.created")
	storagetest.Exec(t, f.Store, "UPDATE deliveries SET state = 2")
	const path, body = "POST /api/v1/webhooks/recover/", `{"state":"exhausted","since":"2020-01-01T00:00:00Z","dry_run":true`
	for _, tt := range []struct{ as, end, want string }{
		{servertest.Bearer(token), `}`, `{"events":2,"deliveries":2`},
		{servertest.Bearer(token), `,"audit_events":false}`, `{"events":1,"deliveries":1`},
		{servertest.APIKey(writer), `,"audit_events":true}`, `{"events":1,"deliveries":1`},
	} {
		if got := f.Do(t, path, tt.as, body+tt.end).Want(t, 202, ""); !strings.Contains(got.Text, tt.want) {
			t.Errorf("%s: %s, want %s", tt.end, got.Text, tt.want)
		}
	}
}
