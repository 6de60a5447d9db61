package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	key, raw := storagetest.Key(t, f.Store, owner, access.EventsWrite, access.EventsRead)
	f.Plan(t, "three", true, true, "3")
	f.Plan(t, "none", false, false, "null")
	host, hostKey := storagetest.Organization(t, f.Store, "host", "enterprise", access.RoleOperator)
	_ = host

	type verdict struct {
		Valid          bool
		Code           string
		KeyID          *string `json:"key_id"`
		UserID         *string `json:"user_id"`
		OrganizationID *string `json:"organization_id"`
		Scope, Plan    *string
		RateLimit      *struct {
			Limit, Remaining int
			ResetAt          time.Time `json:"reset_at"`
		} `json:"rate_limit"`
	}
	verify := func(t *testing.T, body string) (v verdict) {
		t.Helper()
		a := f.Do(t, "POST /api/v1/auth/verify/", servertest.Bearer(hostKey), body).Want(t, 200, "")
		if a.Header.Get("Cache-Control") != "no-store" {
			t.Error("the response may be cached")
		}
		if err := json.Unmarshal([]byte(a.Text), &v); err != nil {
			t.Fatal(err)
		}
		if v.Valid != (v.Code == "valid") {
			t.Errorf("valid %t and code %s", v.Valid, v.Code)
		}
		return v
	}
	shown := `{"key":"` + raw.Reveal() + `"}`

	t.Run("describes a valid key and its permissions, and counts one request", func(t *testing.T) {
		for n := range 2 {
			v := verify(t, shown)
			if !v.Valid || *v.KeyID != key.ID || *v.UserID != owner.User.ID || *v.OrganizationID != owner.Organization.ID ||
				*v.Scope != "events:read events:write" || *v.Plan != "growth" {
				t.Errorf("%+v", v)
			}
			if v.RateLimit.Limit != 600 || v.RateLimit.Remaining != 599-n || time.Until(v.RateLimit.ResetAt) > time.Minute {
				t.Errorf("window %+v", v.RateLimit)
			}
		}
	})

	t.Run("checks a permission, and counts the request even if the key lacks it", func(t *testing.T) {
		if v := verify(t, `{"key":"`+raw.Reveal()+`","permission":"events:write"}`); !v.Valid {
			t.Errorf("%+v", v)
		}
		if v := verify(t, `{"key":"`+raw.Reveal()+`","permission":"audit:read"}`); v.Code != "permission_denied" || v.RateLimit.Remaining != 596 {
			t.Errorf("%+v", v)
		}
	})

	t.Run("has a code for every invalid key", func(t *testing.T) {
		gone, goneRaw := storagetest.Key(t, f.Store, owner, access.EventsRead)
		if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Organization.RowID, gone.ID); err != nil {
			t.Fatal(err)
		}
		for shown, code := range map[string]string{
			"":                          "invalid_key",
			"svc_x":                     "invalid_key",
			strings.Repeat("x", 60_000): "invalid_key", // a client sends what it likes
			access.Mint("svc").Reveal(): "invalid_key",
			token.Reveal():              "wrong_scheme",
			goneRaw.Reveal():            "key_revoked",
			"svc_\u0000" + raw.Reveal()[5:] + "\u2026": "invalid_key",
		} {
			text, _ := json.Marshal(shown)
			if v := verify(t, `{"key":`+string(text)+`}`); v.Code != code || v.KeyID != nil || v.Scope != nil || v.RateLimit != nil {
				t.Errorf("%q: %+v, want %s", shown, v, code)
			}
		}
	})

	t.Run("refuses requests beyond the limit, and counts none under a plan without API keys", func(t *testing.T) {
		other, _ := storagetest.Organization(t, f.Store, "small", "three", access.RoleOwner)
		_, small := storagetest.Key(t, f.Store, other, access.EventsRead)
		for _, code := range []string{"valid", "valid", "valid", "rate_limited"} {
			if v := verify(t, `{"key":"`+small.Reveal()+`"}`); v.Code != code {
				t.Errorf("%+v, want %s", v, code)
			}
		}
		f.Move(t, other.Organization.ID, "none")
		if v := verify(t, `{"key":"`+small.Reveal()+`"}`); v.Code != "plan_capability_required" || v.RateLimit != nil || v.KeyID == nil {
			t.Errorf("%+v", v)
		}
	})

	t.Run("needs platform:act_as, and lists all problems of its own request", func(t *testing.T) {
		f.Do(t, "POST /api/v1/auth/verify/", servertest.Bearer(token), shown).Want(t, 403, "permission_denied")
		for body, field := range map[string]string{
			`{}`:                                 "key: missing",
			`{"key":1}`:                          "key: wrong_type",
			`{"key":"x","a":1}`:                  "a: unknown_field",
			`{"key":"x","permission":"no:such"}`: "permission: unknown_permission",
		} {
			if a := f.Do(t, "POST /api/v1/auth/verify/", servertest.Bearer(hostKey), body); a.StatusCode != 422 || len(a.Fields()) != 1 || a.Fields()[0] != field {
				t.Errorf("%s: %d %v", body, a.StatusCode, a.Fields())
			}
		}
	})
}
