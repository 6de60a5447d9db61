package sender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/storage/webhook"
)

// classify describes an error of the transport, or of reading a response, for the owner of a subscription. It uses fixed
// phrases. The text of an error may contain a resolved address, or the path and query of a URL. Some errors have no type: then
// the progress of the request tells what happened.
func (s *Sender) classify(ctx context.Context, err error, p *progress) webhook.Failure {
	var dns *net.DNSError
	var wire *net.OpError
	var slow interface{ Timeout() bool }
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return webhook.Failure{Class: webhook.TimeoutError, Text: "no complete response within " + s.options.Timeout.String()}
	case errors.Is(err, egress.ErrBlocked):
		return webhook.Failure{Class: webhook.BlockedAddress, Text: "the address is not allowed"}
	case errors.As(err, &dns) && dns.IsNotFound:
		return webhook.Failure{Class: webhook.DNSError, Text: "the host name does not exist"}
	case dns != nil:
		return webhook.Failure{Class: webhook.DNSError, Text: "the host name cannot be resolved"}
	case p.connected && !p.responded.Load():
		return connectionLost
	case !p.connected && p.handshakeFailed.Load():
		return describeTLS(err)
	case errors.As(err, &slow) && slow.Timeout():
		return webhook.Failure{Class: webhook.TimeoutError, Text: "no connection in time"}
	case errors.As(err, &wire) && wire.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED):
		return webhook.Failure{Class: webhook.ConnectError, Text: "connection refused"}
	case wire != nil && wire.Op == "dial":
		return webhook.Failure{Class: webhook.ConnectError, Text: "no connection could be made"}
	case wire != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return connectionLost
	}
	return webhook.Failure{Class: webhook.ProtocolError, Text: "the response is not valid HTTP"}
}

var connectionLost = webhook.Failure{Class: webhook.ConnectError, Text: webhook.ConnectionLost}

// maxRedirectHost is the longest host that describeRedirect shows.
const maxRedirectHost = 253

// describeRedirect says to which other host a response redirects. The rest of the address may be secret.
func describeRedirect(r *http.Response, from string) string {
	to, err := r.Location()
	if r.StatusCode/100 != 3 || err != nil || to.Host == from || len(to.Host) > maxRedirectHost {
		return ""
	}
	return " to " + strings.ToValidUTF8(to.Host, "")
}

func describeTLS(err error) webhook.Failure {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		slow      interface{ Timeout() bool }
	)
	phrase := "the handshake failed"
	switch {
	case errors.As(err, &authority):
		phrase = "the certificate is signed by an unknown authority"
	case errors.As(err, &host):
		phrase = "the certificate is for another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		phrase = "the certificate has expired or is not valid yet"
	case errors.As(err, &verify):
		phrase = "the certificate is not valid"
	case errors.As(err, &record):
		phrase = "the receiver does not speak TLS"
	case errors.As(err, &slow) && slow.Timeout():
		return webhook.Failure{Class: webhook.TimeoutError, Text: "no TLS handshake in time"}
	}
	return webhook.Failure{Class: webhook.TLSError, Text: phrase}
}
