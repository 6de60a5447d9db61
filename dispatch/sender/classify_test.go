package sender_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestErrors(t *testing.T) {
	t.Parallel()

	certified := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(certified.Close)
	quiet(certified)
	trusting := func(t *testing.T, change func(*tls.Config)) http.RoundTripper {
		transport := loopback(t)
		transport.TLSClientConfig.RootCAs = certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		change(transport.TLSClientConfig)
		return transport
	}
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	quiet(old)
	old.StartTLS()
	t.Cleanup(old.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hangUp := rawServer(t, func(c net.Conn, _ *http.Request) { c.Close() })
	gone := net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}

	for name, c := range map[string]struct {
		url       string
		transport http.RoundTripper
		want      string
	}{
		"connection refused":        {closed.URL, loopback(t), "connect_error: connection refused"},
		"hung up":                   {hangUp, loopback(t), "connect_error: the connection was lost before the response was complete"},
		"blocked literal":           {plain.URL, egress.NewTransport(egress.Options{}), "blocked_address: the address is not allowed"},
		"unknown authority":         {certified.URL, loopback(t), "tls_error: the certificate is signed by an unknown authority"},
		"wrong host":                {certified.URL, trusting(t, func(c *tls.Config) { c.ServerName = "other.example" }), "tls_error: the certificate is for another host"},
		"expired":                   {certified.URL, trusting(t, func(c *tls.Config) { c.Time = func() time.Time { return time.Now().AddDate(200, 0, 0) } }), "tls_error: the certificate has expired or is not valid yet"},
		"too old a TLS":             {old.URL, loopback(t), "tls_error: the handshake failed"},
		"no TLS at all":             {strings.Replace(plain.URL, "http:", "https:", 1), loopback(t), "tls_error: the receiver does not speak TLS"},
		"hung up in the handshake":  {strings.Replace(hangUp, "http:", "https:", 1), loopback(t), "tls_error: the handshake failed"},
		"TLS where none is wanted":  {strings.Replace(certified.URL, "https:", "http:", 1), loopback(t), "http_status: 400"},
		"no such name":              {"https://a.example", failing{&net.DNSError{Name: "a.example", IsNotFound: true, Server: "127.0.0.1"}}, "dns_error: the host name does not exist"},
		"no name server":            {"https://a.example", failing{&net.DNSError{Name: "a.example", IsTimeout: true, Server: "127.0.0.1"}}, "dns_error: the host name cannot be resolved"},
		"broken name server":        {"https://a.example", failing{&net.DNSError{Err: "127.0.0.1 says no"}}, "dns_error: the host name cannot be resolved"},
		"dial with no known reason": {"https://a.example", failing{&gone}, "connect_error: no connection could be made"},
		"dial out of time":          {"https://a.example", failing{&net.OpError{Op: "dial", Addr: gone.Addr, Err: context.DeadlineExceeded}}, "timeout: no connection in time"},
		"unknown error":             {"https://a.example", failing{fmt.Errorf("127.0.0.1/%s is odd", secretPath)}, "protocol_error: the response is not valid HTTP"},
		"panic":                     {"https://a.example", panicking{}, "protocol_error: the request could not be sent"},
		"not a URL":                 {"https://a b/%zz", failing{}, "protocol_error: nothing was sent: the URL of the subscription is not valid"},
		"no host":                   {"https:", failing{}, "protocol_error: nothing was sent: the URL of the subscription is not valid"},
		"another scheme":            {"ftp://a.example", failing{}, "protocol_error: nothing was sent: the URL of the subscription must begin with https://, unless egress.allow_http is set"},
	} {
		t.Run(name+" is reported by its class, not by its text", func(t *testing.T) {
			t.Parallel()
			url := c.url
			if !strings.Contains(url, "%zz") && url != "https:" {
				url = secretURL(url)
			}
			r := sendOne(t, newAttempt(url), sender.Options{Transport: c.transport})
			if r.Succeeded || r.Failure.String() != c.want {
				t.Errorf("got %q, want %q", r.Failure.String(), c.want)
			}
			if (r.ResponseStatus != nil) != strings.HasPrefix(c.want, "http_status") {
				t.Errorf("status %v", r.ResponseStatus)
			}
		})
	}

	t.Run("an address with a zone is only a failed attempt", func(t *testing.T) {
		t.Parallel()
		a := newAttempt("http://[fe80::1%25lo]:1")
		if r := sendOne(t, a, sender.Options{Transport: egress.NewTransport(egress.Options{})}); r.Succeeded || r.ResponseStatus != nil {
			t.Errorf("%+v", r)
		}
	})

	t.Run("a secret that cannot be unsealed fails with the reason", func(t *testing.T) {
		t.Parallel()
		a := newAttempt(secretURL("https://a.example"))
		a.target.Secret, a.target.Unusable = webhook.Secret{}, "the signing secret cannot be unsealed; rotate the secret"
		if r := sendOne(t, a, sender.Options{Transport: panicking{}}); r.Failure.String() != "protocol_error: nothing was sent: the signing secret cannot be unsealed; rotate the secret" {
			t.Errorf("got %q", r.Failure.String())
		}
		a = newAttempt(secretURL("https://a.example"))
		a.target.Secret = webhook.KnownSecret("whsec_!")
		if r := sendOne(t, a, sender.Options{Transport: panicking{}}); r.Failure.String() != "protocol_error: nothing was sent: the signing secret cannot be used; rotate it" {
			t.Errorf("got %q", r.Failure.String())
		}
	})
}

// failing is a transport that always fails.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// panicking is a transport with a bug.
type panicking struct{}

func (panicking) RoundTrip(q *http.Request) (*http.Response, error) {
	panic("bug at " + q.URL.String())
}
