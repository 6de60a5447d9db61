package e2e

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// provider is a small identity provider on loopback with one key.
type provider struct {
	url string
	key ed25519.PrivateKey
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.url, p.url+"/jwks")
	case "/jwks":
		x := base64.RawURLEncoding.EncodeToString(p.key.Public().(ed25519.PublicKey))
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","use":"sig","alg":"EdDSA","x":%q}]}`, x)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// token signs a token for a subject.
func (p *provider) token(audience, subject string, expires time.Duration) string {
	b64 := base64.RawURLEncoding.EncodeToString
	claims, _ := json.Marshal(map[string]any{"iss": p.url, "aud": audience, "sub": subject, "exp": time.Now().Add(expires).Unix()})
	input := b64([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." + b64(claims)
	return "Bearer " + input + "." + b64(ed25519.Sign(p.key, []byte(input)))
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &provider{key: private}
}

func TestIdentityProvider(t *testing.T) {
	t.Parallel()

	t.Run("signs in its users with the rights that they have here", func(t *testing.T) {
		t.Parallel()
		idp := newProvider(t)
		server := httptest.NewUnstartedServer(idp)
		idp.url = "http://" + server.Listener.Addr().String()
		server.Start()
		defer server.Close()
		p := start(t, t.TempDir(), "KEYHOOK_OIDC_ISSUER="+idp.url, "KEYHOOK_OIDC_AUDIENCE=keyhook")
		var user, me struct {
			ID           string
			Organization struct{ ID string }
		}
		p.must(t, "POST", "/api/v1/users/", object{"email": "ada@example.com", "external_id": "auth0|ada"}, &user)
		p.must(t, "GET", "/api/v1/whoami/", nil, &me)
		p.must(t, "PUT", "/api/v1/organizations/"+me.Organization.ID+"/members/"+user.ID+"/", object{"role": "owner"}, nil)
		for _, tt := range []struct {
			token  string
			status int
			code   string
			user   string
		}{
			{idp.token("keyhook", "auth0|ada", time.Minute), 200, "", "ada@example.com"},
			{idp.token("another", "auth0|ada", time.Minute), 401, "wrong_audience", ""},
			{idp.token("keyhook", "auth0|bob", time.Minute), 401, "unknown_user", ""},
			{idp.token("keyhook", "auth0|ada", -2*time.Minute), 401, "token_expired", ""},
			{idp.token("keyhook", "auth0|ada", time.Minute) + "AAAA", 401, "invalid_key", ""},
		} {
			if status, code, user := p.whoami(t, tt.token); status != tt.status || code != tt.code || user != tt.user {
				t.Errorf("%d %s %s, want %+v", status, code, user, tt)
			}
		}
		server.Close()
		if status, code, _ := p.whoami(t, idp.token("keyhook", "auth0|ada", time.Minute)); status != 200 {
			t.Errorf("once it is down: %d %s", status, code)
		}
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("keeps only its own users out if it is down at the start", func(t *testing.T) {
		t.Parallel()
		idp := newProvider(t)
		idp.url = "http://" + freeAddress(t)
		p := start(t, t.TempDir(), "KEYHOOK_OIDC_ISSUER="+idp.url, "KEYHOOK_OIDC_AUDIENCE=keyhook")
		if status, code, _ := p.whoami(t, idp.token("keyhook", "auth0|ada", time.Minute)); status != 503 || code != "issuer_unavailable" {
			t.Errorf("%d %s", status, code)
		}
		p.must(t, "GET", "/api/v1/whoami/", nil, nil)
	})
}

// TestSession signs in with a browser's cookie. The session survives the server's death, and ends when the browser ends it.
func TestSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := newCaller("", "")
	browser.client.Jar = jar
	step := func(p *process, method string, body any, want int) {
		t.Helper()
		browser.base = p.url // at another port after a restart, which cookies ignore
		if a, err := browser.call(t.Context(), method, "/api/v1/session/", body); err != nil || a.status != want {
			t.Errorf("%s: status %d, want %d, error %v", method, a.status, want, err)
		}
	}
	p := start(t, dir)
	step(p, "POST", object{"token": operatorToken}, 201)
	p.end(syscall.SIGKILL)
	again := start(t, dir)
	step(again, "GET", nil, 200)
	step(again, "DELETE", nil, 204)
	step(again, "GET", nil, 401)
}
