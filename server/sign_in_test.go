package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// login is an identity provider that believes what the browser brings. The tests of package oidc cover the real sign-in.
type login struct {
	down  bool
	asked atomic.Int64  // how often a code was checked
	gate  chan struct{} // closed when the provider answers; nil: it answers at once
}

func (l *login) Begin(to string) (redirect, sealed string, err error) {
	if l.down {
		return "", "", fault.New(fault.Unavailable, "issuer_unavailable", "Later.").Because(errors.New("no route to it"))
	}
	return "https://login.example.com/authorize?state=" + loginState(to), url.QueryEscape(to), nil
}

// loginState is x, and another state for a page of another tab.
func loginState(to string) string {
	_, tab, _ := strings.Cut(to, "?pane=")
	return "x" + tab
}

func (l *login) Finish(_ context.Context, sealed string, answer url.Values) (who access.Identity, to string, err error) {
	page, _ := url.QueryUnescape(sealed)
	if sealed == "" || answer.Get("state") != loginState(page) {
		return who, "", fault.New(fault.Unauthenticated, "sign_in_expired", "Again.").Because(errors.New("no cookie"))
	}
	if l.asked.Add(1); l.gate != nil {
		<-l.gate
	}
	if answer.Get("code") == "forged" {
		return who, "", fault.New(fault.Unauthenticated, "sign_in_failed", "No.").Because(errors.New("the code is wrong"))
	}
	if answer.Get("code") == "broken" {
		return who, "", errors.New("a defect")
	}
	to, err = url.QueryUnescape(sealed)
	return access.Identity{Subject: answer.Get("code"), Organization: answer.Get("org")}, to, err
}

const (
	startPath    = "/console/oidc/start/"
	callbackPath = "/console/oidc/callback/"
)

// startLogin starts a server with sign-in under a path, with the owner of an organization, whose subject is "owner".
func startLogin(t *testing.T, change ...func(*server.Options)) (f *testServer, owner access.Principal) {
	t.Helper()
	f = start(t, append(change, func(o *server.Options) {
		o.BaseURL = "http://keys.example.com/keyhook"
		if o.SignIn == nil {
			o.SignIn = new(login)
		}
	})...)
	owner, _ = storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.Do(t, "PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"external_id":"owner"}`).Want(t, 200, "")
	return f, owner
}

// newGuest returns a browser that follows no redirects.
func newGuest(t *testing.T, at string) browser {
	b := newBrowser(t, at)
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return b
}

// login signs in, and returns the place to which the callback sends the browser.
func (b browser) login(t *testing.T, to, code string) string {
	t.Helper()
	b.do(t, "GET "+startPath+"?"+url.Values{"to": {to}}.Encode(), "").Want(t, http.StatusSeeOther, "")
	return b.do(t, "GET "+callbackPath+"?state=x&session_state=1&code="+code, "").Want(t, http.StatusSeeOther, "").Header.Get("Location")
}

func TestSignInWithTheIdentityProvider(t *testing.T) {
	t.Parallel()
	f, owner := startLogin(t)

	t.Run("sends the browser there and back, with a session", func(t *testing.T) {
		b := newGuest(t, f.URL)
		begun := b.do(t, "GET "+startPath+"?to="+url.QueryEscape("/console/events/?type=a&org=x"), "").Want(t, http.StatusSeeOther, "")
		if begun.Header.Get("Location") != "https://login.example.com/authorize?state=x" || begun.Header.Get("Cache-Control") != "no-store" || begun.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("headers %v", begun.Header)
		}
		if cookie := begun.Header.Get("Set-Cookie"); !strings.HasPrefix(cookie, "keyhook_sign_in_x=") || !strings.HasSuffix(cookie, "; Path=/; Max-Age=600; HttpOnly; SameSite=Lax") {
			t.Errorf("cookie %q", cookie)
		}
		ended := b.do(t, "GET "+callbackPath+"?state=x&code=owner&scope=openid", "").Want(t, http.StatusSeeOther, "")
		if to := ended.Header.Get("Location"); to != "/keyhook/console/events/?type=a&org=x" {
			t.Errorf("to %q", to)
		}
		cookies := strings.Join(ended.Header.Values("Set-Cookie"), "\n")
		if !strings.Contains(cookies, "keyhook_sign_in_x=; Path=/; Max-Age=0;") || !strings.Contains(cookies, "keyhook_session=") || !strings.Contains(cookies, "Max-Age=43200; HttpOnly; SameSite=Strict") {
			t.Errorf("cookies %s", cookies)
		}
		got := b.do(t, "GET "+sessionPath, "").Want(t, 200, "")
		if got.Field("kind") != "oidc" || !strings.Contains(got.Text, owner.User.ID) || !strings.Contains(got.Text, `"organizations":[{"id":"`+owner.Home.ID+`","name":"acme","external_id":null}]`) {
			t.Errorf("the session is %s", got.Text)
		}
		b.do(t, "POST /api/v1/api-keys/", `{"name":"n","scope":"api_keys:read"}`).Want(t, 201, "")
		b.do(t, "DELETE "+sessionPath, "").Want(t, 204, "")
		log := f.Do(t, "GET /api/v1/audit-events/?limit=9&organization=all", servertest.Operator, "").Text
		if !strings.Contains(log, `"type":"session_started","actor":{"type":"user","id":"`+owner.User.ID) || !strings.Contains(log, `"kind":"oidc"`) {
			t.Errorf("the log is %s", log)
		}
		b.do(t, "GET "+callbackPath+"?state=x&code=owner", "")
		b.do(t, "GET "+sessionPath, "").Want(t, 401, "missing_credential")
	})
	t.Run("marks its cookie as Secure where browsers use HTTPS", func(t *testing.T) {
		secure, _ := startLogin(t, func(o *server.Options) { o.SignIn = new(login) }, func(o *server.Options) { o.BaseURL = "" })
		got := secure.Do(t, "GET "+startPath, "", "", "X-Forwarded-Proto", "https")
		if strings.Contains(got.Header.Get("Set-Cookie"), "Secure") {
			t.Error("an untrusted proxy decides")
		}
		s := start(t, func(o *server.Options) { o.BaseURL, o.SignIn = "https://keys.example.com", new(login) })
		if got := s.Do(t, "GET "+startPath, "", "").Header.Get("Set-Cookie"); !strings.HasPrefix(got, "__Host-keyhook_sign_in_x=") || !strings.Contains(got, "; Secure") {
			t.Errorf("cookie %q", got)
		}
	})
	t.Run("without an identity provider has no pages", func(t *testing.T) {
		none := start(t)
		none.Do(t, "GET "+startPath, "", "").Want(t, 404, "not_found")
		none.Do(t, "GET "+callbackPath, "", "").Want(t, 404, "not_found")
	})
}

func TestSeveralTabsSignInAtOnce(t *testing.T) {
	t.Parallel()
	f, _ := startLogin(t)
	b := newGuest(t, f.URL)
	begin := func(to string) {
		b.do(t, "GET "+startPath+"?"+url.Values{"to": {to}}.Encode(), "").Want(t, http.StatusSeeOther, "")
	}
	finish := func(tab string) string {
		return b.do(t, "GET "+callbackPath+"?state=x"+tab+"&code=owner", "").Want(t, http.StatusSeeOther, "").Header.Get("Location")
	}
	for _, tab := range []string{"1", "2", "3", "4", "5"} {
		begin("/console/events/?pane=" + tab)
	}
	if to := finish("1"); !strings.Contains(to, "sign_in_expired") {
		t.Errorf("the oldest of five tabs goes to %q", to)
	}
	for _, tab := range []string{"2", "5", "3", "4"} {
		if to := finish(tab); to != "/keyhook/console/events/?pane="+tab {
			t.Errorf("tab %s goes to %q", tab, to)
		}
	}
	if to := finish("2"); !strings.Contains(to, "sign_in_expired") {
		t.Errorf("a tab that has signed in goes to %q", to)
	}
	begin("/console/events/?pane=6")
	begin("/console/" + strings.Repeat("x", 1900) + "?pane=7")
	begin("/console/" + strings.Repeat("x", 1900) + "?pane=8")
	begin("/console/" + strings.Repeat("x", 1900) + "?pane=9")
	for tab, want := range map[string]bool{"6": false, "7": false, "8": true, "9": true} {
		if to := finish(tab); strings.Contains(to, "?pane="+tab) != want {
			t.Errorf("tab %s, beside long pages, goes to %q", tab, to)
		}
	}
}

// TestManyCookiesOfSignIns sends what no browser sends, but anybody may send. The response must stay small.
func TestManyCookiesOfSignIns(t *testing.T) {
	t.Parallel()
	f, _ := startLogin(t)
	cookies := []string{"Cookie", strings.Repeat("keyhook_sign_in_a=;", 800)}
	got := f.Do(t, "GET "+startPath, "", "", cookies...).Want(t, http.StatusSeeOther, "").Header.Values("Set-Cookie")
	if n := len(got); n < 2 || n > 10 || !strings.HasPrefix(got[n-1], "keyhook_sign_in_x=%2Fconsole%2F;") {
		t.Errorf("%d cookies, the last is %q", n, got[n-1])
	}
}

func TestWhereASignInLeads(t *testing.T) {
	t.Parallel()
	f, _ := startLogin(t)
	for _, to := range []string{"/console/", "/console", "/console/subscriptions/sub_x/?tab=1", "/console/events/?type=a%2F..%2Fb", "/console/a%20b"} {
		t.Run("is the page that was named: "+to, func(t *testing.T) {
			if got := newGuest(t, f.URL).login(t, to, "owner"); got != "/keyhook"+to {
				t.Errorf("it is %q", got)
			}
		})
	}
	for _, to := range []string{
		"", "/", "console/", "/consolex/", "//evil.example", "//evil.example/console/", `/\evil.example`, `/console/\evil`, "/console/%5cevil",
		"https://evil.example/console/", "https:/console/", "javascript:alert(1)", "/console/..//evil.example", "/console/../api/v1/", "/console/%2e%2e/docs/",
		"/console/a/../../docs/", "/console/./x", "/console//evil.example", "/console/%2f/evil", "/console/oidc/start/", "/console/oidc/callback/?code=1&state=x",
		"/console/#link=ksl_x", "/console/ x", "/console/\tx", "/console/\r\nSet-Cookie: a=b", "/console/é", "/console/%zz", "/console/" + strings.Repeat("x", 2000),
	} {
		t.Run("is no other place: "+to[:min(len(to), 40)], func(t *testing.T) {
			b := newGuest(t, f.URL)
			got := b.do(t, "GET "+startPath+"?"+url.Values{"to": {to}}.Encode(), "").Want(t, 400, "invalid_parameter")
			if got.Header.Get("Set-Cookie") != "" || got.Header.Get("Location") != "" {
				t.Errorf("headers %v", got.Header)
			}
		})
		t.Run("is no other place, whatever the cookie says: "+to[:min(len(to), 40)], func(t *testing.T) {
			got := f.Do(t, "GET "+callbackPath+"?state=x&code=owner", "", "", "Cookie", "keyhook_sign_in_x="+url.QueryEscape(to)+"+")
			if place := got.Header.Get("Location"); !strings.HasPrefix(place, "/keyhook/console/") || strings.Contains(place, "evil") {
				t.Errorf("it is %q", place)
			}
		})
	}
	t.Run("is the first page if none is named", func(t *testing.T) {
		b := newGuest(t, f.URL)
		b.do(t, "GET "+startPath, "").Want(t, http.StatusSeeOther, "")
		if to := b.do(t, "GET "+callbackPath+"?state=x&code=owner", "").Header.Get("Location"); to != "/keyhook/console/" {
			t.Errorf("it is %q", to)
		}
		b.do(t, "GET "+startPath+"?next=/console/", "").Want(t, 400, "unknown_parameter")
	})
}

// finishFrom finishes a sign-in from an address.
func finishFrom(f *testServer, address, cookie, code string) http.Header {
	r := httptest.NewRequest(http.MethodGet, callbackPath+"?state=x&code="+code, nil)
	r.RemoteAddr = address + ":1"
	r.Header.Set("Cookie", cookie)
	w := httptest.NewRecorder()
	f.Server.ServeHTTP(w, r)
	return w.Header()
}

// begunCookie is the cookie of a sign-in that has begun.
const begunCookie = "keyhook_sign_in_x=%2Fconsole%2F"

// TestManySignInsAtOnce counts the attempts of an address before the identity provider has answered.
func TestManySignInsAtOnce(t *testing.T) {
	t.Parallel()
	provider := &login{gate: make(chan struct{})}
	f, _ := startLogin(t, func(o *server.Options) { o.SignIn = provider })
	ended := make(chan string, 100)
	for i := range cap(ended) {
		code := "forged"
		if i%2 == 0 {
			code = "owner"
		}
		go func() { ended <- finishFrom(f, "198.51.100.13", begunCookie, code).Get("Location") }()
	}
	refused := 0 // at once; the others wait for the provider
	for refused+int(provider.asked.Load()) < cap(ended) {
		select {
		case to := <-ended:
			if refused++; !strings.Contains(to, "too_many_failures") {
				t.Errorf("to %q", to)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	close(provider.gate)
	signedIn := 0
	for range cap(ended) - refused {
		if to := <-ended; to == "/keyhook/console/" {
			signedIn++
		}
	}
	if n := provider.asked.Load(); n > 25 { // 20, and one more every 3 s
		t.Errorf("it was asked %d times", n)
	}
	for range signedIn { // a sign-in that succeeds is no failure
		if to := finishFrom(f, "198.51.100.13", begunCookie, "owner").Get("Location"); to != "/keyhook/console/" {
			t.Errorf("after %d sign-ins, to %q", signedIn, to)
		}
	}
	if signedIn == 0 {
		t.Error("nobody has signed in") // chance: one in a million
	}
}

func TestSignInsThatTheBrowserLeaves(t *testing.T) {
	t.Parallel()
	provider := new(login)
	f, _ := startLogin(t, func(o *server.Options) { o.SignIn = provider })
	left, leave := context.WithCancel(t.Context())
	leave()
	for range 40 {
		r := httptest.NewRequestWithContext(left, http.MethodGet, callbackPath+"?state=x&code=broken", nil)
		r.RemoteAddr = "198.51.100.14:1"
		r.Header.Set("Cookie", begunCookie)
		f.Server.ServeHTTP(httptest.NewRecorder(), r)
	}
	if n := provider.asked.Load(); n > 25 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestRefusedSignIn(t *testing.T) {
	t.Parallel()
	f, owner := startLogin(t)
	// refused expects that the callback sends the browser to the console with a code, and starts no session.
	refused := func(t *testing.T, b browser, query, code string) {
		t.Helper()
		got := b.do(t, "GET "+callbackPath+"?"+query, "").Want(t, http.StatusSeeOther, "")
		want := "/keyhook/console/?error=" + code + "&request_id=" + got.Header.Get("X-Request-Id")
		if place := got.Header.Get("Location"); place != want || strings.Contains(strings.Join(got.Header.Values("Set-Cookie"), ""), "keyhook_session") || got.Text != "" {
			t.Errorf("to %q, cookies %q, body %q", place, got.Header.Values("Set-Cookie"), got.Text)
		}
		b.do(t, "GET "+sessionPath, "").Want(t, 401, "missing_credential")
	}
	begun := func(t *testing.T) browser {
		b := newGuest(t, f.URL)
		b.do(t, "GET "+startPath, "").Want(t, http.StatusSeeOther, "")
		return b
	}
	t.Run("in a browser that has not begun it, so nobody can sign in another person", func(t *testing.T) {
		refused(t, newGuest(t, f.URL), "state=x&code=owner", "sign_in_expired")
	})
	t.Run("a second time, because the cookie is gone", func(t *testing.T) {
		b := begun(t)
		b.do(t, "GET "+callbackPath+"?state=x&code=nobody", "")
		refused(t, b, "state=x&code=owner", "sign_in_expired")
	})
	t.Run("with two cookies", func(t *testing.T) {
		got := f.Do(t, "GET "+callbackPath+"?state=x&code=owner", "", "", "Cookie", "keyhook_sign_in_x=%2F; keyhook_sign_in_x=%2F")
		if !strings.Contains(got.Header.Get("Location"), "sign_in_expired") {
			t.Errorf("to %q", got.Header.Get("Location"))
		}
	})
	t.Run("of an unknown user, and of one who is no member", func(t *testing.T) {
		refused(t, begun(t), "state=x&code=nobody", "unknown_user")
		refused(t, begun(t), "state=x&code=owner&org="+storagetest.Operator(t, f.Store).Home.ID, "not_a_member")
	})
	t.Run("of an inactive user, whose sessions end too", func(t *testing.T) {
		b := newGuest(t, f.URL)
		b.login(t, "/console/", "owner")
		b.do(t, "GET "+sessionPath, "").Want(t, 200, "")
		f.Do(t, "PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"is_active":false}`).Want(t, 200, "")
		b.do(t, "GET "+sessionPath, "").Want(t, 401, "user_inactive")
		refused(t, begun(t), "state=x&code=owner", "user_inactive")
		f.Do(t, "PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"is_active":true}`).Want(t, 200, "")
	})
	t.Run("while the identity provider is down", func(t *testing.T) {
		down, _ := startLogin(t, func(o *server.Options) { o.SignIn = &login{down: true} })
		got := down.Do(t, "GET "+startPath, "", "").Want(t, http.StatusSeeOther, "")
		if !strings.HasPrefix(got.Header.Get("Location"), "/keyhook/console/?error=issuer_unavailable&") || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("headers %v", got.Header)
		}
		if !strings.Contains(down.Log.String(), "no route to it") {
			t.Error("the log has no cause")
		}
	})
	t.Run("by a defect is an error of the server", func(t *testing.T) {
		begun(t).do(t, "GET "+callbackPath+"?state=x&code=broken", "").Want(t, 500, "internal_error")
	})
	t.Run("after too many failures of the address, but not for its neighbours", func(t *testing.T) {
		for range 20 {
			finishFrom(f, "198.51.100.9", begunCookie, "nobody")
		}
		if to := finishFrom(f, "198.51.100.9", begunCookie, "nobody").Get("Location"); !strings.Contains(to, "too_many_failures") {
			t.Errorf("to %q", to)
		}
		if to := finishFrom(f, "198.51.100.9", begunCookie, "owner").Get("Location"); to != "/keyhook/console/" {
			t.Errorf("a neighbour goes to %q", to)
		}
	})
	t.Run("not after invalid keys from its address", func(t *testing.T) {
		f.exhaust(t, "198.51.100.14:1")
		if to := finishFrom(f, "198.51.100.14", begunCookie, "owner").Get("Location"); to != "/keyhook/console/" {
			t.Errorf("to %q", to)
		}
		f.report(t, "198.51.100.14:1", "x").Want(t, http.StatusNoContent, "")
	})
	t.Run("after too many codes that the identity provider refused, without asking it again", func(t *testing.T) {
		provider := new(login)
		guessed, _ := startLogin(t, func(o *server.Options) { o.SignIn = provider })
		for range 40 {
			finishFrom(guessed, "198.51.100.9", begunCookie, "forged")
		}
		if n := provider.asked.Load(); n > 25 {
			t.Errorf("it was asked %d times", n)
		}
		if h := finishFrom(guessed, "198.51.100.9", begunCookie, "owner"); !strings.Contains(h.Get("Location"), "too_many_failures") || h.Get("Retry-After") == "" {
			t.Errorf("headers %v", h)
		}
		if to := finishFrom(guessed, "198.51.100.10", begunCookie, "owner").Get("Location"); to != "/keyhook/console/" {
			t.Errorf("another address goes to %q", to)
		}
	})
	t.Run("without a cookie is no failure of the address, because any site can send a browser here", func(t *testing.T) {
		for range 40 {
			finishFrom(f, "198.51.100.11", "", "owner")
		}
		if to := finishFrom(f, "198.51.100.11", begunCookie, "owner").Get("Location"); to != "/keyhook/console/" {
			t.Errorf("to %q", to)
		}
	})
	t.Run("by a defect is no failure of the address either", func(t *testing.T) {
		for range 40 {
			finishFrom(f, "198.51.100.12", begunCookie, "broken")
		}
		if to := finishFrom(f, "198.51.100.12", begunCookie, "owner").Get("Location"); to != "/keyhook/console/" {
			t.Errorf("to %q", to)
		}
	})
	if log := f.Log.String(); !strings.Contains(log, `"code":"sign_in_expired","cause":"no cookie"`) || strings.Contains(log, "state=x") {
		t.Error("the log has no cause, or a query")
	}
}

func TestASessionOfSeveralOrganizations(t *testing.T) {
	t.Parallel()
	f, owner := startLogin(t)
	second, _ := storagetest.Organization(t, f.Store, "second", "growth", access.RoleMember)
	f.Do(t, "PUT /api/v1/organizations/"+second.Home.ID+"/members/"+owner.User.ID+"/", servertest.Operator, `{"role":"member"}`).Want(t, 200, "")
	b := newGuest(t, f.URL)
	b.login(t, "/console/", "owner")

	t.Run("lists them", func(t *testing.T) {
		got := b.do(t, "GET "+sessionPath, "").Want(t, 200, "")
		if !strings.Contains(got.Text, `"organizations":[{"id":"`+owner.Home.ID+`","name":"acme","external_id":null},{"id":"`+second.Home.ID+`","name":"second","external_id":null}]`) {
			t.Errorf("it is %s", got.Text)
		}
	})
	t.Run("acts in the one that the header names, with the role there", func(t *testing.T) {
		got := b.do(t, "GET "+sessionPath, "", "X-Organization-Id", second.Home.ID).Want(t, 200, "")
		if !strings.Contains(got.Text, `"organization":{"id":"`+second.Home.ID) {
			t.Errorf("it is %s", got.Text)
		}
		b.do(t, "POST /api/v1/api-keys/", `{"name":"n","scope":"api_keys:read"}`, "X-Organization-Id", second.Home.ID).Want(t, 403, "permission_denied")
		b.do(t, "POST /api/v1/api-keys/", `{"name":"n","scope":"api_keys:read"}`).Want(t, 201, "")
	})
	t.Run("does not act in those of others", func(t *testing.T) {
		b.do(t, "GET /api/v1/whoami/", "", "X-Organization-Id", storagetest.Operator(t, f.Store).Home.ID).Want(t, 404, "not_found")
	})
	t.Run("ends there when the membership ends, and as a whole with that of its own organization", func(t *testing.T) {
		remove := func(o access.Organization) {
			f.Do(t, "DELETE /api/v1/organizations/"+o.ID+"/members/"+owner.User.ID+"/", servertest.Operator, "").Want(t, 204, "")
		}
		remove(second.Home)
		b.do(t, "GET /api/v1/whoami/", "", "X-Organization-Id", second.Home.ID).Want(t, 404, "not_found")
		b.do(t, "GET /api/v1/whoami/", "").Want(t, 200, "")
		remove(owner.Home)
		b.do(t, "GET /api/v1/whoami/", "").Want(t, 401, "user_inactive")
	})
}

func TestASessionInTheOrganizationThatTheIssuerNamed(t *testing.T) {
	t.Parallel()
	f, owner := startLogin(t)
	second, _ := storagetest.Organization(t, f.Store, "second", "growth", access.RoleMember)
	f.Do(t, "PUT /api/v1/organizations/"+second.Home.ID+"/members/"+owner.User.ID+"/", servertest.Operator, `{"role":"member"}`).Want(t, 200, "")
	b := newGuest(t, f.URL)
	b.login(t, "/console/", "owner&org="+second.Home.ID)
	got := b.do(t, "GET "+sessionPath, "").Want(t, 200, "")
	if !strings.Contains(got.Text, `"organization":{"id":"`+second.Home.ID) || !strings.Contains(got.Text, `"organizations":[]`) {
		t.Errorf("the session is %s", got.Text)
	}
	b.do(t, "GET /api/v1/whoami/", "", "X-Organization-Id", owner.Home.ID).Want(t, 404, "not_found")
}
