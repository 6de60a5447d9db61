package webhooks_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestImportedSecrets(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	const path = "/api/v1/webhooks/subscriptions/"
	create := func(secret string) servertest.Response {
		return f.Do(t, "POST "+path, servertest.Bearer(token), `{"url":"https://example.com/","secret":`+secret+`}`)
	}
	made := create(`"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`).Want(t, 201, "")
	rotate := func(body string) servertest.Response {
		return f.Do(t, "POST "+path+made.Field("id")+"/rotate-secret/", servertest.Bearer(token), body)
	}
	t.Run("are shown once, like those that Keyhook makes", func(t *testing.T) {
		if got := made.Field("secret"); got != "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" {
			t.Errorf("created with %s", got)
		}
		if got := f.Do(t, "GET "+path+made.Field("id")+"/", servertest.Bearer(token), ""); strings.Contains(got.Text, "MfKQ") {
			t.Errorf("%s", got.Text)
		}
		if got := rotate(`{"secret":"an-own-secret-of-24-chars"}`).Want(t, 200, "").Field("secret"); got != "an-own-secret-of-24-chars" {
			t.Errorf("rotated to %s", got)
		}
		if got := f.Do(t, "GET /api/v1/audit-events/", servertest.Bearer(token), ""); strings.Contains(got.Text, "MfKQ") || strings.Contains(got.Text, "an-own") ||
			strings.Count(got.Text, `"secret_imported":true`) != 2 {
			t.Errorf("log %s", got.Text)
		}
	})
	t.Run("end no overlap without force", func(t *testing.T) {
		rotate(`{"secret":"another-secret-of-24-chars"}`).Want(t, 409, "overlap_in_progress")
		rotate(`{"secret":"another-secret-of-24-chars","force":true}`).Want(t, 200, "")
	})
	t.Run("have 24 to 256 visible ASCII characters, and base64 behind whsec_", func(t *testing.T) {
		long := strings.Repeat("x", 257)
		for secret, want := range map[string]string{
			`"` + long[:23] + `"`: "too_short", `"` + long + `"`: "too_long", `""`: "too_short", `null`: "wrong_type", `24`: "wrong_type",
			`"canary with a space in it"`: "invalid", `"canary-with-a-tab-\t-in-it"`: "invalid", `"canary-wïth-an-umlaut-in-it"`: "invalid",
			`"whsec_canary-canary-canary"`: "invalid", `"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"`: "invalid", `"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa_w"`: "invalid",
			`"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx=="`: "invalid",
		} {
			for _, got := range []servertest.Response{create(secret), rotate(`{"force":true,"secret":` + secret + `}`)} {
				if fields := got.Want(t, 422, "validation_failed").Fields(); len(fields) != 1 || fields[0] != "secret: "+want ||
					strings.Contains(got.Text, "canary") || strings.Contains(got.Text, "MfKQ") {
					t.Errorf("%.50s: %v, want %s", secret, fields, want)
				}
			}
		}
		create(`"`+long[:24]+`"`).Want(t, 201, "")
		create(`"`+long[:256]+`"`).Want(t, 201, "")
	})
	t.Run("are not part of an update", func(t *testing.T) {
		got := f.Do(t, "PATCH "+path+made.Field("id")+"/", servertest.Bearer(token), `{"secret":"another-secret-of-24-chars"}`).Want(t, 422, "validation_failed")
		if !strings.Contains(got.Text, `"code":"unknown_field"`) {
			t.Errorf("%s", got.Text)
		}
	})
}
