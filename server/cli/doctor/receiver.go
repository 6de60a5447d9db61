package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/config"
)

// checkReceiver checks a receiver as a delivery would reach it.
func (r *report) checkReceiver(ctx context.Context, c config.Config, raw string) {
	policy := egress.Policy{AllowHTTP: c.Egress.AllowHTTP, AllowedNetworks: c.Egress.AllowedNetworks, DeniedNetworks: c.Egress.DeniedNetworks}
	canonical, err := policy.CheckURL(raw)
	if err != nil {
		r.explainRefusal(policy, raw, err)
		return
	}
	r.ok("url", "A subscription may have the URL %s.", canonical)
	u, err := url.Parse(canonical)
	if err != nil {
		r.failure("url", err)
		return
	}
	if !r.checkAddresses(ctx, policy, u.Hostname()) {
		return
	}
	roots, err := egress.Roots(c.Egress.CAFile)
	if err != nil {
		return // checkEgress reports it
	}
	transport := egress.NewTransport(egress.Options{Policy: policy, Roots: roots})
	defer transport.CloseIdleConnections()
	r.checkResponse(ctx, transport, canonical, c.Webhooks.Timeout)
}

// explainRefusal says why a subscription to the URL is refused. Only the operator can allow an address, so the mend for one
// names the setting.
func (r *report) explainRefusal(policy egress.Policy, raw string, err error) {
	refusal, ok := errors.AsType[*egress.URLError](err)
	if !ok {
		r.problem("url", "", "%v", err)
		return
	}
	if u, err := url.Parse(raw); err == nil && refusal.Code == egress.CodeAddressNotAllowed {
		if a, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), ".")); err == nil {
			blocked := policy.CheckAddr(a)
			r.problem("url", allowAddress(a, blocked), "A subscription to this URL is refused (%s): %v", refusal.Code, blocked)
			return
		}
	}
	r.problem("url", refusal.Message, "A subscription to this URL is refused (%s).", refusal.Code)
}

// allowAddress says how the operator allows deliveries to a blocked address.
func allowAddress(a netip.Addr, blocked error) string {
	if errors.Is(blocked, egress.ErrDenied) {
		return "to allow deliveries there, remove the network of this address from egress.denied_networks"
	}
	return "if it is your own receiver, add " + a.Unmap().String() + " to egress.allowed_networks"
}

// checkAddresses looks up the name and checks each address. It reports whether at least one is allowed.
func (r *report) checkAddresses(ctx context.Context, policy egress.Policy, host string) (isReachable bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true}
	list, err := resolver.LookupNetIP(ctx, "ip", host) // an address resolves to itself
	const mend = "check the name, and the resolver of this machine (/etc/resolv.conf)"
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		r.problem("dns", mend, "There is no host %s.", host)
	} else if err != nil {
		r.problem("dns", mend, "Cannot look up %s: %v", host, err)
	}
	for _, a := range list {
		a = a.Unmap()
		if err := policy.CheckAddr(a); err != nil {
			r.problem("dns", allowAddress(a, err), "%v", err)
			continue
		}
		isReachable = true
		if a.String() == host {
			r.ok("dns", "The address is allowed.")
			continue
		}
		r.ok("dns", "%s resolves to %s, which is allowed.", host, a)
	}
	return isReachable
}

// checkResponse sends one HEAD request, and follows no redirect, like a delivery.
func (r *report) checkResponse(ctx context.Context, transport http.RoundTripper, address string, timeout time.Duration) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("no response within webhooks.timeout, "+timeout.String()))
	defer cancel()
	at := &timing{began: time.Now()}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, at.trace()), http.MethodHead, address, nil)
	if err != nil {
		r.failure("url", err)
		return
	}
	req.Header.Set("User-Agent", "keyhook-doctor")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		r.explainFailure(cmp.Or(context.Cause(ctx), err))
		return
	}
	defer resp.Body.Close()
	r.explainStatus(resp)
	r.checkTimes(at)
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		leaf := resp.TLS.PeerCertificates[0]
		issuer := append(leaf.Issuer.Organization, leaf.Issuer.CommonName)[0]
		what := fmt.Sprintf("The receiver's certificate (%s, issued by %s)", tls.VersionName(resp.TLS.Version), issuer)
		r.checkExpiry("renew the receiver's certificate", what, leaf)
	}
	r.checkClock("the receiver", resp.Header)
}

// explainFailure says why there was no response.
func (r *report) explainFailure(err error) {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		r.problem("tls", "let the receiver send its whole certificate chain, or set egress.ca_file for your own authority",
			"The authority of the receiver's certificate is unknown, or the certificate chain is incomplete.")
	case errors.As(err, &host):
		r.problem("tls", "give the receiver a certificate for this name", "%v", host)
	case errors.As(err, &invalid):
		r.problem("tls", "renew the receiver's certificate", "%v", invalid)
	default:
		r.problem("receiver", "check whether the receiver is running, and whether a firewall blocks the connection", "The receiver cannot be reached: %v", err)
	}
}

// explainStatus says what the status means for deliveries, which are POST requests.
func (r *report) explainStatus(resp *http.Response) {
	switch status := resp.StatusCode; {
	case status >= 300 && status < 400:
		r.problem("receiver", "use the final URL for the subscription", "The receiver redirects (%d to %s), but a delivery follows no redirect.", status, resp.Header.Get("Location"))
	case status < 300:
		r.ok("receiver", "The receiver responds to HEAD with %d.", status)
	case status == http.StatusMethodNotAllowed || status == http.StatusNotFound || status == http.StatusNotImplemented:
		r.ok("receiver", "The receiver responds with %d, perhaps because the request is HEAD and not POST.", status)
	case status >= 500:
		r.warning("receiver", "look at the log of the receiver", "The receiver responds to HEAD with %d.", status)
	default:
		r.warning("receiver", "let the receiver accept POST requests that have a signature and no other credential", "The receiver responds to HEAD with %d.", status)
	}
}

// timing records when each part of a request ended.
type timing struct{ began, connected, ready, answered time.Time }

func (t *timing) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeStart:    func() { t.connected = time.Now() },
		GotConn:              func(httptrace.GotConnInfo) { t.ready = time.Now() },
		GotFirstResponseByte: func() { t.answered = time.Now() },
	}
}

// checkTimes reports how long the parts of the request took.
func (r *report) checkTimes(t *timing) {
	took := func(from, to time.Time) string { return to.Sub(from).Round(100 * time.Microsecond).String() }
	text := "Connected after " + took(t.began, t.ready)
	if !t.connected.IsZero() {
		text = "Connected after " + took(t.began, t.connected) + ", TLS after another " + took(t.connected, t.ready)
	}
	text += ", first byte after another " + took(t.ready, t.answered)
	if t.answered.Sub(t.began) > 2*time.Second {
		r.warning("times", "let the receiver respond first and do the work afterwards", "%s", text)
		return
	}
	r.ok("times", "%s", text)
}
