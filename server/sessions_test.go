package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
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

const sessionPath = "/api/v1/session/"

// browser is a client that keeps cookies and sends them.
type browser struct {
	*http.Client
	url string
}

func newBrowser(t testing.TB, at string) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return browser{&http.Client{Jar: jar, Transport: servertest.Client.Transport}, at}
}

// do makes a request, with headers as name, value, name, value.
func (b browser) do(t testing.TB, line, body string, header ...string) servertest.Response {
	t.Helper()
	method, path, _ := strings.Cut(line, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a := servertest.Response{Response: response, Text: servertest.Read(t, response)}
	servertest.CheckResponse(t, line, a)
	return a
}

// signIn creates a session with an access token.
func (b browser) signIn(t testing.TB, token string) servertest.Response {
	t.Helper()
	return b.do(t, "POST "+sessionPath, `{"token":"`+token+`"}`).Want(t, http.StatusCreated, "")
}

// cookies returns what the browser keeps for the server.
func (b browser) cookies(t testing.TB) []*http.Cookie {
	t.Helper()
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	return b.Jar.Cookies(u)
}

func TestSession(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)

	t.Run("is created with an access token, identifies the user, and ends", func(t *testing.T) {
		b := newBrowser(t, f.URL)
		created := b.signIn(t, token.Reveal())
		if len(b.cookies(t)) != 1 || created.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("cookies %v, headers %v", b.cookies(t), created.Header)
		}
		value := b.cookies(t)[0].Value
		if strings.Contains(created.Text, value) || strings.Contains(created.Text, token.Reveal()) {
			t.Errorf("the response shows a secret: %s", created.Text)
		}
		direct := f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(token), "")
		var want, got map[string]any
		_ = json.Unmarshal([]byte(direct.Text), &want)
		_ = json.Unmarshal([]byte(created.Text), &got)
		expires, err := time.Parse(time.RFC3339, got["expires_at"].(string))
		if left := time.Until(expires); err != nil || left < 12*time.Hour-time.Minute || left > 12*time.Hour {
			t.Errorf("error %v, %s are left", err, left)
		}
		if got["kind"] != "token" || got["portal"] != nil {
			t.Errorf("kind %v, portal %v", got["kind"], got["portal"])
		}
		for _, name := range []string{"expires_at", "kind", "portal", "organizations"} {
			delete(got, name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("not as whoami (-want +got):\n%s", diff)
		}
		if again := b.do(t, "GET "+sessionPath, "").Want(t, 200, ""); again.Text != created.Text || again.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("then %v %s", again.Header, again.Text)
		}
		if whoami := b.do(t, "GET /api/v1/whoami/", "").Want(t, 200, ""); whoami.Text != direct.Text {
			t.Errorf("whoami is %s", whoami.Text)
		}
		b.do(t, "POST /api/v1/api-keys/", `{"name":"n","scope":"api_keys:read"}`).Want(t, 201, "")
		b.do(t, "GET /api/v1/plans/", "").Want(t, 403, "permission_denied")
		b.do(t, "GET /api/v1/whoami/", "", "X-Organization-Id", storagetest.Operator(t, f.Store).Home.ID).Want(t, 404, "")

		b.do(t, "DELETE "+sessionPath, "").Want(t, 204, "")
		if len(b.cookies(t)) != 0 {
			t.Errorf("the browser keeps %v", b.cookies(t))
		}
		f.Do(t, "GET /api/v1/whoami/", "", "", "Cookie", "keyhook_session="+value).Want(t, 401, "invalid_session")
		b.do(t, "DELETE "+sessionPath, "").Want(t, 401, "missing_credential")
		log := f.Do(t, "GET /api/v1/audit-events/?limit=3", servertest.Bearer(token), "").Text
		for _, want := range []string{`"type":"session_ended","actor":{"type":"user","id":"` + owner.User.ID, `"type":"session_started"`, `"target":{"type":"session","id":"ses_`} {
			if !strings.Contains(log, want) {
				t.Errorf("no %s in %s", want, log)
			}
		}
		if text := f.Log.String() + log; strings.Contains(text, value) || strings.Contains(text, token.Reveal()) {
			t.Error("a log shows a secret")
		}
	})
	t.Run("can be created with a token that an operator chose", func(t *testing.T) {
		newBrowser(t, f.URL).signIn(t, storagetest.OperatorToken)
	})
	t.Run("of an operator can act in another organization, as its token can", func(t *testing.T) {
		b := newBrowser(t, f.URL)
		b.signIn(t, storagetest.OperatorToken)
		got := b.do(t, "GET "+sessionPath, "", "X-Organization-Id", owner.Home.ID).Want(t, 200, "")
		if !strings.Contains(got.Text, owner.Home.ID) {
			t.Errorf("got %s", got.Text)
		}
	})
	t.Run("does not exist for other credentials", func(t *testing.T) {
		f.Do(t, "GET "+sessionPath, servertest.Bearer(token), "").Want(t, 404, "not_found")
		f.Do(t, "DELETE "+sessionPath, servertest.Bearer(token), "").Want(t, 404, "not_found")
		f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(token), "").Want(t, 200, "")
	})
	t.Run("is refused beside another credential", func(t *testing.T) {
		b := newBrowser(t, f.URL)
		b.signIn(t, token.Reveal())
		_, key := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		for _, as := range []string{servertest.Bearer(token), servertest.APIKey(key), "Basic x"} {
			b.do(t, "GET /api/v1/whoami/", "", "Authorization", as).Want(t, 400, "multiple_credentials")
		}
		value := "keyhook_session=" + b.cookies(t)[0].Value
		f.Do(t, "GET /api/v1/whoami/", "", "", "Cookie", value+"; "+value).Want(t, 400, "multiple_credentials")
	})
	t.Run("is replaced by signing in again", func(t *testing.T) {
		b := newBrowser(t, f.URL)
		b.signIn(t, token.Reveal())
		first := b.cookies(t)[0].Value
		b.signIn(t, token.Reveal())
		if len(b.cookies(t)) != 1 || b.cookies(t)[0].Value == first {
			t.Errorf("cookies %v", b.cookies(t))
		}
		other, theirs := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
		if got := b.signIn(t, theirs.Reveal()); !strings.Contains(got.Text, other.User.ID) || len(b.cookies(t)) != 1 { // who types a token means it
			t.Errorf("cookies %v, %s", b.cookies(t), got.Text)
		}
	})
}

func TestRefusedSession(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)

	for name, cookie := range map[string]string{
		"empty": "", "short": "x", "unknown": access.MintSession().Reveal(), "an access token": token.Reveal(),
		"too long": access.MintSession().Reveal() + "A", "not canonical": access.MintSession().Reveal()[:42] + "B",
	} {
		t.Run("that is "+name+" is refused, and the browser has to forget it", func(t *testing.T) {
			got := f.Do(t, "GET /api/v1/whoami/", "", "", "Cookie", "keyhook_session="+cookie).Want(t, 401, "invalid_session")
			if set := got.Header.Get("Set-Cookie"); !strings.HasPrefix(set, "keyhook_session=; Path=/; Max-Age=0;") {
				t.Errorf("Set-Cookie %q", set)
			}
		})
	}
	t.Run("is not read from other cookies", func(t *testing.T) {
		for _, cookie := range []string{"session=x", "keyhook_sessions=x", "Keyhook_Session=x", "__Host-keyhook_session=x", "a=b; c=d", "=", ";;"} {
			f.Do(t, "GET /api/v1/whoami/", "", "", "Cookie", cookie).Want(t, 401, "missing_credential")
			f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(token), "", "Cookie", cookie).Want(t, 200, "")
		}
	})
	for name, tt := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"nothing":                       {"", 400, "body_required"},
		"no token":                      {"{}", 422, "validation_failed"},
		"a token and a link":            {`{"token":"` + token.Reveal() + `","link":"x"}`, 422, "validation_failed"},
		"an unknown link":               {`{"link":"` + access.Mint(access.LinkPrefix).Reveal() + `"}`, 401, "invalid_link"},
		"a malformed link":              {`{"link":"ksl_x"}`, 401, "invalid_link"},
		"a token as a link":             {`{"link":"` + token.Reveal() + `"}`, 401, "invalid_link"},
		"an empty link":                 {`{"link":""}`, 401, "invalid_link"},
		"a token that is not a string":  {`{"token":1}`, 422, "validation_failed"},
		"a token that is null":          {`{"token":null}`, 422, "validation_failed"},
		"an unknown field":              {`{"token":"` + token.Reveal() + `","x":1}`, 422, "validation_failed"},
		"a token of 600 characters":     {`{"token":"` + strings.Repeat("x", 600) + `"}`, 422, "validation_failed"},
		"an empty token":                {`{"token":""}`, 401, "invalid_key"},
		"an unknown token":              {`{"token":"` + access.Mint("kat").Reveal() + `"}`, 401, "invalid_key"},
		"a token with a wrong checksum": {`{"token":"kat_` + strings.Repeat("a", 36) + `"}`, 401, "invalid_key"},
		"an API key":                    {`{"token":"` + access.Mint("svc").Reveal() + `"}`, 401, "invalid_key"},
		"the value of a session cookie": {`{"token":"` + access.MintSession().Reveal() + `"}`, 401, "invalid_key"},
		"no JSON":                       {"token=x", 400, ""},
	} {
		t.Run("is not created with "+name, func(t *testing.T) {
			b := newBrowser(t, f.URL)
			b.do(t, "POST "+sessionPath, tt.body).Want(t, tt.status, tt.code)
			if len(b.cookies(t)) != 0 {
				t.Errorf("cookies %v", b.cookies(t))
			}
		})
	}
	t.Run("is not created by an HTML form", func(t *testing.T) {
		newBrowser(t, f.URL).do(t, "POST "+sessionPath, `{"token":"`+token.Reveal()+`"}`, "Content-Type", "text/plain").Want(t, 415, "")
	})
	t.Run("ends with its token, from the next request on", func(t *testing.T) {
		clerk, token := storagetest.Member(t, f.Store, owner.Home, "clerk", access.RoleMember)
		b := newBrowser(t, f.URL)
		b.signIn(t, token.Reveal())
		b.do(t, "GET /api/v1/whoami/", "").Want(t, 200, "")
		path := "/api/v1/users/" + clerk.User.ID + "/access-tokens/" + clerk.Token.ID + "/"
		f.Do(t, "DELETE "+path, servertest.Operator, "").Want(t, 204, "")
		b.do(t, "GET /api/v1/whoami/", "").Want(t, 401, "token_revoked")
		if len(b.cookies(t)) != 0 {
			t.Errorf("the browser keeps %v", b.cookies(t))
		}
	})
}

// TestSessionCookie checks the cookie as the browser gets it.
func TestSessionCookie(t *testing.T) {
	t.Parallel()
	behindProxy := func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }
	for name, tt := range map[string]struct {
		change func(*server.Options)
		proto  string
		secure bool
	}{
		"over plain HTTP": {func(*server.Options) {}, "", false},
		"over plain HTTP, whatever the client says":      {func(*server.Options) {}, "https", false},
		"with an address of https":                       {func(o *server.Options) { o.BaseURL = "https://keys.example.com/keyhook" }, "", true},
		"with an address of http":                        {func(o *server.Options) { o.BaseURL = "http://keys.example.com" }, "", false},
		"behind a trusted proxy that speaks HTTPS":       {behindProxy, "https", true},
		"behind a trusted proxy that speaks plain HTTP":  {behindProxy, "http", false},
		"behind a trusted proxy that does not say which": {behindProxy, "", false},
		"behind a proxy that says both":                  {behindProxy, "https, http", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, tt.change)
			header := []string{"X-Forwarded-Proto", tt.proto}
			if tt.proto == "" {
				header = nil
			}
			created := f.Do(t, "POST "+sessionPath, "", `{"token":"`+storagetest.OperatorToken+`"}`, header...).Want(t, 201, "")
			checkCookie(t, created, tt.secure)
			cookie := created.Cookies()[0]
			as := append([]string{"Cookie", cookie.Name + "=" + cookie.Value}, header...)
			f.Do(t, "GET "+sessionPath, "", "", as...).Want(t, 200, "")
			if tt.secure {
				as[1] = "keyhook_session=" + cookie.Value
				f.Do(t, "GET "+sessionPath, "", "", as...).Want(t, 401, "missing_credential")
			}
		})
	}
	t.Run("behind a proxy that adds its header to that of the client", func(t *testing.T) {
		t.Parallel()
		f := build(t, behindProxy)
		r := httptest.NewRequest(http.MethodPost, sessionPath, strings.NewReader(`{"token":"`+storagetest.OperatorToken+`"}`))
		r.RemoteAddr = "127.0.0.1:1"
		r.Header = http.Header{"Content-Type": {"application/json"}, "X-Forwarded-Proto": {"https", "http"}}
		checkCookie(t, servertest.Response{Response: f.Handle(r)}, false)
	})
	t.Run("over TLS without a proxy", func(t *testing.T) {
		t.Parallel()
		listening := httptest.NewUnstartedServer(nil)
		listening.StartTLS()
		defer listening.Close()
		f := build(t, func(o *server.Options) { o.TLS = listening.TLS })
		listening.Config.Handler = f.Server
		b := newBrowser(t, listening.URL)
		b.Transport = listening.Client().Transport
		checkCookie(t, b.signIn(t, storagetest.OperatorToken), true)
		b.do(t, "GET "+sessionPath, "").Want(t, 200, "")
		b.do(t, "DELETE "+sessionPath, "").Want(t, 204, "")
		b.do(t, "GET "+sessionPath, "").Want(t, 401, "missing_credential")
	})
	t.Run("lasts no longer than its token", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := build(t)
			owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
			token := access.Mint(access.TokenPrefix)
			expires := time.Now().Add(90 * time.Second).UnixMilli()
			if _, err := f.Store.Directory.CreateToken(t.Context(), owner.Actor("", ""), owner.User.ID, owner.Home.ID, token, "", &expires); err != nil {
				t.Fatal(err)
			}
			created := f.Do(t, "POST "+sessionPath, "", `{"token":"`+token.Reveal()+`"}`).Want(t, 201, "")
			if age := created.Cookies()[0].MaxAge; age != 90 {
				t.Errorf("Max-Age %d", age)
			}
		})
	})
}

// checkCookie checks every attribute of the one cookie in a response.
func checkCookie(t *testing.T, a servertest.Response, secure bool) {
	t.Helper()
	all := a.Header.Values("Set-Cookie")
	if len(all) != 1 {
		t.Fatalf("%d cookies", len(all))
	}
	name, rest, _ := strings.Cut(all[0], "=")
	value, rest, _ := strings.Cut(rest, ";")
	wantName, wantRest := "keyhook_session", " Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"
	if secure {
		wantName, wantRest = "__Host-keyhook_session", " Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict"
	}
	if name != wantName || rest != wantRest || len(value) != 43 {
		t.Errorf("Set-Cookie %q", all[0])
	}
}

// TestCrossOrigin sends requests that a page of another site can have a browser send.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	const home = "https://keys.example.com"
	f := start(t, func(o *server.Options) { o.BaseURL = home + "/console" })
	signIn := `{"token":"` + storagetest.OperatorToken + `"}`
	created := f.Do(t, "POST "+sessionPath, "", signIn).Want(t, 201, "")
	cookie := created.Cookies()[0].Name + "=" + created.Cookies()[0].Value
	host := strings.TrimPrefix(f.URL, "http://")

	for name, tt := range map[string]struct {
		header  []string
		refused bool
	}{
		"by a client that is not a browser":                    {nil, false},
		"by the console":                                       {[]string{"Sec-Fetch-Site", "same-origin", "Origin", home}, false},
		"by the console, in an old browser":                    {[]string{"Origin", home}, false},
		"by the console at the address of the listener":        {[]string{"Origin", "http://" + host}, false},
		"by the user":                                          {[]string{"Sec-Fetch-Site", "none"}, false},
		"by another site":                                      {[]string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, true},
		"by another site that hides its origin":                {[]string{"Sec-Fetch-Site", "cross-site", "Origin", "null"}, true},
		"by another site, without an origin":                   {[]string{"Sec-Fetch-Site", "cross-site"}, true},
		"by a neighbour on the same domain":                    {[]string{"Sec-Fetch-Site", "same-site", "Origin", "https://app.example.com"}, true},
		"by another site, in an old browser":                   {[]string{"Origin", "https://evil.example"}, true},
		"by a page without an origin, in an old browser":       {[]string{"Origin", "null"}, true},
		"by the console's host over plain HTTP":                {[]string{"Origin", "http://keys.example.com"}, true},
		"by the console's host at another port":                {[]string{"Origin", home + ":8443"}, true},
		"by a site whose name begins with that of the console": {[]string{"Origin", home + ".evil.example"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			as := append([]string{"Cookie", cookie}, tt.header...)
			want := func(line, body string, header []string, status int, code string) {
				t.Helper()
				if tt.refused {
					status, code = 403, "cross_origin"
				}
				f.Do(t, line, "", body, header...).Want(t, status, code)
			}
			want("POST /api/v1/plans/", `{}`, as, 422, "")
			want("PATCH /api/v1/plans/none/", `{}`, as, 404, "")
			want("PUT /api/v1/organizations/org_x/members/usr_x/", `{}`, as, 404, "")
			want("DELETE /api/v1/plans/none/", "", as, 404, "")
			want("POST "+sessionPath, signIn, tt.header, 201, "")
			f.Do(t, "GET /api/v1/whoami/", "", "", as...).Want(t, 200, "") // reading changes nothing, and the page cannot read the response
			f.Do(t, "POST /api/v1/plans/", servertest.Operator, "{}", tt.header...).Want(t, 422, "")
			if tt.refused {
				f.Do(t, "DELETE "+sessionPath, "", "", as...).Want(t, 403, "cross_origin")
			}
		})
	}
	f.Do(t, "GET "+sessionPath, "", "", "Cookie", cookie).Want(t, 200, "")
}

func TestThrottleOfSessions(t *testing.T) {
	t.Parallel()
	request := func(f *testServer, method, body, cookie string) (status int, code string) {
		r := httptest.NewRequest(method, sessionPath, strings.NewReader(body))
		r.RemoteAddr = "198.51.100.7:1"
		r.Header.Set("Content-Type", "application/json")
		if cookie != "" {
			r.Header.Set("Cookie", "keyhook_session="+cookie)
		}
		w := httptest.NewRecorder()
		f.Server.ServeHTTP(w, r)
		var p struct{ Code string }
		_ = json.Unmarshal(w.Body.Bytes(), &p)
		return w.Code, p.Code
	}
	for name, try := range map[string]func(f *testServer) (int, string){
		"signing in with an unknown token": func(f *testServer) (int, string) {
			return request(f, "POST", `{"token":"`+access.Mint("kat").Reveal()+`"}`, "")
		},
		"signing in with a malformed token": func(f *testServer) (int, string) { return request(f, "POST", `{"token":"kat_x"}`, "") },
		"a cookie that is unknown":          func(f *testServer) (int, string) { return request(f, "GET", "", access.MintSession().Reveal()) },
		"a cookie that is malformed":        func(f *testServer) (int, string) { return request(f, "GET", "", "x") },
	} {
		t.Run("counts "+name+" as a failure", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := build(t)
				for n := range 20 {
					if status, code := try(f); status != 401 {
						t.Fatalf("%d: %d %s", n, status, code)
					}
				}
				if status, code := try(f); status != 429 || code != "too_many_failures" {
					t.Errorf("%d %s", status, code)
				}
				if status, code := request(f, "POST", `{"token":"`+storagetest.OperatorToken+`"}`, ""); status != 201 {
					t.Errorf("a good one: %d %s", status, code)
				}
			})
		})
	}
	t.Run("does not count requests that guess nothing", func(t *testing.T) {
		t.Parallel()
		f := build(t)
		for range 50 {
			if status, code := request(f, "POST", "{}", ""); status != 422 {
				t.Fatalf("%d %s", status, code)
			}
		}
	})
}

func TestSessionsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	f := build(t, func(o *server.Options) { o.Store = store })
	created := f.Do(t, "POST "+sessionPath, "", `{"token":"`+storagetest.OperatorToken+`"}`).Want(t, 201, "")
	stop()
	again, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
	f = build(t, func(o *server.Options) { o.Store = again })
	cookie := created.Cookies()[0]
	f.Do(t, "GET "+sessionPath, "", "", "Cookie", cookie.Name+"="+cookie.Value).Want(t, 200, "")
}
