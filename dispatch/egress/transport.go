// Package egress owns where Keyhook may connect: it checks URLs and addresses, and its transport checks every
// connection. It does not know subscriptions, signatures or retries.
//
// An operator's customers choose where requests go, and see the responses. So a customer could read the responses of
// machines inside the operator's network. The check therefore sits between the resolved address and the connection, on
// every dial. No name, redirect or DNS rebinding gets around it. Redirects are not followed.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Limits of the transport that are not settings.
const (
	dialTimeout      = 5 * time.Second // for the lookup and all addresses of a name together
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 60 * time.Second
	closeTimeout     = time.Millisecond // for the last bytes of a TLS connection; http.Transport holds a lock meanwhile
	maxHeader        = 64 << 10         // bytes of a response header
)

// Options configure a transport. The zero value is strict and fits most machines.
type Options struct {
	Policy         Policy
	Roots          *x509.CertPool // trusted authorities; nil: the system's, see Roots
	MaxIdle        int            // idle connections in all; zero: 256
	MaxIdlePerHost int            // idle connections to one host, which may serve many subscriptions; zero: 16
	Resolver       *net.Resolver  // nil: Go's own, with the system's configuration
}

// NewTransport returns a transport that connects only to what the policy allows. It speaks only HTTP/1.1, ignores proxies of the environment
// and does not decompress responses. Dial and TLS handshake have their own limits. The caller's context limits the whole request.
func NewTransport(o Options) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	maxIdle := cmp.Or(o.MaxIdle, 256)
	return &http.Transport{
		Proxy:                  nil, // a proxy would be dialled instead of the receiver, so its address would be checked
		DialContext:            o.dial(),
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true, // 200 kB of gzip can become 200 MB
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    min(cmp.Or(o.MaxIdlePerHost, 16), maxIdle),
		IdleConnTimeout:        idleTimeout,
		// MaxConnsPerHost stays 0. Otherwise a request would wait for a connection during its own timeout. A healthy
		// receiver with many subscriptions would look slow. The scheduler limits concurrent requests.
	}
}

func (o Options) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	d := o.dialer()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if plain, ok := c.(*net.TCPConn); ok {
			return socket{plain}, err
		}
		return c, err
	}
}

// socket is a connection to a receiver. A receiver that reads nothing fills the send buffer of its connection. To close TLS over it,
// crypto/tls would wait 5 s for room for its last message, after the deadline of the request.
type socket struct{ *net.TCPConn }

// SetWriteDeadline sets a deadline that is at most closeTimeout away. Only crypto/tls calls it, right before its last message.
func (s socket) SetWriteDeadline(t time.Time) error {
	if latest := time.Now().Add(closeTimeout); t.After(latest) {
		t = latest
	}
	return s.TCPConn.SetWriteDeadline(t)
}

// dialer returns the dialer of the transport, which checks every address before it connects.
func (o Options) dialer() *net.Dialer {
	// The system's C library would resolve 127.1 or 0x7f000001. For Go, these names do not exist.
	resolver := cmp.Or(o.Resolver, &net.Resolver{PreferGo: true})
	return &net.Dialer{Timeout: dialTimeout, Resolver: resolver, ControlContext: o.Policy.checkDial}
}

// checkDial checks each address of a name right before the connection is made. It refuses an address that it cannot parse.
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

// Roots returns the trusted certificate authorities: the system's, and the certificates in the operator's PEM file. Without
// a file name it returns nil, which means the system's only. A file without a certificate, or with an unreadable one,
// is an error, because every delivery that needs the certificate would fail.
func Roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate authorities: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate authorities of the system: %w", err)
	}
	added := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s has a PEM block of type %s, but only CERTIFICATE blocks are allowed", file, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read certificate %d in %s: %w", added+1, file, err)
		}
		pool.AddCert(certificate)
		added++
	}
	if added == 0 {
		return nil, fmt.Errorf("%s has no PEM certificate", file)
	}
	return pool, nil
}
