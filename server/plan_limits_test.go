package server_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestWhatOneCustomerMayHave(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.do(t, call{"POST /api/v1/plans/", operator,
		`{"name":"tiny","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":null,"max_subscriptions":1,"max_api_keys":1}`, nil}).want(t, 201, "")
	_, token := storagetest.Organization(t, f.store, "acme", "tiny", access.RoleOwner)
	const keys, subscriptions = "/api/v1/api-keys/", "/api/v1/webhooks/subscriptions/"
	f.run(t, map[string]string{"as": bearer(token)}, []scenario{
		shows("keys are created up to the limit of the plan", "POST "+keys, `{"name":"a","scope":"events:read"}`, 201, `"name":"a"`),
		bad("one more key is refused", "POST "+keys, `{"name":"b","scope":"events:read"}`, 409, "limit_reached", `The plan \"tiny\" allows 1 live API keys (max_api_keys)`),
		shows("a key at the limit can be rotated", "POST "+keys+"{last}/rotate/", `{"grace_seconds":600}`, 201, `"name":"a"`),
		shows("subscriptions are created up to the limit of the plan", "POST "+subscriptions, `{"url":"https://example.com/"}`, 201, `"secret":"whsec_`),
		ok("both are counted, without the rotated key", "GET /api/v1/usage/", "", 200, `{"api_keys":1,"subscriptions":1}`),
		bad("one more subscription is refused", "POST "+subscriptions, `{"url":"https://example.com/"}`, 409, "limit_reached", `The plan \"tiny\" allows 1 subscriptions (max_subscriptions)`),
	})
}

func TestABatchOfTooManyDeliveries(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	for range 11 {
		storagetest.Subscription(t, f.store, owner, "https://example.com/", "a")
	}
	batch := func(n int) testResponse {
		events := strings.Repeat(`{"type":"a","data":{}},`, n-1) + `{"type":"a","data":{}}`
		return f.do(t, call{"POST /api/v1/events/batch/", bearer(token), `{"events":[` + events + `]}`, nil})
	}
	got := batch(1000).want(t, 422, "too_many_deliveries")
	if !strings.Contains(got.body, "The first 910 of these 1000 events need 10010 deliveries; one request may create at most 10000.") ||
		!strings.Contains(got.body, "send at most 909 of these events in a request.") {
		t.Errorf("response %s", got.body)
	}
	batch(909).want(t, 202, "")
}

func TestAnOrganizationBeyondItsBytesOfTheDay(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.do(t, call{"POST /api/v1/plans/", operator,
		`{"name":"tiny","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":null,"max_stored_bytes_per_day":0}`, nil}).want(t, 201, "")
	_, token := storagetest.Organization(t, f.store, "acme", "tiny", access.RoleOwner)
	publish := call{"POST /api/v1/events/", bearer(token), `{"type":"a","data":{}}`, nil}
	got := f.do(t, publish).want(t, 429, "storage_quota_exceeded")
	wait, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if err != nil || wait < 1 || wait > 3600 {
		t.Errorf("Retry-After %q", got.Header.Get("Retry-After"))
	}
	if !strings.Contains(got.body, "max_stored_bytes_per_day") || !strings.Contains(got.body, "ask an operator") {
		t.Errorf("response %s", got.body)
	}
	f.do(t, call{"PATCH /api/v1/plans/tiny/", operator, `{"max_stored_bytes_per_day":null}`, nil}).want(t, 200, "")
	f.do(t, publish).want(t, 202, "")
}
