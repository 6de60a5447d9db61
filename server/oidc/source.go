package oidc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// What an answer of the issuer may cost.
const (
	fetchTime = 10 * time.Second // both documents
	maxBody   = 1 << 20          // of each, in bytes
	maxHeader = 64 << 10
	maxKeys   = 100
)

// source is where the issuer's keys come from. Only one goroutine asks it.
type source struct {
	issuer string
	client *http.Client
	keys   string // the address of the keys; empty until it is found
}

func newSource(o Options) source {
	transport := o.Transport
	if transport == nil {
		// The operator has named the issuer, so it may live in a private network: it needs no guard. It gets none of the
		// environment's proxies either: whom we trust is to depend on the settings alone.
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
		Transport: bounded{transport},
		CheckRedirect: func(to *http.Request, _ []*http.Request) error {
			return fmt.Errorf("the issuer redirects to %s, which is not followed; set oidc.issuer to the address that answers by itself", to.URL.Redacted())
		},
	}}
}

// bounded cuts the bodies of answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxBody)
	}
	return response, err
}

// fetch asks the issuer for its keys, and before, where that is not known or no longer holds, for their address.
func (s *source) fetch(ctx context.Context) (keys []jose.JSONWebKey, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("no answer within %s", fetchTime))
	defer cancel()
	if s.keys == "" {
		if s.keys, err = s.discover(ctx); err != nil {
			return nil, fmt.Errorf("discover: %w", err)
		}
	}
	if keys, err = s.download(ctx); err != nil {
		defer func() { s.keys = "" }() // it may have moved
		return keys, fmt.Errorf("get keys from %s: %w", s.keys, err)
	}
	return keys, nil
}

// discover returns the address of the keys. That the document is the issuer's own, the library sees to.
func (s *source) discover(ctx context.Context) (string, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, s.client), s.issuer)
	if err != nil {
		return "", shorten(err)
	}
	var document struct {
		JWKSURI string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return "", err
	}
	at, err := url.Parse(document.JWKSURI)
	issuer, _ := url.Parse(s.issuer) // the settings were checked
	switch {
	case err != nil || at.Host == "" || at.User != nil:
		return "", errors.New("its jwks_uri is missing, or no address")
	case at.Scheme != "https" && (at.Scheme != "http" || at.Scheme != issuer.Scheme || at.Hostname() != issuer.Hostname()):
		return "", errors.New("its jwks_uri is not https: whoever stands in between could put in keys of their own")
	}
	return at.String(), nil
}

// download returns the keys that can verify something. Others may stand among them: keys to encrypt, or of algorithms
// that are not known here (RFC 7517 section 5). A set without any is an answer and an error: the issuer has given up all
// that there were.
func (s *source) download(ctx context.Context) ([]jose.JSONWebKey, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.keys, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("no set of keys: %w", err)
	}
	keys := []jose.JSONWebKey{}
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(text, &key); err == nil && usable(key) && len(keys) < maxKeys {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return keys, errors.New("none of its keys can verify a signature")
	}
	return keys, nil
}

// shorten cuts an error that may quote a whole answer.
func shorten(err error) error {
	if text := []rune(err.Error()); len(text) > maxCause {
		return shortened(string(text[:maxCause]) + "…")
	}
	return err
}
