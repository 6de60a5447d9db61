package server_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestAllowedNetworks uses keys that are limited to networks. The requests come over loopback, which is the trusted proxy here.
func TestAllowedNetworks(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	const keys, refused = "/api/v1/api-keys/", "client_address_not_allowed"
	create := func(networks string) servertest.Response {
		return f.Do(t, "POST "+keys, as, `{"name":"office","scope":"events:read","allowed_networks":`+networks+`}`).Want(t, 201, "")
	}
	made := create(`["203.0.113.0/24","2001:db8::7"]`)
	id, key := made.Field("id"), "ApiKey "+made.Field("key")
	from := func(as, client, path string) servertest.Response {
		return f.Do(t, "GET "+path, as, "", "X-Forwarded-For", client)
	}

	t.Run("are shown, and kept by a rotation", func(t *testing.T) {
		want := `"allowed_networks":["203.0.113.0/24","2001:db8::7/128"]`
		rotated := f.Do(t, "POST "+keys+id+"/rotate/", as, `{"grace_seconds":600}`).Want(t, 201, "")
		for _, got := range []servertest.Response{made, rotated, f.Do(t, "GET "+keys+id+"/", as, "")} {
			if !strings.Contains(got.Text, want) {
				t.Errorf("%s, want %s", got.Text, want)
			}
		}
		from("ApiKey "+rotated.Field("key"), "198.51.100.1", "/api/v1/whoami/").Want(t, 403, refused)
		from("ApiKey "+rotated.Field("key"), "203.0.113.9", "/api/v1/whoami/").Want(t, 200, "")
	})
	t.Run("decide by the address of the client, for Keyhook and for a proxy that asks", func(t *testing.T) {
		for client, status := range map[string]int{
			"203.0.113.0": 200, "203.0.113.255": 200, "203.0.114.0": 403, "203.0.112.255": 403, "::ffff:203.0.113.4": 200,
			"2001:db8::7": 200, "2001:db8::8": 403, "198.51.100.1, 203.0.113.4": 200, "203.0.113.4, 198.51.100.1": 403,
		} {
			for _, path := range []string{"/api/v1/whoami/", "/api/v1/authz/forward/events:read/"} {
				got := from(key, client, path).Want(t, status, map[int]string{403: refused}[status])
				if last := client[strings.LastIndex(client, " ")+1:]; status == 403 && !strings.Contains(got.Field("detail"), "not from "+last+";") {
					t.Errorf("%s: %s", client, got.Text)
				}
			}
		}
	})
	t.Run("refuse before the plan and the window, and after everything that is 401", func(t *testing.T) {
		before := from(key, "203.0.113.4", "/api/v1/whoami/").Header.Get("X-RateLimit-Remaining")
		if got := from(key, "198.51.100.1", "/api/v1/whoami/").Header.Get("X-RateLimit-Remaining"); got != before {
			t.Errorf("%s requests left, and %s before the refusal", got, before)
		}
		f.Plan(t, "keyless", false, true, "1")
		f.Move(t, owner.Home.ID, "keyless")
		from(key, "198.51.100.1", "/api/v1/whoami/").Want(t, 403, refused)
		from(key, "203.0.113.4", "/api/v1/whoami/").Want(t, 403, "plan_capability_required")
		f.Move(t, owner.Home.ID, "growth")
		other := create(`["203.0.113.0/24"]`)
		f.Do(t, "DELETE "+keys+other.Field("id")+"/", as, "").Want(t, 204, "")
		from("ApiKey "+other.Field("key"), "198.51.100.1", "/api/v1/whoami/").Want(t, 401, "key_revoked")
	})
	t.Run("are checked by verify with client_ip, and refuse without it", func(t *testing.T) {
		for client, want := range map[string]string{
			``: refused, `,"client_ip":"203.0.113.4"`: "valid", `,"client_ip":"::ffff:203.0.113.4"`: "valid", `,"client_ip":"198.51.100.1"`: refused,
		} {
			body := `{"key":"` + strings.TrimPrefix(key, "ApiKey ") + `"` + client + `}`
			got := f.Do(t, "POST /api/v1/auth/verify/", servertest.Operator, body).Want(t, 200, "")
			if isCounted := !strings.Contains(got.Text, `"rate_limit":null`); got.Field("code") != want || isCounted != (want == "valid") {
				t.Errorf("%s: %s, want %s", client, got.Text, want)
			}
		}
		f.Do(t, "POST /api/v1/auth/verify/", servertest.Operator, `{"key":"x","client_ip":"203.0.113.4:80"}`).Want(t, 422, "validation_failed")
	})
	t.Run("are explained, with and without an address", func(t *testing.T) {
		for client, want := range map[string]string{"": "not_applicable", `,"client_ip":"203.0.113.4"`: "passed", `,"client_ip":"10.0.0.1"`: "failed"} {
			got := f.Do(t, "POST /api/v1/auth/explain/", as, `{"key":"`+id+`","method":"GET","path":"/api/v1/events/"`+client+`}`).Want(t, 200, "").Text
			if !strings.Contains(got, `{"check":"client_address","value":"203.0.113.0/24 2001:db8::7/128","verdict":"`+want+`"`) {
				t.Errorf("%s: %s, want %s", client, got, want)
			}
		}
	})
	t.Run("null and an empty list are everywhere", func(t *testing.T) {
		for _, none := range []string{"null", "[]"} {
			got := create(none)
			if !strings.Contains(got.Text, `"allowed_networks":[]`) {
				t.Error(got.Text)
			}
			from("ApiKey "+got.Field("key"), "198.51.100.1", "/api/v1/whoami/").Want(t, 200, "")
		}
	})
	t.Run("that cannot be are refused with the right form", func(t *testing.T) {
		for networks, want := range map[string]string{
			`["10.1.2.3/8"]`:          `"10.1.2.3/8" has address bits beyond its prefix length; write "10.0.0.0/8" or "10.1.2.3".`,
			`["::ffff:10.0.0.0/104"]`: `"::ffff:10.0.0.0/104" is an IPv4 network in IPv6 form; write "10.0.0.0/8".`,
			`["::ffff:10.0.0.7"]`:     `"::ffff:10.0.0.7" is an IPv4 network in IPv6 form; write "10.0.0.7/32".`,
			`["example.com"]`:         `"example.com" is not an address or a network; write an item such as 10.0.0.0/8 or fd00::1.`,
			`["fe80::1%eth0"]`:        `is not an address or a network`,
			`"10.0.0.0/8"`:            `This must be an array of networks`,
			`[7]`:                     `This must be a string in quotes.`,
			`[` + strings.Repeat(`"10.0.0.1",`, access.MaxNetworks) + `"10.0.0.1"]`: `This may have at most 20 networks`,
		} {
			got := f.Do(t, "POST "+keys, as, `{"name":"x","scope":"events:read","allowed_networks":`+networks+`}`).Want(t, 422, "validation_failed")
			if !strings.Contains(strings.ReplaceAll(got.Text, `\"`, `"`), want) {
				t.Errorf("%s: %s, want %s", networks, got.Text, want)
			}
		}
	})
	t.Run("stand in the audit event", func(t *testing.T) {
		page := f.List(t, as, "/api/v1/audit-events/?type=api_key_created&target="+id)
		details, _ := page.Data[0]["details"].(map[string]any)
		if d := cmp.Diff([]any{"203.0.113.0/24", "2001:db8::7/128"}, details["allowed_networks"]); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// TestAllowedNetworksOnTheSocket refuses such a key over the local socket, where a request has no address.
func TestAllowedNetworksOnTheSocket(t *testing.T) {
	t.Parallel()
	f := startLocal(t)
	made := f.Do(t, "POST /api/v1/api-keys/", "", `{"name":"x","scope":"events:read","allowed_networks":["0.0.0.0/0","::/0"]}`).Want(t, 201, "")
	got := f.Do(t, "GET /api/v1/whoami/", "ApiKey "+made.Field("key"), "").Want(t, 403, "client_address_not_allowed")
	if !strings.Contains(got.Field("detail"), "not from a client without an address;") {
		t.Error(got.Text)
	}
}
