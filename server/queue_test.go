package server_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	f := start(t, measured)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/secret/path?token=1")
	storagetest.Publish(t, f.store, owner, "a")
	known := map[string]string{"as": operator, "sub": sub.ID, "org": owner.Organization.ID, "owner": bearer(token)}
	f.run(t, known, []scenario{
		ok("it is listed by subscription, with only the host of each URL", "GET /api/v1/queue/", "", 200,
			`{"held":false,"held_since":null,"reason":null,"pending_deliveries":1,"pending_subscriptions":1,"pending":[{"subscription_id":"{sub}","organization_id":"{org}","organization_name":"acme","url_host":"example.com","pending":1,"oldest_due":"20`),
		bad("nothing is discarded without a hold", "POST /api/v1/queue/discard/", "", 409, "queue_not_held"),
		bad("a reason is one line of text", "POST /api/v1/queue/hold/", `{"reason":"a\nb"}`, 422, "validation_failed", `"field":"reason"`),
		bad("there is no other field", "POST /api/v1/queue/hold/", `{"why":"a"}`, 422, "validation_failed", "unknown_field"),
		ok("it is held, for a reason", "POST /api/v1/queue/hold/", `{"reason":" a leak "}`, 200, `"held":true,"held_since":"20`, `"reason":"a leak"`),
		ok("a second hold keeps the first reason", "POST /api/v1/queue/hold/", "", 200, `"reason":"a leak"`),
		{"a recovery says that nothing is sent", call{"POST /api/v1/webhooks/subscriptions/{sub}/recover/", "{owner}", "", nil}, 202, "", []string{`"blocked_by":"queue_held"`}, noSecret},
		ok("it is released, with the number of deliveries", "POST /api/v1/queue/release/", "", 200, `"held":false`, `"released":1`),
		ok("a second release changes nothing", "POST /api/v1/queue/release/", "", 200, `"held":false`, `"released":0`),
		ok("it is held without a reason", "POST /api/v1/queue/hold/", "", 200, `"held":true`, `"reason":null`),
		ok("it is discarded, with the number of deliveries", "POST /api/v1/queue/discard/", "", 200,
			`"held":false`, `"dropped":1`, `"pending_deliveries":0`, `"pending":[]`),
		ok("every change is in the audit log", "GET /api/v1/audit-events/?limit=4", "", 200,
			`"type":"queue_discarded"`, `"details":{"dropped":1,"held_since":"20`, `"type":"queue_held"`, `"type":"queue_released"`, `"reason":"a leak"`),
	})
}

func TestReadyWhileHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		f.do(t, call{"POST /api/v1/queue/hold/", operator, `{"reason":"private"}`, nil}).want(t, http.StatusOK, "")
		got := f.do(t, call{"GET /readyz/", "", "", nil}).want(t, http.StatusOK, "")
		if !strings.Contains(got.body, `"deliveries":{"ok":true,"warning":"nothing is sent: the queue has been held since 20`) || strings.Contains(got.body, "private") {
			t.Errorf("%s", got.body)
		}
		f.do(t, call{"POST /api/v1/queue/release/", operator, "", nil}).want(t, http.StatusOK, "")
		time.Sleep(time.Second)
		if got := f.do(t, call{"GET /readyz/", "", "", nil}); strings.Contains(got.body, "warning") {
			t.Errorf("%s", got.body)
		}
	})
}
