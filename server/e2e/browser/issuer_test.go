package browser

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// issuer is an identity provider with one person. Its page asks whether the person wants to sign in.
type issuer struct {
	url string // of another site than the server's
	key *ecdsa.PrivateKey

	mu     sync.Mutex
	claims object                // of the person, in each ID token
	codes  map[string]url.Values // what the browser has asked for, by code
}

func newIssuer(tb testing.TB, claims object) *issuer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	i := &issuer{key: key, claims: claims, codes: map[string]url.Values{}}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /.well-known/openid-configuration", i.discover)
	routes.HandleFunc("GET /keys", i.keys)
	routes.HandleFunc("GET /authorize", i.authorize)
	routes.HandleFunc("POST /token", i.token)
	routes.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	listening := httptest.NewServer(routes)
	tb.Cleanup(listening.Close)
	i.url = strings.Replace(listening.URL, "127.0.0.1", "localhost", 1)
	return i
}

func encoded(v any) string {
	text, _ := json.Marshal(v) // these values have a JSON form
	return base64.RawURLEncoding.EncodeToString(text)
}

func (i *issuer) discover(w http.ResponseWriter, _ *http.Request) {
	json.NewEncoder(w).Encode(object{
		"issuer": i.url, "jwks_uri": i.url + "/keys", "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token",
	})
}

func (i *issuer) keys(w http.ResponseWriter, _ *http.Request) {
	point, _ := i.key.PublicKey.Bytes() // the curve has this form
	b64 := base64.RawURLEncoding.EncodeToString
	json.NewEncoder(w).Encode(object{"keys": []object{{"kty": "EC", "crv": "P-256", "kid": "1", "x": b64(point[1:33]), "y": b64(point[33:])}}})
}

func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	asked, code := r.URL.Query(), rand.Text()
	i.mu.Lock()
	i.codes[code] = asked
	i.mu.Unlock()
	back := func(answer url.Values) string {
		answer.Set("state", asked.Get("state"))
		return html.EscapeString(asked.Get("redirect_uri") + "?" + answer.Encode())
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Login</title><h1>Login</h1><a href="%s">Continue</a> <a href="%s">Cancel</a>`,
		back(url.Values{"code": {code}}), back(url.Values{"error": {"access_denied"}}))
}

// token checks what a strict issuer checks: the client, the redirect URI, and the verifier of PKCE. A code works once.
func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked := i.codes[r.PostFormValue("code")]
	delete(i.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	client, secret, _ := r.BasicAuth()
	if client != "console" || secret != "the-secret" || asked == nil || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || asked.Get("code_challenge_method") != "S256" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	now := time.Now().Unix()
	claims := object{"iss": i.url, "aud": client, "iat": now, "exp": now + 60, "nonce": asked.Get("nonce")}
	maps.Copy(claims, i.claims)
	input := encoded(object{"alg": "ES256", "kid": "1", "typ": "JWT"}) + "." + encoded(claims)
	digest := sha256.Sum256([]byte(input))
	x, y, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	if err != nil {
		panic(err)
	}
	signature := append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(object{
		"access_token": "a", "token_type": "Bearer", "id_token": input + "." + base64.RawURLEncoding.EncodeToString(signature),
	})
}
