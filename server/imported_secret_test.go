package server_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestImportedSecrets(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	const path = "/api/v1/webhooks/subscriptions/"
	create := func(secret string) testResponse {
		return f.do(t, call{"POST " + path, bearer(token), `{"url":"https://example.com/","secret":` + secret + `}`, nil})
	}
	made := create(`"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`).want(t, 201, "")
	rotate := func(body string) testResponse {
		return f.do(t, call{"POST " + path + made.field("id") + "/rotate-secret/", bearer(token), body, nil})
	}
	t.Run("are shown once, like those that Keyhook makes", func(t *testing.T) {
		if got := made.field("secret"); got != "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" {
			t.Errorf("created with %s", got)
		}
		if got := f.do(t, call{"GET " + path + made.field("id") + "/", bearer(token), "", nil}); strings.Contains(got.body, "MfKQ") {
			t.Errorf("%s", got.body)
		}
		if got := rotate(`{"secret":"an-own-secret-of-24-chars"}`).want(t, 200, "").field("secret"); got != "an-own-secret-of-24-chars" {
			t.Errorf("rotated to %s", got)
		}
		if got := f.do(t, call{"GET /api/v1/audit-events/", bearer(token), "", nil}); strings.Contains(got.body, "MfKQ") || strings.Contains(got.body, "an-own") ||
			strings.Count(got.body, `"secret_imported":true`) != 2 {
			t.Errorf("log %s", got.body)
		}
	})
	t.Run("end no overlap without force", func(t *testing.T) {
		rotate(`{"secret":"another-secret-of-24-chars"}`).want(t, 409, "overlap_in_progress")
		rotate(`{"secret":"another-secret-of-24-chars","force":true}`).want(t, 200, "")
	})
	t.Run("have 24 to 256 visible ASCII characters, and base64 behind whsec_", func(t *testing.T) {
		long := strings.Repeat("x", 257)
		for secret, want := range map[string]string{
			`"` + long[:23] + `"`: "too_short", `"` + long + `"`: "too_long", `""`: "too_short", `null`: "wrong_type", `24`: "wrong_type",
			`"canary with a space in it"`: "invalid", `"canary-with-a-tab-\t-in-it"`: "invalid", `"canary-wïth-an-umlaut-in-it"`: "invalid",
			`"whsec_canary-canary-canary"`: "invalid", `"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"`: "invalid", `"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa_w"`: "invalid",
			`"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx=="`: "invalid",
		} {
			for _, got := range []testResponse{create(secret), rotate(`{"force":true,"secret":` + secret + `}`)} {
				if fields := got.want(t, 422, "validation_failed").fields(); len(fields) != 1 || fields[0] != "secret: "+want ||
					strings.Contains(got.body, "canary") || strings.Contains(got.body, "MfKQ") {
					t.Errorf("%.50s: %v, want %s", secret, fields, want)
				}
			}
		}
		create(`"`+long[:24]+`"`).want(t, 201, "")
		create(`"`+long[:256]+`"`).want(t, 201, "")
	})
	t.Run("are not part of an update", func(t *testing.T) {
		got := f.do(t, call{"PATCH " + path + made.field("id") + "/", bearer(token), `{"secret":"another-secret-of-24-chars"}`, nil}).want(t, 422, "validation_failed")
		if !strings.Contains(got.body, `"code":"unknown_field"`) {
			t.Errorf("%s", got.body)
		}
	})
}
