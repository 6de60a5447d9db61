package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/config"
)

// checkReceiver checks a receiver as a delivery would reach it.
func (r *report) checkReceiver(ctx context.Context, c config.Config, raw string) {
	policy := policyOf(c)
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

func policyOf(c config.Config) egress.Policy {
	return egress.Policy{AllowHTTP: c.Egress.AllowHTTP, AllowedNetworks: c.Egress.AllowedNetworks, DeniedNetworks: c.Egress.DeniedNetworks}
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
	const check = "dns"
	list := []netip.Addr{}
	if literal, err := netip.ParseAddr(host); err == nil {
		list = append(list, literal)
	} else {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		resolver := &net.Resolver{PreferGo: true}
		if list, err = resolver.LookupNetIP(ctx, "ip", host); err != nil {
			mend := "check the name, and the resolver of this machine (/etc/resolv.conf)"
			if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
				r.problem(check, mend, "There is no host %s.", host)
			} else {
				r.problem(check, mend, "Cannot look up %s: %v", host, err)
			}
			return false
		}
	}
	for _, a := range list {
		if err := policy.CheckAddr(a); err != nil {
			r.problem(check, allowAddress(a, err), "%v", err)
			continue
		}
		isReachable = true
		if a.String() == host {
			r.ok(check, "The address is allowed.")
			continue
		}
		r.ok(check, "%s resolves to %s, which is allowed.", host, a.Unmap())
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
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		r.explainFailure(err)
		return
	}
	defer resp.Body.Close()
	r.explainStatus(resp)
	r.checkTimes(at)
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		leaf := resp.TLS.PeerCertificates[0]
		r.checkExpiry("tls", "renew the receiver's certificate", "The receiver's certificate ("+tls.VersionName(resp.TLS.Version)+", issued by "+issuer(leaf)+")", leaf)
	}
	r.checkSkew("the receiver", resp.Header, time.Now())
}

func issuer(leaf *x509.Certificate) string {
	if len(leaf.Issuer.Organization) > 0 {
		return leaf.Issuer.Organization[0]
	}
	return leaf.Issuer.CommonName
}

// explainFailure says why there was no response.
func (r *report) explainFailure(err error) {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
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
	const check = "receiver"
	switch status := resp.StatusCode; {
	case status >= 300 && status < 400:
		r.problem(check, "use the final URL for the subscription", "The receiver redirects (%d to %s), but a delivery follows no redirect.", status, resp.Header.Get("Location"))
	case status < 300:
		r.ok(check, "The receiver responds to HEAD with %d.", status)
	case status == http.StatusMethodNotAllowed || status == http.StatusNotFound || status == http.StatusNotImplemented:
		r.ok(check, "The receiver responds with %d, perhaps because the request is HEAD and not POST.", status)
	case status >= 500:
		r.warning(check, "look at the log of the receiver", "The receiver responds to HEAD with %d.", status)
	default:
		r.warning(check, "let the receiver accept POST requests that have a signature and no other credential", "The receiver responds to HEAD with %d.", status)
	}
}

// timing records when each part of a request ended. Several addresses may be tried at once, so it has a lock.
type timing struct {
	mu                                  sync.Mutex
	began, connected, secured, answered time.Time
}

func (t *timing) trace() *httptrace.ClientTrace {
	done := func(part *time.Time, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil {
			*part = time.Now()
		}
	}
	return &httptrace.ClientTrace{
		ConnectDone:          func(_, _ string, err error) { done(&t.connected, err) },
		TLSHandshakeDone:     func(_ tls.ConnectionState, err error) { done(&t.secured, err) },
		GotFirstResponseByte: func() { done(&t.answered, nil) },
	}
}

// checkTimes reports how long the parts of the request took.
func (r *report) checkTimes(t *timing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took := func(from, to time.Time) string {
		return to.Sub(from).Round(100 * time.Microsecond).String()
	}
	text := "Connected after " + took(t.began, t.connected)
	last := t.connected
	if !t.secured.IsZero() {
		text += ", TLS after another " + took(t.connected, t.secured)
		last = t.secured
	}
	text += ", first byte after another " + took(last, t.answered)
	if total := t.answered.Sub(t.began); total > 2*time.Second {
		r.warning("times", "let the receiver respond first and do the work afterwards", "%s", text)
		return
	}
	r.ok("times", "%s", text)
}
