package oidc

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyhook/keyhook/storage/fault"
)

// Limits of a request to the issuer.
const (
	fetchTime = 10 * time.Second // for both documents
	maxBody   = 1 << 20          // bytes of each document
	maxHeader = 64 << 10
	maxKeys   = 100
)

// minRSA is the least number of bits of an RSA key (RFC 7518 section 3.3).
const minRSA = 2048

// source gets the keys from the issuer. Only Run calls its methods.
type source struct {
	issuer string
	client *http.Client              // any goroutine may use it
	signIn atomic.Pointer[endpoints] // any goroutine may read it; nil until discovery
}

func newSource(o Options) source {
	transport := o.Transport
	if transport == nil {
		// The operator has named the issuer, so it may be in a private network. The transport ignores the proxies of the
		// environment: which issuer is trusted depends on the settings only.
		transport = &http.Transport{
			DialContext:            (&net.Dialer{Timeout: fetchTime}).DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
			TLSHandshakeTimeout:    fetchTime,
			MaxResponseHeaderBytes: maxHeader,
			DisableCompression:     true,
			MaxIdleConns:           2,
			IdleConnTimeout:        time.Minute,
		}
	}
	return source{issuer: o.Issuer, client: &http.Client{
		Transport: transport,
		CheckRedirect: func(to *http.Request, _ []*http.Request) error {
			return fault.Advise(fmt.Errorf("the issuer redirects to %s, but Keyhook follows no redirects", to.URL.Redacted()), "set oidc.issuer to the final URL")
		},
	}}
}

// fetch returns the keys of the issuer. It reads the discovery document each time: the issuer may change its URLs.
func (s *source) fetch(ctx context.Context) (keys []jose.JSONWebKey, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("no response within %s", fetchTime))
	defer cancel()
	address, err := s.discover(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot discover the keys: %w", err)
	}
	if keys, err = s.download(ctx, address); err != nil {
		err = fmt.Errorf("cannot get the keys from %s: %w", address, err)
	}
	return keys, err
}

// discover returns the URL of the keys (OpenID Connect Discovery 1.0 section 4), and keeps the endpoints for signing in.
func (s *source) discover(ctx context.Context) (string, error) {
	var document discovery
	if err := s.get(ctx, strings.TrimSuffix(s.issuer, "/")+"/.well-known/openid-configuration", &document); err != nil {
		return "", err
	}
	if document.Issuer != s.issuer {
		return "", fault.Advise(fmt.Errorf("the discovery document names the issuer %.100q", document.Issuer), "if you trust that issuer, set oidc.issuer to it")
	}
	s.signIn.Store(document.endpoints())
	return document.trustedURL("jwks_uri", document.JWKSURI)
}

// download returns the keys that can verify signatures. The set may contain other keys (RFC 7517 section 5). An empty result
// that is not nil comes with an error: the issuer has removed all of its keys.
func (s *source) download(ctx context.Context, address string) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := s.get(ctx, address, &set); err != nil {
		return nil, err
	}
	keys := []jose.JSONWebKey{}
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(text, &key); err == nil && usable(key) && len(keys) < maxKeys {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return keys, errors.New("the document has no key that can verify a signature")
	}
	return keys, nil
}

func (s *source) get(ctx context.Context, address string, document any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxBody))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, document); err != nil {
		return fmt.Errorf("cannot decode the JSON: %w", err)
	}
	return nil
}

// usable reports whether a key can verify signatures: it is public, strong enough, and not for encryption. The library
// checks that the key fits the algorithm of a token.
func usable(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" || !key.Valid() || !key.IsPublic() {
		return false
	}
	if k, isRSA := key.Key.(*rsa.PublicKey); isRSA {
		return k.N.BitLen() >= minRSA
	}
	return true
}

// discovery is what Keyhook reads of the discovery document (OpenID Connect Discovery 1.0 section 3).
type discovery struct {
	Issuer                string   `json:"issuer"`
	JWKSURI               string   `json:"jwks_uri"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	TokenEndpointMethods  []string `json:"token_endpoint_auth_methods_supported"`
}

// endpoints are the URLs for signing in people. They are never changed.
type endpoints struct {
	authorization, token string
	secretInBody         bool  // the token endpoint takes the secret of the client only in the body
	problem              error // why nobody can sign in
}

// endpoints returns the URLs for signing in people. An issuer that only signs tokens for programs has none.
func (d discovery) endpoints() *endpoints {
	authorization, err1 := d.trustedURL("authorization_endpoint", d.AuthorizationEndpoint)
	token, err2 := d.trustedURL("token_endpoint", d.TokenEndpoint)
	return &endpoints{
		authorization: authorization, token: token, problem: errors.Join(err1, err2),
		// Without a list, it is client_secret_basic.
		secretInBody: len(d.TokenEndpointMethods) > 0 && !slices.Contains(d.TokenEndpointMethods, "client_secret_basic"),
	}
}

// trustedURL returns a URL of the discovery document. It refuses plain HTTP, except for the host of an issuer that the operator has named
// with http.
func (d discovery) trustedURL(name, text string) (string, error) {
	u, err := url.Parse(text)
	issuer, _ := url.Parse(d.Issuer) // config has checked it
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return "", fmt.Errorf("%s in the discovery document is missing or not a URL", name)
	case u.Scheme != "https" && (u.Scheme != "http" || u.Scheme != issuer.Scheme || u.Hostname() != issuer.Hostname()):
		return "", fmt.Errorf("%s in the discovery document is not https, so anybody on the network could replace the response", name)
	}
	return u.String(), nil
}
