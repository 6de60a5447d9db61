package platform_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestWhatOneCustomerMayHave(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	f.Do(t, "POST /api/v1/plans/", servertest.Operator,
		`{"name":"tiny","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":null,"max_subscriptions":1,"max_api_keys":1}`).Want(t, 201, "")
	_, token := storagetest.Organization(t, f.Store, "acme", "tiny", access.RoleOwner)
	const keys, subscriptions = "/api/v1/api-keys/", "/api/v1/webhooks/subscriptions/"
	f.Run(t, map[string]string{"as": servertest.Bearer(token)}, []servertest.Scenario{
		servertest.Shows("keys are created up to the limit of the plan", "POST "+keys, `{"name":"a","scope":"events:read"}`, 201, `"name":"a"`),
		servertest.Bad("one more key is refused", "POST "+keys, `{"name":"b","scope":"events:read"}`, 409, "limit_reached", `The plan \"tiny\" allows 1 live API keys (max_api_keys)`),
		servertest.Shows("a key at the limit can be rotated", "POST "+keys+"{last}/rotate/", `{"grace_seconds":600}`, 201, `"name":"a"`),
		servertest.Shows("subscriptions are created up to the limit of the plan", "POST "+subscriptions, `{"url":"https://example.com/"}`, 201, `"secret":"whsec_`),
		servertest.OK("both are counted, without the rotated key", "GET /api/v1/usage/", "", 200, `{"api_keys":1,"subscriptions":1}`),
		servertest.Bad("one more subscription is refused", "POST "+subscriptions, `{"url":"https://example.com/"}`, 409, "limit_reached", `The plan \"tiny\" allows 1 subscriptions (max_subscriptions)`),
	})
}

func TestABatchOfTooManyDeliveries(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	for range 11 {
		storagetest.Subscription(t, f.Store, owner, "https://example.com/", "a")
	}
	batch := func(n int) servertest.Response {
		events := strings.Repeat(`{"type":"a","data":{}},`, n-1) + `{"type":"a","data":{}}`
		return f.Do(t, "POST /api/v1/events/batch/", servertest.Bearer(token), `{"events":[`+events+`]}`)
	}
	got := batch(1000).Want(t, 422, "too_many_deliveries")
	if !strings.Contains(got.Text, "The first 910 of these 1000 events need 10010 deliveries; one request may create at most 10000.") ||
		!strings.Contains(got.Text, "send at most 909 of these events in a request.") {
		t.Errorf("response %s", got.Text)
	}
	batch(909).Want(t, 202, "")
}

func TestAnOrganizationBeyondItsBytesOfTheDay(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	f.Do(t, "POST /api/v1/plans/", servertest.Operator,
		`{"name":"tiny","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":null,"max_stored_bytes_per_day":0}`).Want(t, 201, "")
	_, token := storagetest.Organization(t, f.Store, "acme", "tiny", access.RoleOwner)
	publish := servertest.NewCall("POST /api/v1/events/", servertest.Bearer(token), `{"type":"a","data":{}}`)
	got := f.Call(t, publish).Want(t, 429, "storage_quota_exceeded")
	wait, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if err != nil || wait < 1 || wait > 3600 {
		t.Errorf("Retry-After %q", got.Header.Get("Retry-After"))
	}
	if !strings.Contains(got.Text, "max_stored_bytes_per_day") || !strings.Contains(got.Text, "ask an operator") {
		t.Errorf("response %s", got.Text)
	}
	f.Do(t, "PATCH /api/v1/plans/tiny/", servertest.Operator, `{"max_stored_bytes_per_day":null}`).Want(t, 200, "")
	f.Call(t, publish).Want(t, 202, "")
}
