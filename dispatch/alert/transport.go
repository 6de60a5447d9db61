package alert

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Most services of the library use http.DefaultTransport and take no other. So this package replaces it for the process.
// Nothing else in Keyhook may use it; the linter refuses that. Like deliveries, alerts ignore the proxies of the environment.
// Unlike deliveries, alerts may go to private addresses, because the operator chose the URLs.

const (
	requestTimeout = 20 * time.Second // of one request, from the DNS lookup to the end of the response
	maxResponse    = 256 << 10        // bytes; the rest of a response is not read
)

// The transports of all services, except gotify, which makes its own without a proxy.
var (
	verified   = newTransport(false)
	unverified = newTransport(true) // does not check certificates, for URLs that ask for it
)

func init() { http.DefaultTransport = verified }

// transport limits each request in time and size. It tells a watch how a request ended, because some services do not.
type transport struct {
	inner *http.Transport

	mu      sync.Mutex
	watches map[string]*watch // by host and path
}

func newTransport(insecure bool) *transport {
	inner := http.DefaultTransport.(*http.Transport).Clone()
	inner.Proxy = nil
	inner.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: insecure} //nolint:gosec // the URL asks for it
	return &transport{inner: inner, watches: map[string]*watch{}}
}

// RoundTrip is part of http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), requestTimeout, errSlow)
	response, err := t.inner.RoundTrip(r.WithContext(ctx))
	t.note(r.URL, response, err)
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &limitedBody{io.LimitReader(response.Body, maxResponse), response.Body, cancel}
	return response, nil
}

// CloseIdleConnections is for http.Client and httptest.Server.
func (t *transport) CloseIdleConnections() { t.inner.CloseIdleConnections() }

// limitedBody ends the time limit of the request when it is closed.
type limitedBody struct {
	io.Reader
	io.Closer
	cancel context.CancelFunc
}

func (b *limitedBody) Close() error {
	defer b.cancel()
	return b.Closer.Close()
}

// watch knows how the last request to a URL ended. The library's telegram reports no error if it cannot connect. Its generic
// follows a redirect with GET, which loses the message.
type watch struct {
	transport *transport
	key       string
	failure   error
}

func (t *transport) watch(host, path string) *watch {
	w := &watch{transport: t, key: host + path}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watches[w.key] = w
	return w
}

func (t *transport) note(u *url.URL, response *http.Response, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watches[u.Host+u.Path]
	switch {
	case w == nil:
	case err != nil:
		w.failure = err
	case response.StatusCode == http.StatusTemporaryRedirect || response.StatusCode == http.StatusPermanentRedirect: // followed with POST
	case response.StatusCode >= http.StatusMultipleChoices:
		w.failure = fmt.Errorf("the service answered %d", response.StatusCode)
	}
}

// end ends the watch. It returns the failure that a service did not report. reported is the error of the service. A nil watch
// has no failure.
func (w *watch) end(reported error) error {
	if w == nil {
		return nil
	}
	w.transport.mu.Lock()
	defer w.transport.mu.Unlock()
	if w.transport.watches[w.key] == w {
		delete(w.transport.watches, w.key)
	}
	if reported != nil {
		return nil
	}
	return w.failure
}
