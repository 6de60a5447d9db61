package server_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestTimesThatCannotBeShown sends times whose year does not have four digits in UTC. It uses them to create a key and a token,
// to filter a list, and to replay.
func TestTimesThatCannotBeShown(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	tokens := "/api/v1/users/" + owner.User.ID + "/access-tokens/"
	subPath := "/api/v1/webhooks/subscriptions/" + sub.ID + "/"
	for at, code := range map[string]string{
		"9999-12-31T23:59:59-00:01":        "invalid",
		"9999-12-31T23:59:59.999-23:59":    "invalid",
		"0001-01-01T00:00:00+01:00":        "invalid",
		"0000-01-01T00:00:00+23:59":        "invalid",
		"10000-01-01T00:00:00Z":            "invalid",
		"-0001-01-01T00:00:00Z":            "invalid",
		"9999-12-31T23:59:60Z":             "invalid",
		"292277026596-12-04T15:30:07.0Z":   "invalid",
		"2030-01-31T12:00:00+99:99":        "invalid",
		"2030-01-31T2:00:00Z":              "invalid",
		"2030-01-31T12:00:00+24:00":        "invalid",
		"2030-01-31T12:00:00,5Z":           "invalid",
		strings.Repeat("9", 99) + "-01-01": "too_long",
	} {
		t.Run(at, func(t *testing.T) {
			for line, body := range map[string]string{
				"POST /api/v1/api-keys/":      `{"name":"x","scope":"events:read","expires_at":"` + at + `"}`,
				"POST " + tokens:              `{"organization_id":"` + owner.Organization.ID + `","expires_at":"` + at + `"}`,
				"POST " + subPath + "replay/": `{"since":"` + at + `"}`,
			} {
				got := f.Do(t, line, servertest.Operator, body, "X-Organization-Id", owner.Organization.ID).Want(t, 422, "validation_failed")
				if !strings.Contains(got.Text, `"code":"`+code+`"`) {
					t.Errorf("%s: %s", line, got.Text)
				}
			}
			for _, path := range []string{subPath + "deliveries/", "/api/v1/audit-events/", "/api/v1/webhooks/stats/"} {
				f.Do(t, "GET "+path+"?since="+url.QueryEscape(at), servertest.Bearer(token), "").Want(t, 400, "invalid_parameter")
				f.Do(t, "GET "+path+"?until="+url.QueryEscape(at), servertest.Bearer(token), "").Want(t, 400, "invalid_parameter")
			}
		})
	}
	const last = `"expires_at":"9999-12-31T23:59:59.999Z"`
	got := f.Do(t, "POST /api/v1/api-keys/", servertest.Bearer(token), `{"name":"x","scope":"events:read",`+last+`}`).Want(t, 201, "")
	if !strings.Contains(got.Text, last) {
		t.Errorf("%s", got.Text)
	}
	f.Do(t, "GET /api/v1/audit-events/?since="+url.QueryEscape("0001-01-01T00:00:00Z"), servertest.Bearer(token), "").Want(t, 200, "")
}

// FuzzTimes sends any text as a time. An accepted time must be the same in the response.
func FuzzTimes(f *testing.F) {
	for _, text := range []string{"2030-01-31T12:00:00Z", "9999-12-31T23:59:59-00:01", "0000-01-01T00:00:00+23:59", "", "1969-12-31T23:59:59.9999999999Z"} {
		f.Add(text)
	}
	s := build(f)
	f.Fuzz(func(t *testing.T, text string) {
		body, err := json.Marshal(map[string]string{"name": "x", "scope": "events:read", "expires_at": text})
		if err != nil {
			t.Fatal(err)
		}
		got := s.Do(t, "POST /api/v1/api-keys/", servertest.Operator, string(body))
		if got.StatusCode == 422 {
			return
		}
		got.Want(t, 201, "")
		asked, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatalf("%q is taken", text)
		}
		shown, err := time.Parse("2006-01-02T15:04:05.000Z", got.Field("expires_at"))
		if err != nil || shown.UnixMilli() != asked.UnixMilli() {
			t.Errorf("%q is shown as %q: %v", text, got.Field("expires_at"), err)
		}
	})
}
