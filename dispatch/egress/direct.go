package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Direct is a transport that makes each request on the goroutine of its caller. http.Transport has two goroutines for each
// connection. Passing a request and its response between three goroutines took a tenth of the server's processor time.
//
// Direct makes only requests that are short and simple. It leaves all others to another transport. The dialer, the TLS
// configuration and the limits of that transport are its own, too. A receiver may respond before it has read a long body, so
// somebody must read while such a body is written.
type Direct struct {
	other *http.Transport
	idle  idleConnections
}

// NewDirect returns a transport with the configuration of other, which must not change afterwards. other comes from NewTransport.
func NewDirect(other *http.Transport) *Direct {
	return &Direct{other: other, idle: idleConnections{
		max: other.MaxIdleConns, maxPerEndpoint: other.MaxIdleConnsPerHost, timeout: other.IdleConnTimeout, of: map[endpoint][]*connection{},
	}}
}

// RoundTrip implements http.RoundTripper.
func (d *Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isSimple(r) {
		return d.other.RoundTrip(r)
	}
	defer closeBody(r)
	if err := validateHeader(r.Header); err != nil {
		return nil, err
	}
	c, err := d.connect(r.Context(), r.URL)
	if err != nil {
		return nil, err
	}
	return c.exchange(r)
}

// CloseIdleConnections closes the connections that no request uses.
func (d *Direct) CloseIdleConnections() {
	d.idle.closeAll()
	d.other.CloseIdleConnections()
}

// maxDirectBody is the longest body of a request that Direct makes itself, in bytes. The system takes as much without a reader at
// the other end.
const maxDirectBody = 8 << 10

// isSimple reports whether Direct makes a request itself: a POST with a short body to a host in ASCII without a zone.
func isSimple(r *http.Request) bool {
	hasBody := r.Body != nil && r.Body != http.NoBody
	return r.Method == http.MethodPost && (r.URL.Scheme == "https" || r.URL.Scheme == "http") &&
		r.Host != "" && httpguts.ValidHostHeader(r.Host) && !strings.Contains(r.Host, "%") &&
		hasBody == (r.ContentLength > 0) && r.ContentLength <= maxDirectBody &&
		len(r.TransferEncoding) == 0 && len(r.Trailer) == 0 && r.Header["Expect"] == nil
}

// connect returns an idle connection that is still open, or a new one.
func (d *Direct) connect(ctx context.Context, to *url.URL) (*connection, error) {
	at := endpoint{to.Scheme, to.Host}
	for c := d.idle.take(at); c != nil; c = d.idle.take(at) {
		if c.isQuiet() {
			return c, nil
		}
		c.Close()
	}
	port := to.Port()
	if port == "" {
		port = to.Scheme // the dialer knows the ports of http and https
	}
	plain, err := d.other.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return nil, err
	}
	conn := plain
	if to.Scheme == "https" {
		if conn, err = d.handshake(ctx, plain, to.Hostname()); err != nil {
			plain.Close()
			return nil, err
		}
	}
	return newConnection(d, at, plain, conn), nil
}

// handshake makes a TLS connection of a plain one. It tells the trace of the request how that ended.
func (d *Direct) handshake(ctx context.Context, plain net.Conn, host string) (net.Conn, error) {
	config := d.other.TLSClientConfig.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	limited, cancel := context.WithTimeout(ctx, d.other.TLSHandshakeTimeout)
	defer cancel()
	secure := tls.Client(plain, config)
	err := secure.HandshakeContext(limited)
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.TLSHandshakeDone != nil {
		trace.TLSHandshakeDone(secure.ConnectionState(), err)
	}
	return secure, err
}
