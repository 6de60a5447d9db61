package cli

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
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/config"
)

// clock compares the system's clock with the one that runs while the machine is off. Linux only; elsewhere, and in most
// virtual machines, there is none to be seen.
func (d *examination) clock(context.Context) {
	text, err := os.ReadFile("/sys/class/rtc/rtc0/since_epoch")
	if err != nil {
		return
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return
	}
	if by := time.Since(time.Unix(seconds, 0)).Round(time.Second); by.Abs() > largeSkew {
		d.warn("clock", "set it by NTP, and the hardware clock by: hwclock --systohc --utc",
			"the system's clock and the hardware's differ by %s, so that one of them is wrong", by)
	}
}

// times are when the parts of a request were done. Addresses are tried side by side, so the tracing is, too.
type times struct {
	mu                                  sync.Mutex
	began, connected, secured, answered time.Time
}

// receiver looks at a receiver as a delivery would find it.
func (d *examination) receiver(ctx context.Context, c config.Config, raw string) {
	policy := egress.Policy{AllowHTTP: c.Egress.AllowHTTP, AllowedNetworks: c.Egress.AllowedNetworks, DeniedNetworks: c.Egress.DeniedNetworks}
	canonical, err := policy.CheckURL(raw)
	if err != nil {
		d.refusedURL(policy, raw, err)
		return
	}
	d.well("url", "%s may be subscribed", canonical)
	u, err := url.Parse(canonical)
	if err != nil {
		d.refused("url", err)
		return
	}
	if !d.addresses(ctx, policy, u.Hostname()) {
		return
	}
	roots, err := egress.Roots(c.Egress.CAFile)
	if err != nil {
		return // said already
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Webhooks.Timeout, errors.New("no answer within webhooks.timeout, "+c.Webhooks.Timeout.String()))
	defer cancel()
	at := &times{began: time.Now()}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, at.trace()), http.MethodHead, canonical, nil)
	if err != nil {
		d.refused("url", err)
		return
	}
	req.Header.Set("User-Agent", "keyhook-doctor")
	transport := egress.NewTransport(egress.Options{Policy: policy, Roots: roots})
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req) // which follows no redirect, as deliveries do not
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		d.unreachable(err)
		return
	}
	defer resp.Body.Close()
	d.answered(resp)
	d.timing(at)
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		leaf := resp.TLS.PeerCertificates[0]
		d.expiry("tls", "have the receiver's certificate renewed", "the receiver's certificate ("+tls.VersionName(resp.TLS.Version)+", issued by "+issuer(leaf)+")", leaf)
	}
	d.skew("clock", "the receiver", resp.Header, time.Now())
}

// refusedURL tells why a subscription to the URL is refused. If an address is the reason, the mend is the operator's.
func (d *examination) refusedURL(policy egress.Policy, raw string, err error) {
	refused, ok := errors.AsType[*egress.URLError](err)
	if !ok {
		d.wrong("url", "", "%v", err)
		return
	}
	if u, err := url.Parse(raw); err == nil && refused.Code == egress.CodeAddressNotAllowed {
		if a, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), ".")); err == nil {
			blocked := policy.CheckAddr(a)
			d.wrong("url", openAddress(a, blocked), "a subscription to it is refused: %s: %v", refused.Code, blocked)
			return
		}
	}
	d.wrong("url", refused.Message, "a subscription to it is refused: %s", refused.Code)
}

// openAddress says how the operator lets deliveries go to an address that the guard has blocked.
func openAddress(a netip.Addr, blocked error) string {
	if errors.Is(blocked, egress.ErrDenied) {
		return "if deliveries shall go there, remove its network from egress.denied_networks"
	}
	return "if it is a receiver of your own, add " + a.Unmap().String() + " to egress.allowed_networks"
}

func issuer(leaf *x509.Certificate) string {
	if len(leaf.Issuer.Organization) > 0 {
		return leaf.Issuer.Organization[0]
	}
	return leaf.Issuer.CommonName
}

// addresses looks up the name and judges each address as a delivery would.
func (d *examination) addresses(ctx context.Context, policy egress.Policy, host string) (reachable bool) {
	list := []netip.Addr{}
	if literal, err := netip.ParseAddr(host); err == nil {
		list = append(list, literal)
	} else {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		resolver := &net.Resolver{PreferGo: true}
		if list, err = resolver.LookupNetIP(ctx, "ip", host); err != nil {
			mend := "look at the name, and at the resolver of this machine (/etc/resolv.conf)"
			if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
				d.wrong("dns", mend, "there is no such name as %s", host)
			} else {
				d.wrong("dns", mend, "%s cannot be looked up: %v", host, err)
			}
			return false
		}
	}
	for _, a := range list {
		if err := policy.CheckAddr(a); err != nil {
			d.wrong("dns", openAddress(a, err), "%v", err)
			continue
		}
		reachable = true
		if a.String() == host {
			d.well("dns", "the address is allowed")
			continue
		}
		d.well("dns", "%s leads to %s, which is allowed", host, a.Unmap())
	}
	return reachable
}

// unreachable tells why there was no answer.
func (d *examination) unreachable(err error) {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		d.wrong("tls", "have the receiver send its whole chain; for an authority of your own, set egress.ca_file", "the certificate is of an authority that is not known here, or its chain is not whole")
	case errors.As(err, &host):
		d.wrong("tls", "have a certificate for this name", "%v", host)
	case errors.As(err, &invalid):
		d.wrong("tls", "have the receiver's certificate renewed", "%v", invalid)
	default:
		d.wrong("receiver", "look whether it runs, and whether a firewall stands between", "it cannot be reached: %v", err)
	}
}

// answered tells what the answer means for deliveries, which are POST requests.
func (d *examination) answered(resp *http.Response) {
	switch status := resp.StatusCode; {
	case status >= 300 && status < 400:
		d.wrong("receiver", "subscribe the URL that it leads to", "it answers with a redirect (%d to %s), and deliveries follow none", status, resp.Header.Get("Location"))
	case status < 300:
		d.well("receiver", "it answers HEAD with %d", status)
	case status == http.StatusMethodNotAllowed || status == http.StatusNotFound || status == http.StatusNotImplemented:
		d.well("receiver", "it answers; that it does so with %d may be because this is HEAD and not POST", status)
	case status >= 500:
		d.warn("receiver", "look at the receiver's log", "it answers HEAD with %d", status)
	default:
		d.warn("receiver", "let POST requests through that carry a signature and no other credential", "it answers HEAD with %d", status)
	}
}

func (t *times) trace() *httptrace.ClientTrace {
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

// timing tells how long the parts took.
func (d *examination) timing(t *times) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ms := func(from, to time.Time) string {
		return to.Sub(from).Round(100 * time.Microsecond).String()
	}
	text := "connected after " + ms(t.began, t.connected)
	last := t.connected
	if !t.secured.IsZero() {
		text += ", TLS after another " + ms(t.connected, t.secured)
		last = t.secured
	}
	text += ", first byte after another " + ms(last, t.answered)
	if total := t.answered.Sub(t.began); total > 2*time.Second {
		d.warn("times", "have the receiver answer at once and work afterwards", "%s", text)
		return
	}
	d.well("times", "%s", text)
}
