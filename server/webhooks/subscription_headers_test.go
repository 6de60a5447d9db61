package webhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestSubscriptionHeaders(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t, func(o *server.Options) { o.HeaderPrefix = "X-Acme" })
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	const path = "/api/v1/webhooks/subscriptions/"
	create := func(headers string) servertest.Response {
		return f.Do(t, "POST "+path, servertest.Bearer(token), `{"url":"https://example.com/","headers":`+headers+`}`)
	}
	made := create(`{"Authorization":"Bearer canary-1","x-tenant":"canary-2"}`).Want(t, 201, "")
	sub := path + made.Field("id") + "/"

	t.Run("are shown by their names, and never by their values", func(t *testing.T) {
		for _, line := range []string{"GET " + sub, "GET " + path, "GET /api/v1/audit-events/", "PATCH " + sub, "POST " + sub + "rotate-secret/"} {
			body := ""
			if strings.HasPrefix(line, "PATCH") {
				body = `{"headers":{"Authorization":null,"X-Tenant":"canary-3"}}`
			}
			got := f.Do(t, line, servertest.Bearer(token), body).Want(t, 200, "")
			if strings.Contains(got.Text, "canary") || !strings.Contains(got.Text, "Authorization") {
				t.Errorf("%s: %s", line, got.Text)
			}
		}
		if strings.Contains(made.Text, "canary") || !strings.Contains(made.Text, `"headers":{"Authorization":null,"x-tenant":null}`) {
			t.Errorf("created: %s", made.Text)
		}
	})
	t.Run("survive a read and a write of what was read", func(t *testing.T) {
		var read struct{ Headers json.RawMessage }
		if err := json.Unmarshal([]byte(f.Do(t, "GET "+sub, servertest.Bearer(token), "").Text), &read); err != nil {
			t.Fatal(err)
		}
		got := f.Do(t, "PATCH "+sub, servertest.Bearer(token), `{"headers":`+string(read.Headers)+`}`).Want(t, 200, "")
		if !strings.Contains(got.Text, `"headers":{"Authorization":null,"X-Tenant":null}`) {
			t.Errorf("%s", got.Text)
		}
	})
	t.Run("are removed by an empty object", func(t *testing.T) {
		got := f.Do(t, "PATCH "+sub, servertest.Bearer(token), `{"headers":{}}`).Want(t, 200, "")
		if !strings.Contains(got.Text, `"headers":{}`) {
			t.Errorf("%s", got.Text)
		}
	})
	t.Run("may have the longest values, ten of them", func(t *testing.T) {
		list := map[string]string{}
		for i := range 10 {
			list[fmt.Sprintf("X-Own-%d", i)] = strings.Repeat("x", 4096)
		}
		text, _ := json.Marshal(list)
		create(string(text)).Want(t, 201, "")
		create(`{"A!#$%&'*+-.^_|~`+"`"+`":"! ~\"\\"}`).Want(t, 201, "")
	})
	t.Run("are refused, and the problem names the header and no value", func(t *testing.T) {
		names := map[string]string{}
		for i := range 11 {
			names[fmt.Sprintf("X-%d", i)] = "canary"
		}
		eleven, _ := json.Marshal(names)
		for headers, want := range map[string]string{
			string(eleven):       "headers: too_many",
			`[]`:                 "headers: wrong_type",
			`null`:               "headers: wrong_type",
			`{"X-A":1}`:          "headers.X-A: wrong_type",
			`{"X-A":["canary"]}`: "headers.X-A: wrong_type",
			`{"X-A":null}`:       "headers.X-A: missing",
			`{"X-A":""}`:         "headers.X-A: blank",
			`{"X-A":"` + strings.Repeat("canary", 683)[:4097] + `"}`: "headers.X-A: too_long",
			`{"X-A":"canary\r\nX-B: 1"}`:                             "headers.X-A: invalid",
			`{"X-A":"canary\u0000"}`:                                 "headers.X-A: invalid",
			`{"X-A":"canary\t"}`:                                     "headers.X-A: invalid",
			`{"X-A":" canary"}`:                                      "headers.X-A: invalid",
			`{"X-A":"canary ü"}`:                                     "headers.X-A: invalid",
			`{"X-A":"canary\u007f"}`:                                 "headers.X-A: invalid",
			`{"":"canary"}`:                                          "headers.: invalid",
			`{"X A":"canary"}`:                                       "headers.X A: invalid",
			`{"X-A:":"canary"}`:                                      "headers.X-A:: invalid",
			`{"Ü":"canary"}`:                                         "headers.Ü: invalid",
			`{"X-A":"canary","x-a":"canary"}`:                        "headers.x-a: duplicate",
		} {
			got := create(headers).Want(t, 422, "validation_failed")
			if fields := got.Fields(); len(fields) != 1 || fields[0] != want || strings.Contains(got.Text, "canary") {
				t.Errorf("%.60s: %v, want %s", headers, fields, want)
			}
		}
	})
	t.Run("that Keyhook, HTTP or a proxy sets are refused in every case", func(t *testing.T) {
		for _, name := range []string{
			"Host", "HOST", "User-Agent", "Content-Type", "content-length", "Content-Anything", "Connection", "Keep-Alive", "TE", "Trailer",
			"Transfer-Encoding", "Upgrade", "HTTP2-Settings", "Expect", "Accept-Encoding", "Max-Forwards", "Via", "Forwarded", "X-Forwarded-For",
			"X-Real-IP", "Proxy-Authorization", "webhook-id", "Webhook-Signature", "webhook-own", "x-acme-signature", "X-Acme-Own", "X_Acme_Signature", "content_length",
		} {
			got := create(`{"`+name+`":"canary"}`).Want(t, 422, "validation_failed")
			if fields := got.Fields(); len(fields) != 1 || fields[0] != "headers."+name+": reserved_header" {
				t.Errorf("%s: %v", name, fields)
			}
		}
		create(`{"X-Service-Signature":"allowed with another prefix","X-Acmeish":"1","Cookie":"a=b"}`).Want(t, 201, "")
	})
}

// TestSentHeaders checks that the record of an attempt has the names of its headers, until they change.
func TestSentHeaders(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	const subs = "/api/v1/webhooks/subscriptions/"
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	path := subs + sub.ID + "/"
	f.Do(t, "PATCH "+path, servertest.Bearer(token), `{"headers":{"Authorization":"Bearer canary"}}`).Want(t, 200, "")
	sub, err := f.Store.History.Subscription(t.Context(), owner.Home.RowID, sub.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.Attempted(t, owner, sub, 1)
	at := path + "deliveries/" + f.List(t, servertest.Bearer(token), path+"deliveries/").Data[0]["id"].(string) + "/"
	if got := f.Do(t, "GET "+at, servertest.Bearer(token), "").Want(t, 200, ""); !strings.Contains(got.Text, `"Authorization":"***"`) || strings.Contains(got.Text, "canary") {
		t.Errorf("%s", got.Text)
	}
	time.Sleep(2 * time.Millisecond)
	f.Do(t, "PATCH "+path, servertest.Bearer(token), `{"headers":{"X-Other":"canary"}}`).Want(t, 200, "")
	if got := f.Do(t, "GET "+at, servertest.Bearer(token), "").Want(t, 200, ""); strings.Contains(got.Text, "Authorization") || strings.Contains(got.Text, "X-Other") {
		t.Errorf("after a change: %s", got.Text)
	}
}
