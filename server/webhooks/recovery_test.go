package webhooks_test

import (
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestRecoverAndDiscard(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	_, reader := storagetest.Key(t, f.Store, owner, access.WebhooksRead)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.*")
	foreign, _ := storagetest.Subscription(t, f.Store, other, "https://example.com/")
	f.Attempted(t, owner, sub, 2) // one is delivered, one waits after a failure
	found, err := f.Store.History.Subscription(t.Context(), owner.Organization.RowID, sub.ID)
	if err != nil || found.FailingSince == 0 {
		t.Fatalf("%+v, error %v", found, err)
	}
	since := `"` + string(webhook.AppendTime(nil, found.FailingSince)) + `"`
	known := map[string]string{
		"as": servertest.Bearer(token), "sub": "/api/v1/webhooks/subscriptions/" + sub.ID + "/", "reader": servertest.APIKey(reader), "org": owner.Organization.ID,
		"foreign": "/api/v1/webhooks/subscriptions/" + foreign.ID + "/",
	}
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("(failing since)", "GET {sub}", "", 200, `"failing_since":`+since),
		servertest.OK("(paused)", "PATCH {sub}", `{"is_active":false}`, 200, `"failing_since":`+since),
		servertest.OK("events of a paused subscription wait", "POST "+eventPath, `{"type":"user.created","data":{}}`, 202, `"deliveries":1,"held":1,"notice":null}`),
		servertest.OK("events of a batch wait", "POST "+eventPath+"batch/", `{"events":[{"type":"user.created","data":{}},{"type":"a","data":{}}]}`, 202,
			`"deliveries":1,"held":1,"notice":null}`, `"deliveries":0,"held":0,"notice":"no_subscription"}`),
		servertest.Bad("a recovery does not activate what a person has paused", "POST {sub}recover/", "", 409, "paused", "only a recovery with"),
		servertest.Bad("a dry run of it is refused, too", "POST {sub}recover/", `{"dry_run":true,"activate":false}`, 409, "paused"),
		servertest.OK("a dry run changes nothing", "POST {sub}recover/", `{"dry_run":true,"activate":true}`, 202, `{"deliveries":0,"pending":3,"since":`+since+`,"blocked_by":null}`),
		servertest.OK("(still paused)", "GET {sub}", "", 200, `"status":"disabled"`, `"pending_deliveries":3`),
		servertest.OK("a recovery with activate activates it", "POST {sub}recover/", `{"activate":true}`, 202, `{"deliveries":0,"pending":3,"since":`+since+`,"blocked_by":null}`),
		servertest.OK("(active)", "GET {sub}", "", 200, `"status":"healthy"`, `"pending_deliveries":3`, `"failing_since":null`),
		servertest.OK("a recovery needs no body", "POST {sub}recover/", "", 202, `{"deliveries":0,"pending":3,"since":`),
		servertest.OK("a recovery takes a time", "POST {sub}recover/", `{"since":"2020-01-01T00:00:00Z"}`, 202, `{"deliveries":0,"pending":3,"since":"2020-01-01T00:00:00.000Z","blocked_by":null}`),
		servertest.OK("a recovery is in the audit log", "GET /api/v1/audit-events/?type=webhook_subscription_recovered&limit=1", "", 200,
			`"since":"2020-01-01T00:00:00.000Z"`, `"deliveries":0`, `"pending":3`, `"name":"acme-owner"`),
		servertest.Bad("a recovery of the future is refused", "POST {sub}recover/", `{"since":"2120-01-01T00:00:00Z"}`, 422, "", `"field":"since","code":"in_the_future"`),
		servertest.Bad("unknown fields are refused", "POST {sub}recover/", `{"until":"2120-01-01T00:00:00Z"}`, 422, "", `"field":"until","code":"unknown_field"`),
		servertest.Bad("another organization's subscription is not found", "POST {foreign}recover/", "", 404, "not_found"),
		servertest.Bad("another organization's deliveries are not discarded", "POST {foreign}discard/", "", 404, "not_found"),
		{Name: "a recovery needs the permission", Call: servertest.NewCall("POST {sub}recover/", "{reader}", ""), Status: 403, Code: "permission_denied", Never: servertest.NoSecret},
		{Name: "a discard needs the permission", Call: servertest.NewCall("POST {sub}discard/", "{reader}", ""), Status: 403, Code: "permission_denied", Never: servertest.NoSecret},
		servertest.OK("a discard may leave later events", "POST {sub}discard/", `{"before":"2020-01-01T00:00:00Z"}`, 202, `{"deliveries":0}`),
		servertest.OK("a discard drops what is pending", "POST {sub}discard/", "", 202, `{"deliveries":3}`),
		servertest.OK("(nothing is pending)", "GET {sub}", "", 200, `"pending_deliveries":0`),
		servertest.OK("a discard is in the audit log", "GET /api/v1/audit-events/?type=webhook_subscription_discarded&limit=1", "", 200, `"deliveries":3`, `"complete":true`),
	})
	f.Move(t, owner.Organization.ID, "free")
	f.Run(t, known, []servertest.Scenario{
		servertest.Bad("a recovery needs the plan", "POST {sub}recover/", "", 403, "plan_capability_required"),
		servertest.OK("a discard does not", "POST {sub}discard/", "", 202, `{"deliveries":0}`),
		servertest.OK("publishing says that the plan has no webhooks", "POST "+eventPath, `{"type":"user.created","data":{}}`, 202, `"deliveries":0,"held":0,"notice":"plan_capability_required"}`),
	})
}
