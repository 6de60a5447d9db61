package oidc_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/oidc"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

const (
	clientID     = "the console"
	clientSecret = "p%ss:word"
	callback     = "https://keys.example.com/keyhook/console/oidc/callback/"
)

// login is an issuer with a token endpoint, and a sign-in with it.
type login struct {
	*issuer
	*oidc.SignIn
	verifier verifier
	t        testing.TB

	claims map[string]any // changes those of the ID token
	asked  http.Header    // of the last request to the token endpoint
	form   url.Values     // of that request
	codes  atomic.Int64   // codes exchanged
}

func newLogin(t testing.TB, secret string, methods ...string) *login {
	t.Helper()
	l := &login{issuer: newIssuer(keys().rsa), t: t, claims: map[string]any{}}
	if methods != nil {
		l.discovery = map[string]any{"token_endpoint_auth_methods_supported": methods}
	}
	l.tokens = l.exchange
	l.verifier = run(t, l.issuer)
	l.SignIn = oidc.NewSignIn(l.verifier.Verifier, oidc.SignInOptions{ClientID: clientID, Secret: redact.New(secret), RedirectURL: callback})
	return l
}

// exchange is the token endpoint. The code is "CHALLENGE NONCE".
func (l *login) exchange(w http.ResponseWriter, r *http.Request) {
	l.codes.Add(1)
	_ = r.ParseForm()
	l.asked, l.form = r.Header, r.PostForm
	w.Header().Set("Content-Type", "application/json")
	challenge, nonce, _ := strings.Cut(r.PostForm.Get("code"), " ")
	if sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier"))); b64(sum[:]) != challenge {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant","error_description":"<script>the secret body</script>"}`)
		return
	}
	made := l.token(keys().rsa)
	made.claims["aud"], made.claims["nonce"] = clientID, nonce
	maps.Copy(made.claims, l.claims)
	maps.DeleteFunc(made.claims, func(_ string, v any) bool { return v == nil })
	json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": made.encode(l.t)})
}

// begin begins a sign-in, and returns what the issuer sends back with the browser.
func (l *login) begin(t testing.TB) (sealed string, answer url.Values) {
	t.Helper()
	for try := 0; ; try++ {
		redirect, sealed, err := l.Begin("/console/events/")
		if fault.KindOf(err) == fault.Unavailable && try < 500 { // the issuer has not responded yet
			<-time.After(10 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(redirect)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		return sealed, url.Values{"state": {q.Get("state")}, "code": {q.Get("code_challenge") + " " + q.Get("nonce")}}
	}
}

// want finishes a sign-in and expects a refusal, or success if the code is empty.
func (l *login) want(t testing.TB, sealed string, answer url.Values, code string) {
	t.Helper()
	who, to, err := l.Finish(t.Context(), sealed, answer)
	if code == "" {
		if err != nil || who.Subject != "u-1" || to != "/console/events/" {
			t.Fatalf("%+v to %q, error %v", who, to, err)
		}
		return
	}
	f, _ := fault.As(err)
	if f == nil || f.Code != code || who != (access.Identity{}) || to != "" {
		t.Fatalf("%+v to %q, error %v; want %s", who, to, err, code)
	}
	if f.Message == "" || f.Unwrap() == nil && code != "sign_in_denied" {
		t.Errorf("message %q, cause %v", f.Message, f.Unwrap())
	}
	if text := fmt.Sprint(f, f.Unwrap()); strings.Contains(text, "<script>") || strings.Contains(text, clientSecret) || strings.ContainsAny(text, "\n\x1b") {
		t.Errorf("the error quotes a response, or a secret: %q", text)
	}
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	t.Run("sends the browser to the issuer, with state, nonce and challenge", func(t *testing.T) {
		t.Parallel()
		l := newLogin(t, clientSecret)
		l.begin(t)
		redirect, _, err := l.Begin("/console/")
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(redirect)
		q := u.Query()
		random := map[string]bool{}
		for _, name := range []string{"state", "nonce", "code_challenge"} {
			if len(q.Get(name)) < 22 || random[q.Get(name)] {
				t.Errorf("%s is %q", name, q.Get(name))
			}
			random[q.Get(name)] = true
			q.Del(name)
		}
		want := url.Values{
			"tenant": {"1"}, "client_id": {clientID}, "redirect_uri": {callback}, "response_type": {"code"},
			"scope": {"openid email"}, "code_challenge_method": {"S256"},
		}
		if d := cmp.Diff(want, q); d != "" || !strings.HasPrefix(redirect, l.url+"/authorize?") {
			t.Errorf("%s (-want +got):\n%s", redirect, d)
		}
	})
	t.Run("returns the person, and works once", func(t *testing.T) {
		t.Parallel()
		l := newLogin(t, clientSecret)
		sealed, answer := l.begin(t)
		l.want(t, sealed, answer, "")
		if user, password, _ := (&http.Request{Header: l.asked}).BasicAuth(); user != url.QueryEscape(clientID) || password != url.QueryEscape(clientSecret) || l.form.Get("client_secret") != "" {
			t.Errorf("the client is %q %q, the form %v", user, password, l.form)
		}
		if l.form.Get("redirect_uri") != callback || l.form.Get("grant_type") != "authorization_code" {
			t.Errorf("the form is %v", l.form)
		}
		l.want(t, sealed, answer, "sign_in_expired")
	})
	t.Run("needs the cookie of this browser and its own state", func(t *testing.T) {
		t.Parallel()
		l := newLogin(t, clientSecret)
		sealed, answer := l.begin(t)
		other, otherAnswer := l.begin(t)
		l.want(t, "", answer, "sign_in_expired")
		l.want(t, "x", answer, "sign_in_expired")
		l.want(t, "*", answer, "sign_in_expired")
		l.want(t, sealed[:len(sealed)-4]+"AAAA", answer, "sign_in_expired")
		l.want(t, other, answer, "sign_in_expired")
		l.want(t, sealed, otherAnswer, "sign_in_expired")
		l.want(t, sealed, url.Values{"code": answer["code"]}, "sign_in_expired")
		foreign := newLogin(t, clientSecret)
		theirs, theirAnswer := foreign.begin(t)
		l.want(t, theirs, theirAnswer, "sign_in_expired")
		if n := l.codes.Load(); n != 0 {
			t.Errorf("%d codes were exchanged", n)
		}
		l.want(t, sealed, answer, "")
		l.want(t, other, otherAnswer, "")
	})
	t.Run("verifies the challenge at the issuer: the code of another sign-in is refused", func(t *testing.T) {
		t.Parallel()
		l := newLogin(t, clientSecret)
		_, stolen := l.begin(t)
		sealed, answer := l.begin(t)
		answer["code"] = stolen["code"]
		l.want(t, sealed, answer, "sign_in_failed")
	})
	t.Run("sends the secret in the body if the issuer wants it there, and no secret if there is none", func(t *testing.T) {
		t.Parallel()
		l := newLogin(t, clientSecret, "client_secret_post")
		sealed, answer := l.begin(t)
		l.want(t, sealed, answer, "")
		if l.form.Get("client_secret") != clientSecret || l.asked.Get("Authorization") != "" {
			t.Errorf("the form is %v", l.form)
		}
		public := newLogin(t, "")
		sealed, answer = public.begin(t)
		public.want(t, sealed, answer, "")
		if public.form.Get("client_id") != clientID || public.form.Has("client_secret") || public.asked.Get("Authorization") != "" {
			t.Errorf("the form is %v, the header %v", public.form, public.asked)
		}
	})
	t.Run("works once, also if others have signed in since", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := newLogin(t, clientSecret)
			sealed, answer := l.begin(t)
			l.want(t, sealed, answer, "")
			for range 3 {
				time.Sleep(2 * time.Minute)
				other, otherAnswer := l.begin(t)
				l.want(t, other, otherAnswer, "")
				l.want(t, sealed, answer, "sign_in_expired")
			}
		})
	})
	t.Run("may take ten minutes", func(t *testing.T) {
		t.Parallel()
		for age, code := range map[time.Duration]string{10*time.Minute - time.Second: "", 10 * time.Minute: "sign_in_expired"} {
			synctest.Test(t, func(t *testing.T) {
				l := newLogin(t, clientSecret)
				sealed, answer := l.begin(t)
				time.Sleep(age)
				l.want(t, sealed, answer, code)
			})
		}
	})
}

// TestConcurrentSignIn finishes one sign-in several times at once.
func TestConcurrentSignIn(t *testing.T) {
	t.Parallel()
	l := newLogin(t, clientSecret)
	sealed, answer := l.begin(t)
	ended := make(chan error, 8)
	var asking sync.WaitGroup // no sign-in is finished before all of them have asked the issuer
	asking.Add(cap(ended))
	l.do(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tokenPath {
			asking.Done()
			asking.Wait()
		}
		l.do(nil)
		l.ServeHTTP(w, r)
	})
	for range cap(ended) {
		go func() {
			_, _, err := l.Finish(t.Context(), sealed, answer)
			ended <- err
		}()
	}
	succeeded := 0
	for range cap(ended) {
		if <-ended == nil {
			succeeded++
		}
	}
	if succeeded != 1 {
		t.Errorf("%d succeeded", succeeded)
	}
}

func TestRefusedSignIn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer url.Values     // changes what the browser brings
		claims map[string]any // changes the ID token
		code   string
	}{
		"by the person":                           {url.Values{"error": {"access_denied"}}, nil, "sign_in_denied"},
		"by the issuer":                           {url.Values{"error": {"<script>\x1b\n" + strings.Repeat("x", 1000)}}, nil, "sign_in_failed"},
		"without a code":                          {url.Values{"code": nil}, nil, "sign_in_failed"},
		"from another issuer":                     {url.Values{"iss": {"https://evil.example"}}, nil, "sign_in_failed"},
		"for another client":                      {nil, map[string]any{"aud": "another"}, "sign_in_failed"},
		"for the API":                             {nil, map[string]any{"aud": audience}, "sign_in_failed"},
		"given to another client":                 {nil, map[string]any{"aud": []string{clientID, "b"}, "azp": "b"}, "sign_in_failed"},
		"with the nonce of another sign-in":       {nil, map[string]any{"nonce": "n"}, "sign_in_failed"},
		"without a nonce":                         {nil, map[string]any{"nonce": nil}, "sign_in_failed"},
		"with a nonce in a claim that users set":  {nil, map[string]any{"nonce": nil, "Nonce": "n"}, "sign_in_failed"},
		"by a token of another issuer":            {nil, map[string]any{"iss": "https://evil.example"}, "sign_in_failed"},
		"without a subject":                       {nil, map[string]any{"sub": nil}, "sign_in_failed"},
		"by a token that is old already":          {nil, map[string]any{"exp": 1}, "clocks_differ"},
		"by a token of the future":                {nil, map[string]any{"iat": time.Now().Unix() + 3600}, "clocks_differ"},
		"not if the right issuer is named":        {url.Values{"iss": {"https://login.example.com"}, "session_state": {"x"}}, nil, ""},
		"not if the client is the given party":    {nil, map[string]any{"aud": []string{clientID, "b"}, "azp": clientID}, ""},
		"not for other claims that users can set": {nil, map[string]any{"Sub": "u-2", "AZP": "b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogin(t, clientSecret)
			sealed, answer := l.begin(t)
			maps.Copy(answer, tt.answer)
			maps.Copy(l.claims, tt.claims)
			l.want(t, sealed, answer, tt.code)
		})
	}
}

func TestSignInWithAPoorIssuer(t *testing.T) {
	t.Parallel()
	t.Run("that has no endpoint for it, or one without TLS", func(t *testing.T) {
		t.Parallel()
		for _, d := range []map[string]any{
			{"authorization_endpoint": nil}, {"token_endpoint": ""}, {"token_endpoint": "http://login.example.com/token"},
			{"authorization_endpoint": "javascript:alert(1)"}, {"authorization_endpoint": "https://u:p@login.example.com/"},
		} {
			l := &login{issuer: newIssuer(keys().rsa)}
			l.discovery = d
			v := run(t, l.issuer)
			v.want(t, l.token(keys().rsa).encode(t), "") // tokens are verified all the same
			_, _, err := oidc.NewSignIn(v.Verifier, oidc.SignInOptions{ClientID: clientID}).Begin("/console/")
			if f, _ := fault.As(err); f == nil || f.Code != "issuer_unavailable" || !strings.Contains(f.Unwrap().Error(), "_endpoint") {
				t.Errorf("%v: error %v", d, err)
			}
		}
	})
	t.Run("that has moved its endpoints", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := newLogin(t, clientSecret, "client_secret_basic")
			l.begin(t)
			l.issuer.mu.Lock()
			l.discovery["authorization_endpoint"] = "https://login.example.com/moved"
			l.issuer.mu.Unlock()
			time.Sleep(5 * time.Minute)
			synctest.Wait() // Run asks the issuer in the same instant
			if to, _, err := l.Begin("/console/"); err != nil || !strings.HasPrefix(to, "https://login.example.com/moved?") {
				t.Errorf("the browser is sent to %s, error %v", to, err)
			}
			l.verifier.stop()
		})
	})
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		code   string
	}{
		"whose token endpoint fails": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<script>", http.StatusInternalServerError)
		}, "issuer_unavailable"},
		"whose token endpoint refuses the client": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"<script>\n"}`, http.StatusUnauthorized)
		}, "sign_in_failed"},
		"whose token endpoint has no JSON": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<script>\x1b") }, "issuer_unavailable"},
		"whose token endpoint redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
		}, "issuer_unavailable"},
		"that sends no ID token": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"a","id_token":7}`)
		}, "sign_in_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogin(t, clientSecret)
			sealed, answer := l.begin(t)
			l.do(tt.answer)
			l.want(t, sealed, answer, tt.code)
		})
	}
	t.Run("that does not answer within ten seconds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := newLogin(t, clientSecret)
			sealed, answer := l.begin(t)
			l.do(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			began := time.Now()
			l.want(t, sealed, answer, "issuer_unavailable")
			if took := time.Since(began); took != 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	})
}
