package platform_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/secret/path?token=1")
	storagetest.Publish(t, f.Store, owner, "a")
	known := map[string]string{"as": servertest.Operator, "sub": sub.ID, "org": owner.Organization.ID, "owner": servertest.Bearer(token)}
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("it is listed by subscription, with only the host of each URL", "GET /api/v1/queue/", "", 200,
			`{"held":false,"held_since":null,"reason":null,"pending_deliveries":1,"pending_subscriptions":1,"pending":[{"subscription_id":"{sub}","organization_id":"{org}","organization_external_id":null,"organization_name":"acme","url_host":"example.com","pending":1,"oldest_due":"20`),
		servertest.Bad("nothing is discarded without a hold", "POST /api/v1/queue/discard/", "", 409, "queue_not_held"),
		servertest.Bad("a reason is one line of text", "POST /api/v1/queue/hold/", `{"reason":"a\nb"}`, 422, "validation_failed", `"field":"reason"`),
		servertest.Bad("there is no other field", "POST /api/v1/queue/hold/", `{"why":"a"}`, 422, "validation_failed", "unknown_field"),
		servertest.OK("it is held, for a reason", "POST /api/v1/queue/hold/", `{"reason":" a leak "}`, 200, `"held":true,"held_since":"20`, `"reason":"a leak"`),
		servertest.OK("a second hold keeps the first reason", "POST /api/v1/queue/hold/", "", 200, `"reason":"a leak"`),
		{Name: "a recovery says that nothing is sent", Call: servertest.NewCall("POST /api/v1/webhooks/subscriptions/{sub}/recover/", "{owner}", ""), Status: 202, Want: []string{`"blocked_by":"queue_held"`}, Never: servertest.NoSecret},
		servertest.OK("it is released, with the number of deliveries", "POST /api/v1/queue/release/", "", 200, `"held":false`, `"released":1`),
		servertest.OK("a second release changes nothing", "POST /api/v1/queue/release/", "", 200, `"held":false`, `"released":0`),
		servertest.OK("it is held without a reason", "POST /api/v1/queue/hold/", "", 200, `"held":true`, `"reason":null`),
		servertest.OK("it is discarded, with the number of deliveries", "POST /api/v1/queue/discard/", "", 200,
			`"held":false`, `"dropped":1`, `"pending_deliveries":0`, `"pending":[]`),
		servertest.OK("every change is in the audit log", "GET /api/v1/audit-events/?limit=4", "", 200,
			`"type":"queue_discarded"`, `"details":{"dropped":1,"held_since":"20`, `"type":"queue_held"`, `"type":"queue_released"`, `"reason":"a leak"`),
	})
}

func TestReadyWhileHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Build(t)
		f.Do(t, "POST /api/v1/queue/hold/", servertest.Operator, `{"reason":"private"}`).Want(t, http.StatusOK, "")
		got := f.Do(t, "GET /readyz/", "", "").Want(t, http.StatusOK, "")
		if !strings.Contains(got.Text, `"deliveries":{"ok":true,"warning":"nothing is sent: the queue has been held since 20`) || strings.Contains(got.Text, "private") {
			t.Errorf("%s", got.Text)
		}
		f.Do(t, "POST /api/v1/queue/release/", servertest.Operator, "").Want(t, http.StatusOK, "")
		time.Sleep(time.Second)
		if got := f.Do(t, "GET /readyz/", "", ""); strings.Contains(got.Text, "warning") {
			t.Errorf("%s", got.Text)
		}
	})
}
