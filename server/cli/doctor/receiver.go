package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/config"
)

// checkReceiver checks a receiver as a delivery would reach it.
func (r *report) checkReceiver(ctx context.Context, c config.Config, raw string) {
	policy := egress.Policy{AllowHTTP: c.Egress.AllowHTTP, AllowedNetworks: c.Egress.AllowedNetworks, DeniedNetworks: c.Egress.DeniedNetworks}
	address, err := policy.CheckURL(raw)
	refusal, isRefused := errors.AsType[*egress.URLError](err)
	if isRefused {
		mend := refusal.Message
		if or := client.Mend(refusal.Code); or != "" {
			mend = strings.TrimSuffix(mend, ".") + ", " + or
		}
		r.problem("url", mend, "A subscription to this URL is refused (%s).", refusal.Code)
	} else {
		r.ok("url", "A subscription may have the URL %s.", address)
	}
	if isRefused && refusal.Code != egress.CodeAddressNotAllowed {
		return
	}
	u, err := url.Parse(cmp.Or(address, raw))
	roots, noRoots := egress.Roots(c.Egress.CAFile) // checkEgress reports the error
	if err != nil || !r.checkAddresses(ctx, policy, strings.TrimSuffix(u.Hostname(), ".")) || isRefused || noRoots != nil {
		return
	}
	transport := egress.NewTransport(egress.Options{Policy: policy, Roots: roots})
	defer transport.CloseIdleConnections()
	r.checkResponse(ctx, transport, address, c.Webhooks.Timeout)
}

// checkAddresses looks up the name and checks each address. It reports whether at least one is allowed. Only the operator can allow an
// address, so the mend names the setting.
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
		switch err := policy.CheckAddr(a); {
		case errors.Is(err, egress.ErrDenied):
			r.problem("dns", "to allow deliveries there, remove the network of this address from egress.denied_networks", "%v", err)
		case err != nil:
			r.problem("dns", "if it is your own receiver, add "+a.String()+" to egress.allowed_networks", "%v", err)
		default:
			isReachable = true
			r.ok("dns", "The address %s of the receiver is allowed.", a)
		}
	}
	return isReachable
}

// checkResponse sends one HEAD request, and follows no redirect, like a delivery.
func (r *report) checkResponse(ctx context.Context, transport http.RoundTripper, address string, timeout time.Duration) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("no response within webhooks.timeout, "+timeout.String()))
	defer cancel()
	began, times := time.Now(), []string{}
	reached := func(what string) {
		times = append(times, what+" after "+time.Since(began).Round(100*time.Microsecond).String())
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart:    func() { reached("TLS begins") },
		GotConn:              func(httptrace.GotConnInfo) { reached("connected") },
		GotFirstResponseByte: func() { reached("first byte") },
	})
	req, _ := http.NewRequestWithContext(ctx, http.MethodHead, address, nil) // CheckURL has accepted the address
	req.Header.Set("User-Agent", "keyhook-doctor")
	resp, err := transport.RoundTrip(req)
	if _, isTLS := errors.AsType[*tls.CertificateVerificationError](err); isTLS {
		r.problem("tls", "give the receiver a certificate for its name, with the whole chain, or set egress.ca_file for your own authority",
			"The receiver's certificate is not accepted: %v", err)
		return
	} else if err != nil {
		r.problem("receiver", "check whether the receiver is running, and whether a firewall blocks the connection",
			"The receiver cannot be reached: %v", cmp.Or(context.Cause(ctx), err))
		return
	}
	defer resp.Body.Close()
	r.explainStatus(resp)
	if time.Since(began) > 2*time.Second {
		r.warning("times", "let the receiver respond first and do the work afterwards", "%s", strings.Join(times, ", "))
	} else {
		r.ok("times", "%s", strings.Join(times, ", "))
	}
	if resp.TLS != nil {
		leaf := resp.TLS.PeerCertificates[0]
		issuer := append(leaf.Issuer.Organization, leaf.Issuer.CommonName)[0]
		what := fmt.Sprintf("The receiver's certificate (%s, issued by %s)", tls.VersionName(resp.TLS.Version), issuer)
		r.checkExpiry("renew the receiver's certificate", what, leaf)
	}
	r.checkClock(resp.Header)
}

// checkClock compares the receiver's clock with the clock of this machine. The Date header has whole seconds. Receivers refuse signatures
// that are some minutes old.
func (r *report) checkClock(header http.Header) {
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	const text = "The clock of the receiver differs from the clock of this machine by %s."
	switch by := time.Since(at).Round(time.Second); {
	case by.Abs() > 2*time.Minute:
		r.problem("clock", "synchronize both clocks with NTP, because receivers refuse old signatures", text, by)
	case by.Abs() > 5*time.Second:
		r.warning("clock", "synchronize both clocks with NTP", text, by)
	default:
		r.ok("clock", "The clock of the receiver agrees with the clock of this machine.")
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
