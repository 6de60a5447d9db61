// Package egress owns where Keyhook may connect: which URLs are taken, which addresses are dialled, and the transport that
// asks before every connection. It knows nothing of subscriptions, signatures or retries, and follows no redirect.
//
// The customers of an operator choose where requests go, and see what came back: whatever an address inside of the
// operator's network answers would be read from outside. So the guard sits at the one place that no name, redirect or
// rebinding gets around: between the resolved address and the connection, on every dial.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Limits of the transport that are not settings.
const (
	dialTimeout      = 5 * time.Second // look-up included, of all addresses of a name together
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 60 * time.Second
	maxHeader        = 64 << 10 // bytes of a response's header
	bufferSize       = 4 << 10  // per connection and direction
)

// Options say how a transport connects. The zero value is strict and of middling size.
type Options struct {
	Policy         Policy
	Roots          *x509.CertPool // whom to trust; nil: the system's, see Roots
	MaxIdle        int            // idle connections kept in all; zero: 256
	MaxIdlePerHost int            // of them to one host, to which many subscriptions may lead; zero: 16
	Resolver       *net.Resolver  // nil: Go's own, as the system is configured
}

// NewTransport returns a transport that connects to what the policy allows and to nothing else. It speaks HTTP/1.1 only,
// ignores the environment's proxies and unpacks no response. Dial and TLS handshake have limits of their own; the time
// of a whole request is for its context to bound.
func NewTransport(o Options) *http.Transport {
	resolver := o.Resolver
	if resolver == nil {
		// The system's C library would resolve 127.1 or 0x7f000001, which to Go are names that do not exist.
		resolver = &net.Resolver{PreferGo: true}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: resolver, ControlContext: o.Policy.checkDial}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	maxIdle := cmp.Or(o.MaxIdle, 256)
	return &http.Transport{
		Proxy:                  nil, // it would be dialled in place of the receiver, and the guard would judge its address
		DialContext:            dialer.DialContext,
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true, // 200 kB of gzip can be 200 MB
		MaxResponseHeaderBytes: maxHeader,
		ReadBufferSize:         bufferSize,
		WriteBufferSize:        bufferSize,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    min(cmp.Or(o.MaxIdlePerHost, 16), maxIdle),
		IdleConnTimeout:        idleTimeout,
		// MaxConnsPerHost stays 0: a request would wait for a connection inside of its own timeout, and a healthy
		// receiver with many subscriptions would be charged for it. How many are under way is for the scheduler to say.
	}
}

// control judges each address of a name right before the connection to it is made. What cannot be read is refused.
func (p Policy) checkDial(_ context.Context, network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %s", ErrBlocked, network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBlocked, err)
	}
	return p.CheckAddr(to.Addr())
}
