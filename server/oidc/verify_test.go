package oidc_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/oidc"
	"github.com/keyhook/keyhook/storage/access"
)

// serve makes the issuer listen on loopback, and sets its URL.
func (i *issuer) serve(tb testing.TB) {
	tb.Helper()
	server := httptest.NewServer(i)
	tb.Cleanup(server.Close)
	i.url = server.URL
}

func onTheWire(o *oidc.Options) { o.Transport = nil }

func TestVerify(t *testing.T) {
	t.Parallel()

	t.Run("accepts tokens of every kind of key, over HTTP", func(t *testing.T) {
		t.Parallel()
		published := []key{keys().rsa, keys().rsaPSS, keys().ecdsa, keys().ed, newKey("ec384", "ES384"), newKey("ec512", "ES512")}
		any := keys().rsaPSS
		any.id, any.anyAlgorithm = "any", true
		i := newIssuer(append(published, any)...)
		i.serve(t)
		v := run(t, i, onTheWire)
		for _, k := range published {
			x := i.token(k)
			v.want(t, x.encode(t), "")
		}
		for _, algorithm := range []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"} {
			any.algorithm = algorithm
			v.want(t, i.token(any).encode(t), "")
		}
		if i.requests(discoveryPath) != 1 || i.requests(keysPath) != 1 {
			t.Errorf("the issuer was asked %v", i.asked)
		}
	})
	t.Run("trusts only the authorities of egress.ca_file and of the system", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(keys().rsa)
		server := httptest.NewTLSServer(i)
		defer server.Close()
		i.url = server.URL
		file := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		roots, err := egress.Roots(file)
		if err != nil {
			t.Fatal(err)
		}
		run(t, i, onTheWire, func(o *oidc.Options) { o.Roots = roots }).want(t, i.token(keys().rsa).encode(t), "")
		if why := run(t, i, onTheWire).want(t, i.token(keys().rsa).encode(t), "issuer_unavailable"); !strings.Contains(why, "certificate") {
			t.Errorf("the log would say %s", why)
		}
	})
	t.Run("returns the identity in the token", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(keys().ed)
		v := run(t, i, func(o *oidc.Options) { o.OrganizationClaim = "org" })
		for name, tt := range map[string]struct {
			claims map[string]any
			want   access.Identity
		}{
			"the subject":                       {nil, access.Identity{Subject: "u-1"}},
			"a verified address":                {map[string]any{"email": "a@example.com", "email_verified": true}, access.Identity{Subject: "u-1", Email: "a@example.com"}},
			"no address that is not verified":   {map[string]any{"email": "a@example.com", "email_verified": false}, access.Identity{Subject: "u-1"}},
			"no address without email_verified": {map[string]any{"email": "a@example.com"}, access.Identity{Subject: "u-1"}},
			"no address verified by a string":   {map[string]any{"email": "a@example.com", "email_verified": "true"}, access.Identity{Subject: "u-1"}},
			"no address of another case":        {map[string]any{"email": "a@example.com", "Email_Verified": true}, access.Identity{Subject: "u-1"}},
			"no subject of another case":        {map[string]any{"Sub": "u-2", "SUB": "u-3"}, access.Identity{Subject: "u-1"}},
			"the organization":                  {map[string]any{"org": "acme"}, access.Identity{Subject: "u-1", Organization: "acme"}},
			"the one organization of a list":    {map[string]any{"org": []string{"acme"}}, access.Identity{Subject: "u-1", Organization: "acme"}},
			"no organization of an empty one":   {map[string]any{"org": []string{}}, access.Identity{Subject: "u-1"}},
		} {
			t.Run(name, func(t *testing.T) {
				x := i.token(keys().ed)
				maps.Copy(x.claims, tt.claims)
				got, err := v.verify(t, x.encode(t))
				if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
					t.Errorf("error %v (-want +got):\n%s", err, diff)
				}
			})
		}
	})
	t.Run("returns no organization if the settings name no claim", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(keys().ed)
		x := i.token(keys().ed)
		x.claims[""], x.claims["org"] = "acme", "acme"
		if got, err := run(t, i).verify(t, x.encode(t)); err != nil || got.Organization != "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestClaims has invalid values of each claim, in tokens that the issuer has signed.
func TestClaims(t *testing.T) {
	t.Parallel()
	i := newIssuer(keys().ed)
	v := run(t, i, func(o *oidc.Options) { o.OrganizationClaim = "org" })
	const missing = "\x00missing"
	for name, tt := range map[string]struct {
		claim string
		value any
		code  string
	}{
		"no issuer":                         {"iss", missing, "invalid_claims"},
		"another issuer":                    {"iss", "https://evil.example.com", "wrong_issuer"},
		"the issuer with a slash":           {"iss", i.url + "/", "wrong_issuer"},
		"the issuer without its scheme":     {"iss", strings.TrimPrefix(i.url, "https://"), "wrong_issuer"},
		"the issuer in capitals":            {"iss", strings.ToUpper(i.url), "wrong_issuer"},
		"an issuer that is a list":          {"iss", []string{i.url}, "invalid_claims"},
		"no audience":                       {"aud", missing, "invalid_claims"},
		"another audience":                  {"aud", "other", "wrong_audience"},
		"a longer audience":                 {"aud", audience + "2", "wrong_audience"},
		"an empty audience":                 {"aud", "", "wrong_audience"},
		"other audiences":                   {"aud", []string{"a", "b"}, "wrong_audience"},
		"an audience in a text":             {"aud", "a " + audience, "wrong_audience"},
		"one audience of several":           {"aud", []string{"other", audience}, ""},
		"audiences that are not all texts":  {"aud", []any{audience, 1}, "invalid_claims"},
		"no audiences":                      {"aud", []string{}, "wrong_audience"},
		"an audience that is a number":      {"aud", 1, "invalid_claims"},
		"an audience that is null":          {"aud", nil, "invalid_claims"},
		"no subject":                        {"sub", missing, "invalid_claims"},
		"an empty subject":                  {"sub", "", "invalid_claims"},
		"a subject that is a number":        {"sub", 1, "invalid_claims"},
		"a subject that is null":            {"sub", nil, "invalid_claims"},
		"a subject that is a list":          {"sub", []string{"u-1"}, "invalid_claims"},
		"an endless subject":                {"sub", strings.Repeat("u", 256), "invalid_claims"},
		"no expiry":                         {"exp", missing, "invalid_claims"},
		"an expiry that is a text":          {"exp", fmt.Sprint(time.Now().Unix() + 60), "invalid_claims"},
		"an expiry that is null":            {"exp", nil, "invalid_claims"},
		"an expiry before 1970":             {"exp", -1, "invalid_claims"},
		"an expiry beyond all time":         {"exp", 1e300, "invalid_claims"},
		"an expiry with a fraction":         {"exp", float64(time.Now().Unix()) + 60.5, ""},
		"an expiry in milliseconds":         {"exp", time.Now().Add(-time.Hour).UnixMilli() * 1000, "invalid_claims"},
		"a begin that is a text":            {"nbf", "1", "invalid_claims"},
		"a time of issue that is a text":    {"iat", "1", "invalid_claims"},
		"no time of issue":                  {"iat", missing, ""},
		"an issue in the future":            {"iat", time.Now().Unix() + 3600, "token_not_yet_valid"},
		"a begin in the future":             {"nbf", time.Now().Unix() + 3600, "token_not_yet_valid"},
		"the marks of a logout token":       {"events", map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}, "wrong_token_type"},
		"an organization that is a number":  {"org", 5, "invalid_claims"},
		"an organization that is null":      {"org", nil, "invalid_claims"},
		"several organizations":             {"org", []string{"a", "b"}, "invalid_claims"},
		"an organization that is an object": {"org", map[string]any{"acme": map[string]any{}}, "invalid_claims"},
		"a nonce that nobody asked for":     {"nonce", "n", ""},
		"a verified address that is none":   {"email_verified", true, "invalid_claims"},
	} {
		t.Run(name, func(t *testing.T) {
			x := i.token(keys().ed)
			if x.claims[tt.claim] = tt.value; tt.value == missing {
				delete(x.claims, tt.claim)
			}
			v.want(t, x.encode(t), tt.code)
		})
	}
	good, _ := json.Marshal(i.token(keys().ed).claims)
	for name, payload := range map[string]string{
		"a claim twice":          `{"sub":"u-2",` + string(good[1:]),
		"no JSON":                "sub=u-1",
		"a list":                 "[" + string(good) + "]",
		"null":                   "null",
		"an object and more":     string(good) + "{}",
		"half of an object":      string(good[:len(good)-1]),
		"invalid UTF-8":          strings.Replace(string(good), "u-1", "u-\xff", 1),
		"another token (nested)": i.token(keys().ed).encode(t),
	} {
		t.Run("a payload that is "+name, func(t *testing.T) {
			x := i.token(keys().ed)
			x.payload = payload
			v.want(t, x.encode(t), "invalid_claims")
		})
	}
}

// TestLeeway checks the exact limits of the leeway of one minute.
func TestLeeway(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claim  string
		offset time.Duration // of the claim from now
		code   string
	}{
		"expires now":                             {"exp", 0, ""},
		"has expired less than a minute ago":      {"exp", -time.Minute + time.Second, ""},
		"has expired a minute ago":                {"exp", -time.Minute, "token_expired"},
		"begins in a minute":                      {"nbf", time.Minute, ""},
		"begins in more than a minute":            {"nbf", time.Minute + time.Second, "token_not_yet_valid"},
		"was issued in a minute":                  {"iat", time.Minute, ""},
		"was issued in more than a minute":        {"iat", time.Minute + time.Second, "token_not_yet_valid"},
		"was issued long ago, but has not ended":  {"iat", -9000 * time.Hour, ""},
		"has a begin that is long ago":            {"nbf", -9000 * time.Hour, ""},
		"expires in a year":                       {"exp", 9000 * time.Hour, ""},
		"has expired a minute ago, by a fraction": {"exp", -time.Minute - 250*time.Millisecond, "token_expired"},
		"has not, by a fraction":                  {"exp", -time.Minute + 250*time.Millisecond, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer(keys().ed)
				v := run(t, i)
				x := i.token(keys().ed)
				at := time.Now().Add(tt.offset)
				x.claims[tt.claim] = float64(at.UnixMilli()) / 1000
				v.want(t, x.encode(t), tt.code)
				v.stop()
			})
		})
	}
}

// TestBrokenIssuers has answers of issuers from which no keys can be read.
func TestBrokenIssuers(t *testing.T) {
	t.Parallel()
	elsewhere := newIssuer(keys().ed)
	elsewhere.serve(t)
	answers := func(text string) func(*issuer) http.HandlerFunc {
		return func(*issuer) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
		}
	}
	discovers := func(name, keys string) func(*issuer) http.HandlerFunc {
		return func(i *issuer) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, strings.ReplaceAll(name, "{url}", i.url), strings.ReplaceAll(keys, "{url}", i.url))
			}
		}
	}
	weak := `{"kty":"RSA","kid":"ed","n":"` + b64(make([]byte, 127)) + `AQ","e":"AQAB"}`
	publishes := func(set string) func(*issuer) http.HandlerFunc {
		return func(i *issuer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == keysPath {
					fmt.Fprint(w, set)
					return
				}
				fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.url, i.url+keysPath)
			}
		}
	}
	for name, tt := range map[string]struct {
		answer func(*issuer) http.HandlerFunc
		why    string // part of the reason
	}{
		"an error": {func(*issuer) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
		}, "500"},
		"nothing there":        {func(*issuer) http.HandlerFunc { return http.NotFound }, "404"},
		"a page":               {answers("<html>" + strings.Repeat("x", 5000)), "decode"},
		"nothing":              {answers(""), "decode"},
		"an empty object":      {answers("{}"), "issuer"},
		"another issuer":       {discovers(elsewhere.url, elsewhere.url+keysPath), "names the issuer"},
		"the issuer, almost":   {discovers("{url}/", "{url}"+keysPath), "names the issuer"},
		"no address of keys":   {discovers("{url}", ""), "jwks_uri"},
		"keys in a file":       {discovers("{url}", "file:///etc/passwd"), "jwks_uri"},
		"keys over plain HTTP": {discovers("{url}", "http://keys.example.com/keys"), "jwks_uri"},
		"keys with a password": {discovers("{url}", "https://me:secret@keys.example.com/"), "jwks_uri"},
		"an endless answer":    {endless, "too large"},
		"a redirect":           {func(*issuer) http.HandlerFunc { return redirect(elsewhere.url) }, "redirects"},
		"a redirect to itself": {func(*issuer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) }
		}, "redirects"},
		"a cut connection": {func(*issuer) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		}, "EOF"},
		"keys that are a page":  {publishes("<html>"), "decode"},
		"no keys":               {publishes(`{"keys":[]}`), "no key that can verify"},
		"a set of something":    {publishes(`{"keys":[1,"x",null,{},{"kty":"x"}]}`), "no key that can verify"},
		"a secret":              {publishes(`{"keys":[{"kty":"oct","kid":"ed","k":"` + b64(make([]byte, 64)) + `"}]}`), "no key that can verify"},
		"a key to encrypt with": {publishes(`{"keys":[` + strings.Replace(keyText(keys().ed), `"sig"`, `"enc"`, 1) + `]}`), "no key that can verify"},
		"a weak key":            {publishes(`{"keys":[` + weak + `]}`), "no key that can verify"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(keys().ed)
			i.serve(t)
			i.do(tt.answer(i))
			v := run(t, i, onTheWire)
			x := i.token(keys().ed)
			if why := v.want(t, x.encode(t), "issuer_unavailable"); !strings.Contains(why, tt.why) {
				t.Errorf("the reason is %q, without %q", why, tt.why)
			}
			if text := v.log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "oidc.issuer") {
				t.Errorf("the log: %s", text)
			}
		})
	}
	t.Run("a redirect is never followed", func(t *testing.T) {
		if n := elsewhere.requests(discoveryPath); n > 0 {
			t.Errorf("%d times", n)
		}
	})
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to+r.URL.Path, http.StatusFound) }
}

func endless(*issuer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for piece := strings.Repeat(" ", 1<<16); r.Context().Err() == nil; {
			if _, err := w.Write([]byte(piece)); err != nil {
				return
			}
		}
	}
}

func keyText(k key) string {
	text, _ := json.Marshal(k.public())
	return string(text)
}

func TestOddKeysAmongGoodOnes(t *testing.T) {
	t.Parallel()
	i := newIssuer(keys().ed)
	i.keys = append([]map[string]any{
		{"kty": "OKP", "crv": "Ed448", "kid": "ed", "x": "AA"}, {"kty": "EC", "crv": "secp256k1", "alg": "ES256K"}, {"kid": "ed"},
		{"kty": "RSA", "kid": "rsa", "use": "enc", "n": keys().rsa.public()["n"], "e": "AQAB"},
	}, i.keys...)
	v := run(t, i)
	v.want(t, i.token(keys().ed).encode(t), "")
	v.want(t, i.token(keys().rsa).encode(t), "invalid_key") // it is for encryption
}

func TestVerifyGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	i := newIssuer(keys().ed)
	v := oidc.New(oidc.Options{Issuer: i.url, Audience: audience, Transport: i}) // without Run
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, _ := access.Foreign(i.token(keys().ed).encode(t))
	if _, err := v.Verify(ctx, c); err == nil {
		t.Error("verified")
	}
}
