package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// halfSent is a request whose body has not arrived in full.
type halfSent struct {
	line   string
	conn   net.Conn
	reader *bufio.Reader
	rest   string
}

// sendHalf sends a request without the last byte of its body. It returns when the server reads the body: the credential has passed
// its checks. header has the credential, as "Name: value" lines.
func sendHalf(t *testing.T, conn net.Conn, line, body string, header ...string) halfSent {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	header = append(header, "Host: x", "Content-Type: application/json", "Expect: 100-continue", fmt.Sprint("Content-Length: ", len(body)))
	if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\n%s\r\n\r\n", line, strings.Join(header, "\r\n")); err != nil {
		t.Fatal(err)
	}
	h := halfSent{line, conn, bufio.NewReader(conn), body[len(body)-1:]}
	status, err := h.reader.ReadString('\n')
	if err != nil || !strings.Contains(status, "100 Continue") {
		t.Fatalf("%s: the server does not read the body: %q %v", line, status, err)
	}
	if _, err := h.reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, body[:len(body)-1]); err != nil {
		t.Fatal(err)
	}
	return h
}

// finish sends the last byte and returns the response.
func (h halfSent) finish(t *testing.T) servertest.Response {
	t.Helper()
	if _, err := io.WriteString(h.conn, h.rest); err != nil {
		t.Fatal(err)
	}
	method, path, _ := strings.Cut(h.line, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(h.reader, request)
	if err != nil {
		t.Fatal(err)
	}
	a := servertest.Response{Response: response, Text: servertest.Read(t, response)}
	servertest.CheckResponse(t, h.line, a)
	return a
}

func (f *testServer) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

var auditID = regexp.MustCompile(`aud_\w+`)

// changes returns the ids of all audit events. Every change has one.
func (f *testServer) changes(t *testing.T) []string {
	t.Helper()
	all := f.Do(t, "GET /api/v1/audit-events/?limit=200&organization=all", servertest.Operator, "").Want(t, 200, "")
	return auditID.FindAllString(all.Text, -1)
}

// TestWithdrawnWhileAnyBodyArrives walks all routes with a body. The body is wrong in most of them: without the second check, the
// response would say so.
func TestWithdrawnWhileAnyBodyArrives(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOperator)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"clerk","permissions":[]}`).Want(t, 201, "")
	real := fill(key.ID, sub.ID, "", "", owner.Organization.ID, owner.User.ID, "", "", "growth", "orders:read", "order.paid")
	for _, r := range f.Server.Routes() {
		if r.Open || r.Body == 0 {
			continue // the only open one with a body is the sign-in, which checks the credential in its body
		}
		t.Run("is refused by "+line(r), func(t *testing.T) {
			_, token := storagetest.Member(t, f.Store, owner.Organization, fmt.Sprint("member", strings.Count(f.Log.String(), "\n")), access.RoleOperator)
			path := real.Replace(strings.Replace(r.Pattern, "roles/{name}", "roles/clerk", 1))
			half := sendHalf(t, f.dial(t), r.Method+" "+path, `{"nobody": 1}`, "Authorization: "+servertest.Bearer(token))
			who := f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(token), "")
			_, id, _ := strings.Cut(who.Text, `"id":"`)
			id, _, _ = strings.Cut(id, `"`)
			f.Do(t, "PATCH /api/v1/users/"+id+"/", servertest.Operator, `{"is_active":false}`).Want(t, 200, "")
			half.finish(t).Want(t, 401, "user_inactive")
		})
	}
}

// withdrawn is a customer with every kind of credential.
type withdrawn struct {
	*testServer
	owner   access.Principal // also a member of other
	other   access.Principal
	sub     string
	token   access.Credential
	key     access.Credential
	keyID   string
	session browser
}

func newWithdrawn(t *testing.T) *withdrawn {
	t.Helper()
	f := start(t, withIssuer(new(unsignedIssuer)), func(o *server.Options) {
		o.ConsoleURL, o.SignIn = "https://keys.example.com/keyhook/", new(login)
	})
	w := &withdrawn{testServer: f}
	w.owner, w.token = storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	w.other, _ = storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, w.owner, "https://example.com/")
	w.sub = sub.ID
	key, credential := storagetest.Key(t, f.Store, w.owner, access.WebhooksWrite)
	w.key, w.keyID = credential, key.ID
	w.change(t, "PATCH /api/v1/users/"+w.owner.User.ID+"/", `{"external_id":"owner"}`)
	w.session = newBrowser(t, f.URL)
	w.session.signIn(t, w.token.Reveal())
	return w
}

// change makes a request of an operator, which must succeed.
func (w *withdrawn) change(t *testing.T, line, body string) servertest.Response {
	t.Helper()
	line = strings.NewReplacer(
		"USER", w.owner.User.ID, "ORG", w.owner.Organization.ID,
		"MEMBER", "/api/v1/organizations/"+w.owner.Organization.ID+"/members/"+w.owner.User.ID+"/",
		"OTHER", "/api/v1/organizations/"+w.other.Organization.ID+"/members/"+w.owner.User.ID+"/",
	).Replace(line)
	got := w.Do(t, line, servertest.Operator, body)
	if got.StatusCode >= 300 {
		t.Fatalf("%s: %d %s", line, got.StatusCode, got.Text)
	}
	return got
}

func (b browser) header(t *testing.T) string {
	c := b.cookies(t)[0]
	return "Cookie: " + c.Name + "=" + c.Value
}

// TestWithdrawnWhileTheBodyArrives sends a valid request to rotate a secret with every kind of credential. The tokens of an erased user
// are revoked soon after, so the code of that refusal depends on the moment.
func TestWithdrawnWhileTheBodyArrives(t *testing.T) {
	t.Parallel()
	byKey := func(_ *testing.T, w *withdrawn) []string {
		return []string{"Authorization: " + servertest.APIKey(w.key)}
	}
	byToken := func(_ *testing.T, w *withdrawn) []string {
		return []string{"Authorization: " + servertest.Bearer(w.token)}
	}
	byIssuer := func(_ *testing.T, w *withdrawn) []string { return []string{"Authorization: " + foreign("owner")} }
	bySession := func(t *testing.T, w *withdrawn) []string { return []string{w.session.header(t)} }
	byPortal := func(t *testing.T, w *withdrawn) []string {
		w.session.Jar = newBrowser(t, w.URL).Jar
		w.session.do(t, "POST "+sessionPath, `{"link":"`+w.portalLink(t, w.owner.Organization.ID, `{"role":"owner"}`)+`"}`).Want(t, 201, "")
		return []string{w.session.header(t)}
	}
	bySwitched := func(t *testing.T, w *withdrawn) []string { // at home in the one organization, at work in the other
		w.change(t, "PUT OTHER", `{"role":"owner"}`)
		guest := newGuest(t, w.URL)
		guest.login(t, "/console/", "owner")
		sub, _ := storagetest.Subscription(t, w.Store, w.other, "https://other.example/")
		w.session, w.sub = guest, sub.ID
		return []string{guest.header(t), "X-Organization-Id: " + w.other.Organization.ID}
	}
	byOperatorElsewhere := func(t *testing.T, w *withdrawn) []string {
		w.change(t, "PUT MEMBER", `{"role":"operator"}`)
		sub, _ := storagetest.Subscription(t, w.Store, w.other, "https://other.example/")
		w.sub = sub.ID
		return []string{"Authorization: " + servertest.Bearer(w.token), "X-Organization-Id: " + w.other.Organization.ID}
	}
	as := func(line, body string) func(*testing.T, *withdrawn) {
		return func(t *testing.T, w *withdrawn) { w.change(t, line, body) }
	}
	erase := func(t *testing.T, w *withdrawn) { // until the keys of the user have ended, which is in the audit log
		for !strings.Contains(w.change(t, "POST /api/v1/users/USER/erase/", "").Text, `"complete":true`) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	revoke := func(t *testing.T, w *withdrawn) {
		w.session.do(t, "DELETE /api/v1/api-keys/"+w.keyID+"/", "").Want(t, 204, "")
	}
	end := func(t *testing.T, w *withdrawn) { w.session.do(t, "DELETE "+sessionPath, "").Want(t, 204, "") }
	for name, tt := range map[string]struct {
		credential func(*testing.T, *withdrawn) []string
		withdraw   func(*testing.T, *withdrawn)
		status     int
		code       string
	}{
		"a key that is revoked":                         {byKey, revoke, 401, "key_revoked"},
		"a key whose creator is deactivated":            {byKey, as("PATCH /api/v1/users/USER/", `{"is_active":false}`), 401, "creator_inactive"},
		"a key whose creator has another role":          {byKey, as("PUT MEMBER", `{"role":"member"}`), 403, "permission_denied"},
		"a key whose plan includes no keys":             {byKey, as("PATCH /api/v1/organizations/ORG/", `{"plan":"free"}`), 403, "plan_capability_required"},
		"a token whose user is erased":                  {byToken, erase, 401, ""},
		"a token whose user is no member":               {byToken, as("DELETE MEMBER", ""), 401, "user_inactive"},
		"a token whose organization is closed":          {byToken, as("POST /api/v1/organizations/ORG/close/", ""), 401, "token_revoked"},
		"a token of the issuer, user is deactivated":    {byIssuer, as("PATCH /api/v1/users/USER/", `{"is_active":false}`), 401, "user_inactive"},
		"a token of the issuer, user is no member":      {byIssuer, as("DELETE MEMBER", ""), 401, "not_a_member"},
		"a session whose user is deactivated":           {bySession, as("PATCH /api/v1/users/USER/", `{"is_active":false}`), 401, "user_inactive"},
		"a session that is ended":                       {bySession, end, 401, "invalid_session"},
		"a portal session that is ended":                {byPortal, end, 401, "invalid_session"},
		"a switched session that is ended":              {bySwitched, end, 401, "invalid_session"},
		"a switched session, user is no member":         {bySwitched, as("DELETE OTHER", ""), 404, "not_found"},
		"a switched session, user has another role":     {bySwitched, as("PUT OTHER", `{"role":"member"}`), 403, "permission_denied"},
		"an operator elsewhere with another role":       {byOperatorElsewhere, as("PUT MEMBER", `{"role":"owner"}`), 404, "not_found"},
		"a portal session whose organization is closed": {byPortal, as("POST /api/v1/organizations/ORG/close/", ""), 401, "user_inactive"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			w := newWithdrawn(t)
			header := tt.credential(t, w)
			request := "POST /api/v1/webhooks/subscriptions/" + w.sub + "/rotate-secret/"
			half := sendHalf(t, w.dial(t), request, `{"overlap_seconds":0}`, header...)
			tt.withdraw(t, w)
			before := w.changes(t)
			got := half.finish(t).Want(t, tt.status, tt.code)
			if strings.Contains(got.Text, "whsec_") {
				t.Errorf("the response shows a secret: %s", got.Text)
			}
			if diff := cmp.Diff(before, w.changes(t)); diff != "" {
				t.Errorf("something was written (-before +after):\n%s", diff)
			}
			if strings.Contains(w.Log.String(), `"user":""`) {
				t.Error("the log does not name the user")
			}
		})
	}
}

// TestExpiredWhileTheBodyArrives has a key that expires while the body of its request arrives.
func TestExpiredWhileTheBodyArrives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		owner, _ := storagetest.Organization(t, s.Store, "acme", "growth", access.RoleOwner)
		credential := access.Mint("svc")
		if _, err := s.Store.Directory.CreateKey(t.Context(), owner, owner.Actor("", ""), access.NewKey{
			Credential: credential, Name: "n", Scope: access.NewScope(access.EventsWrite), ExpiresAt: new(time.Now().Add(5 * time.Second).UnixMilli()),
		}); err != nil {
			t.Fatal(err)
		}
		half := sendHalf(t, s.pipes.connect("192.0.2.1"), "POST /api/v1/events/", `{"type":"a","data":{}}`, "Authorization: "+servertest.APIKey(credential))
		time.Sleep(6 * time.Second)
		half.finish(t).Want(t, 401, "key_expired")
		s.stop()
		<-s.done
	})
}

// TestTheOrganizationAfterTheBody sends a request for another organization than that of the credential. The credential is checked twice,
// because another principal changes meanwhile.
func TestTheOrganizationAfterTheBody(t *testing.T) {
	t.Parallel()
	for name, credential := range map[string]func(t *testing.T, w *withdrawn) string{
		"an operator's token": func(*testing.T, *withdrawn) string { return "Authorization: " + servertest.Operator },
		"a back end's key": func(t *testing.T, w *withdrawn) string {
			_, key := storagetest.Key(t, w.Store, storagetest.Operator(t, w.Store), access.WebhooksWrite, access.PlatformActAs)
			return "Authorization: " + servertest.APIKey(key)
		},
		"a token of the issuer": func(t *testing.T, w *withdrawn) string {
			w.change(t, "PUT OTHER", `{"role":"owner"}`)
			return "Authorization: " + foreign("owner")
		},
		"a session": func(t *testing.T, w *withdrawn) string {
			w.change(t, "PUT OTHER", `{"role":"owner"}`)
			guest := newGuest(t, w.URL)
			guest.login(t, "/console/", "owner")
			return guest.header(t)
		},
	} {
		t.Run("is the one that the header names, for "+name, func(t *testing.T) {
			t.Parallel()
			w := newWithdrawn(t)
			header, body := credential(t, w), `{"url":"https://example.com/","event_types":["a"]}`
			half := sendHalf(t, w.dial(t), "POST /api/v1/webhooks/subscriptions/", body, header, "X-Organization-Id: "+w.other.Organization.ID)
			w.change(t, "PATCH /api/v1/users/"+w.other.User.ID+"/", `{"name":"n"}`)
			if got := half.finish(t).Want(t, 201, ""); got.Field("organization_id") != w.other.Organization.ID {
				t.Errorf("it was made in another organization: %s", got.Text)
			}
		})
	}
}

// TestAnotherChangeWhileTheBodyArrives changes another principal, so that the credential is checked twice.
func TestAnotherChangeWhileTheBodyArrives(t *testing.T) {
	t.Parallel()
	w := newWithdrawn(t)
	request := "PATCH /api/v1/webhooks/subscriptions/" + w.sub + "/"
	half := sendHalf(t, w.dial(t), request, `{"description":"x"}`, "Authorization: "+servertest.APIKey(w.key))
	w.change(t, "PATCH /api/v1/users/"+w.other.User.ID+"/", `{"is_active":false}`)
	got := half.finish(t).Want(t, 200, "")
	next := w.Do(t, "GET /api/v1/whoami/", servertest.APIKey(w.key), "").Want(t, 200, "")
	if first, second := got.Header.Get("X-RateLimit-Remaining"), next.Header.Get("X-RateLimit-Remaining"); first != "599" || second != "598" {
		t.Errorf("%s requests remain, then %s, want 599 and 598", first, second)
	}
}
