package server_test

import (
	"encoding/json"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, hostKey := storagetest.Organization(t, f.Store, "host", "enterprise", access.RoleOperator)
	const path = "/api/v1/api-keys/"
	of := func(a servertest.Response) string {
		var body struct{ Metadata json.RawMessage }
		if err := json.Unmarshal([]byte(a.Text), &body); err != nil {
			t.Fatal(err)
		}
		return string(body.Metadata)
	}
	create := func(metadata string) servertest.Response {
		return f.Do(t, "POST "+path, servertest.Bearer(token), `{"name":"x","scope":"events:read api_keys:read","metadata":`+metadata+`}`)
	}
	const given, kept = `{ "customer" : 17, "tags": ["a", "ü", "<b>"], "n": 12345678901234567890 }`, `{"customer":17,"tags":["a","ü","<b>"],"n":12345678901234567890}`

	t.Run("is shown by reads, lists and verification, and kept over a rotation", func(t *testing.T) {
		made := create(given).Want(t, 201, "")
		key := made.Field("id")
		verified := func(raw string) string {
			text, _ := json.Marshal(map[string]any{"key": raw})
			return of(f.Do(t, "POST /api/v1/auth/verify/", servertest.Bearer(hostKey), string(text)).Want(t, 200, ""))
		}
		listed, _ := json.Marshal(f.List(t, servertest.Bearer(token), path).Data[0]["metadata"])
		rotated := f.Do(t, "POST "+path+key+"/rotate/", servertest.Bearer(token), `{"grace_seconds":60}`).Want(t, 201, "")
		for what, got := range map[string]string{
			"create": of(made), "read": of(f.Do(t, "GET "+path+key+"/", servertest.Bearer(token), "")), "verify": verified(made.Field("key")),
			"rotate": of(rotated), "verify after the rotation": verified(rotated.Field("key")),
		} {
			if unescaped(got) != kept {
				t.Errorf("%s: %s, want %s", what, got, kept)
			}
		}
		if !strings.Contains(string(listed), `"customer":17`) {
			t.Errorf("list: %s", listed)
		}
		if got := verified("svc_nothing"); got != "null" {
			t.Errorf("an unknown key has the metadata %s", got)
		}
	})
	t.Run("is empty unless it is given", func(t *testing.T) {
		made := f.Do(t, "POST "+path, servertest.Bearer(token), `{"name":"x","scope":"events:read"}`).Want(t, 201, "")
		if of(made) != "{}" {
			t.Errorf("%s", of(made))
		}
	})
	t.Run("has at most 2048 bytes without white space", func(t *testing.T) {
		sized := func(n int) string { return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}` }
		if got := of(create(" "+sized(2048)+" ").Want(t, 201, "")); len(got) != 2048 {
			t.Errorf("%d bytes", len(got))
		}
		for text, code := range map[string]string{
			sized(2049): "too_long", `[]`: "wrong_type", `"{}"`: "wrong_type", `null`: "wrong_type", `1`: "wrong_type",
		} {
			got := create(text).Want(t, 422, "")
			if fields := got.Fields(); len(fields) != 1 || fields[0] != "metadata: "+code {
				t.Errorf("%.20s: %v, want %s", text, fields, code)
			}
		}
	})
	t.Run("does not change", func(t *testing.T) {
		key := create(given).Field("id")
		f.Do(t, "PATCH "+path+key+"/", servertest.Bearer(token), `{"metadata":{}}`).Want(t, 405, "method_not_allowed")
		f.Do(t, "POST "+path+key+"/rotate/", servertest.Bearer(token), `{"metadata":{}}`).Want(t, 422, "validation_failed")
	})
	t.Run("does not go to a proxy", func(t *testing.T) {
		made := create(`{"customer":"acme-17"}`).Want(t, 201, "")
		got := f.Do(t, "GET /api/v1/authz/forward/events:read/", "ApiKey "+made.Field("key"), "").Want(t, 200, "")
		for name, values := range got.Header {
			if strings.Contains(strings.Join(values, " "), "acme-17") {
				t.Errorf("%s: %s", name, values)
			}
		}
	})
}

// unescaped undoes the escapes of encoding/json for HTML.
func unescaped(text string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(text)
}

// similar returns another key with the prefix and the first characters of raw.
func similar(t *testing.T, raw access.Credential) access.Credential {
	t.Helper()
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := raw.Reveal()
	body := text[:20] + access.Mint("svc").Reveal()[20:34]
	sum, digits := crc32.ChecksumIEEE([]byte(body)), make([]byte, 6)
	for i := range digits {
		digits[5-i] = base62[sum%62]
		sum /= 62
	}
	other, ok := access.Parse(body + string(digits))
	if !ok || other.Display() != raw.Display() {
		t.Fatalf("%s is not similar to %s", other.Display(), raw.Display())
	}
	return other
}

func TestExplainByPrefix(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
	const line = "POST /api/v1/auth/explain/"
	body := func(prefix string) string { return `{"key":"` + prefix + `","method":"GET","path":"/api/v1/events/"}` }

	t.Run("finds the key with the prefix that lists show, with the ellipsis and without", func(t *testing.T) {
		for _, prefix := range []string{key.KeyPrefix, strings.TrimSuffix(key.KeyPrefix, "…")} {
			if e := f.explain(t, servertest.Bearer(token), prefix, "GET /api/v1/events/"); !e.Allowed || e.KeyID == nil || *e.KeyID != key.ID {
				t.Errorf("%s: %+v", prefix, e)
			}
		}
	})
	t.Run("finds a revoked key", func(t *testing.T) {
		gone, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
		if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Organization.RowID, gone.ID); err != nil {
			t.Fatal(err)
		}
		if e := f.explain(t, servertest.Bearer(token), gone.KeyPrefix, "GET /api/v1/events/"); e.Code != "key_revoked" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("does not find keys of other organizations, except for callers that may act there", func(t *testing.T) {
		theirs, _ := storagetest.Key(t, f.Store, other, access.EventsRead)
		f.Do(t, line, servertest.Bearer(token), body(theirs.KeyPrefix)).Want(t, 404, "not_found")
		if e := f.explain(t, servertest.Operator, theirs.KeyPrefix, "GET /api/v1/events/"); e.KeyID == nil || *e.KeyID != theirs.ID {
			t.Errorf("%+v", e)
		}
	})
	t.Run("asks for the id if several keys that the caller may know have the prefix", func(t *testing.T) {
		another := func(of access.Principal) access.Key {
			made, err := f.Store.Directory.CreateKey(t.Context(), of, of.Actor("", ""), access.NewKey{
				Credential: similar(t, raw), Name: "another", Scope: access.NewScope(access.EventsRead),
			})
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		another(other)
		if e := f.explain(t, servertest.Bearer(token), key.KeyPrefix, "GET /api/v1/events/"); e.KeyID == nil || *e.KeyID != key.ID {
			t.Errorf("with a key of another organization: %+v", e)
		}
		f.Do(t, line, servertest.Operator, body(key.KeyPrefix)).Want(t, 422, "validation_failed")
		second := another(owner)
		got := f.Do(t, line, servertest.Bearer(token), body(key.KeyPrefix)).Want(t, 422, "validation_failed")
		if fields := got.Fields(); len(fields) != 1 || fields[0] != "key: ambiguous" {
			t.Errorf("%v", fields)
		}
		if !strings.Contains(got.Text, second.ID) {
			t.Errorf("%s", got.Text)
		}
	})
	t.Run("is refused for a prefix that no key has", func(t *testing.T) {
		f.Do(t, line, servertest.Bearer(token), body("svc_000000")).Want(t, 404, "not_found")
	})
}
