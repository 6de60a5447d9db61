package server_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestRecoverAndDiscard(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
	_, reader := storagetest.Key(t, f.store, owner, access.WebhooksRead)
	sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/", "user.*")
	foreign, _ := storagetest.Subscription(t, f.store, other, "https://example.com/")
	attempted(t, f, owner, sub, 2) // one is delivered, one waits after a failure
	found, err := f.store.History.Subscription(t.Context(), owner.Organization.RowID, sub.ID)
	if err != nil || found.FailingSince == 0 {
		t.Fatalf("%+v, error %v", found, err)
	}
	since := `"` + string(webhook.AppendTime(nil, found.FailingSince)) + `"`
	known := map[string]string{
		"as": bearer(token), "sub": "/api/v1/webhooks/subscriptions/" + sub.ID + "/", "reader": apiKey(reader), "org": owner.Organization.ID,
		"foreign": "/api/v1/webhooks/subscriptions/" + foreign.ID + "/",
	}
	f.run(t, known, []scenario{
		ok("(failing since)", "GET {sub}", "", 200, `"failing_since":`+since),
		ok("(paused)", "PATCH {sub}", `{"is_active":false}`, 200, `"failing_since":`+since),
		ok("events of a paused subscription wait", "POST "+eventPath, `{"type":"user.created","data":{}}`, 202, `"deliveries":1,"held":1,"notice":null}`),
		ok("events of a batch wait", "POST "+eventPath+"batch/", `{"events":[{"type":"user.created","data":{}},{"type":"a","data":{}}]}`, 202,
			`"deliveries":1,"held":1,"notice":null}`, `"deliveries":0,"held":0,"notice":"no_subscription"}`),
		bad("a recovery does not activate what a person has paused", "POST {sub}recover/", "", 409, "paused", `keyhook subscriptions recover --activate`),
		bad("a dry run of it is refused, too", "POST {sub}recover/", `{"dry_run":true,"activate":false}`, 409, "paused"),
		ok("a dry run changes nothing", "POST {sub}recover/", `{"dry_run":true,"activate":true}`, 202, `{"deliveries":0,"pending":3,"since":`+since+`,"blocked_by":null}`),
		ok("(still paused)", "GET {sub}", "", 200, `"status":"disabled"`, `"pending_deliveries":3`),
		ok("a recovery with activate activates it", "POST {sub}recover/", `{"activate":true}`, 202, `{"deliveries":0,"pending":3,"since":`+since+`,"blocked_by":null}`),
		ok("(active)", "GET {sub}", "", 200, `"status":"healthy"`, `"pending_deliveries":3`, `"failing_since":null`),
		ok("a recovery needs no body", "POST {sub}recover/", "", 202, `{"deliveries":0,"pending":3,"since":`),
		ok("a recovery takes a time", "POST {sub}recover/", `{"since":"2020-01-01T00:00:00Z"}`, 202, `{"deliveries":0,"pending":3,"since":"2020-01-01T00:00:00.000Z","blocked_by":null}`),
		ok("a recovery is in the audit log", "GET /api/v1/audit-events/?type=webhook_subscription_recovered&limit=1", "", 200,
			`"since":"2020-01-01T00:00:00.000Z"`, `"deliveries":0`, `"pending":3`, `"name":"acme-owner"`),
		bad("a recovery of the future is refused", "POST {sub}recover/", `{"since":"2120-01-01T00:00:00Z"}`, 422, "", `"field":"since","code":"in_the_future"`),
		bad("unknown fields are refused", "POST {sub}recover/", `{"until":"2120-01-01T00:00:00Z"}`, 422, "", `"field":"until","code":"unknown_field"`),
		bad("another organization's subscription is not found", "POST {foreign}recover/", "", 404, "not_found"),
		bad("another organization's deliveries are not discarded", "POST {foreign}discard/", "", 404, "not_found"),
		{"a recovery needs the permission", call{"POST {sub}recover/", "{reader}", "", nil}, 403, "permission_denied", nil, noSecret},
		{"a discard needs the permission", call{"POST {sub}discard/", "{reader}", "", nil}, 403, "permission_denied", nil, noSecret},
		ok("a discard may leave later events", "POST {sub}discard/", `{"before":"2020-01-01T00:00:00Z"}`, 202, `{"deliveries":0}`),
		ok("a discard drops what is pending", "POST {sub}discard/", "", 202, `{"deliveries":3}`),
		ok("(nothing is pending)", "GET {sub}", "", 200, `"pending_deliveries":0`),
		ok("a discard is in the audit log", "GET /api/v1/audit-events/?type=webhook_subscription_discarded&limit=1", "", 200, `"deliveries":3`, `"complete":true`),
	})
	f.move(t, owner.Organization.ID, "free")
	f.run(t, known, []scenario{
		bad("a recovery needs the plan", "POST {sub}recover/", "", 403, "plan_capability_required"),
		ok("a discard does not", "POST {sub}discard/", "", 202, `{"deliveries":0}`),
		ok("publishing says that the plan has no webhooks", "POST "+eventPath, `{"type":"user.created","data":{}}`, 202, `"deliveries":0,"held":0,"notice":"plan_capability_required"}`),
	})
}
