package doctor

import (
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
)

// checkSettings reports the problems of the settings. It returns false if there are any: no other check is possible then.
func (r *report) checkSettings(flags *pflag.FlagSet, err error) bool {
	const check = "settings"
	if err != nil {
		r.wrongSettings(check, err)
		return false
	}
	list, err := config.Explain(flags)
	if err != nil {
		r.failure(check, err)
		return false
	}
	var changed []string
	for _, s := range list {
		if s.Source != "default" {
			changed = append(changed, s.Name)
		}
	}
	if len(changed) == 0 {
		r.ok(check, "The settings are valid. All settings have their defaults.")
	} else {
		r.ok(check, "The settings are valid. Changed from the defaults: %s", strings.Join(changed, ", "))
	}
	return true
}

// wrongSettings adds each of the config.Problems in err as a problem of a check.
func (r *report) wrongSettings(check string, err error) {
	var problems config.Problems
	if !errors.As(err, &problems) {
		r.failure(check, err)
		return
	}
	for _, p := range problems {
		text := p.Where() + ": " + p.What
		if defect := defectOfSetting(p.Setting); defect != "" {
			text += "; " + defect
		}
		r.problem(check, p.Mend, "%s", text)
	}
}

// checkServing checks how clients reach the server, and where deliveries may go.
func (r *report) checkServing(c config.Config) {
	r.checkCertificate(c)
	r.checkProxies(c)
	r.checkAddress(c)
	r.checkEgress(c.Egress)
	r.checkAlerts(c.Alerts)
}

func (r *report) checkEgress(e config.Egress) {
	const check = "egress"
	if _, err := egress.Roots(e.CAFile); err != nil {
		r.problem(check, "set egress.ca_file to a file of PEM certificates", "egress.ca_file: %v", err)
	}
	if e.AllowHTTP {
		r.warning(check, "use --dev and egress.allow_http only for development", "Deliveries may go to http:// URLs, where everybody on the network can read them.")
	}
	for _, n := range e.AllowedNetworks {
		if n.Bits() == 0 || n.Addr().IsLoopback() || n.Contains(netip.MustParseAddr("169.254.169.254")) {
			r.warning(check, "list only the addresses of your own receivers in egress.allowed_networks", "Customers can send deliveries to %s.", n)
		}
		for _, denied := range e.DeniedNetworks {
			if denied.Overlaps(n) {
				r.warning(check, "remove one of the two networks", "egress.denied_networks (%s) blocks addresses that egress.allowed_networks (%s) allows.", denied, n)
			}
		}
	}
	if err := egress.CheckOwnAddresses(); err != nil {
		r.warning(check, "let the process read its network interfaces (AF_NETLINK), or list its public addresses in egress.denied_networks",
			"Deliveries to the public addresses of this machine are not blocked: %v", err)
	}
}

func (r *report) checkCertificate(c config.Config) {
	const check = "tls"
	pair, err := c.Server.Certificate()
	if err != nil {
		r.wrongSettings(check, err)
		return
	}
	if pair == nil {
		return
	}
	leaf, err := x509.ParseCertificate(pair.Certificates[0].Certificate[0])
	if err != nil {
		r.problem(check, "set server.tls_cert_file to a valid certificate", "%v", err)
		return
	}
	r.checkExpiry(check, "renew server.tls_cert_file and restart the server", "The server's certificate", leaf)
}

// certificateSoon is the time before the end of a certificate in which doctor warns.
const certificateSoon = 14 * 24 * time.Hour

// checkExpiry reports when a certificate expires. what names the certificate at the beginning of a sentence.
func (r *report) checkExpiry(check, mend, what string, leaf *x509.Certificate) {
	left, end := time.Until(leaf.NotAfter), leaf.NotAfter.UTC().Format(time.DateOnly)
	days := output.Count(int(left.Hours()/24), "day", "days")
	switch {
	case left < 0:
		r.problem(check, mend, "%s expired on %s.", what, end)
	case left < certificateSoon:
		r.warning(check, mend, "%s expires in %s, on %s.", what, days, end)
	default:
		r.ok(check, "%s is valid for another %s, until %s.", what, days, end)
	}
}

// checkProxies checks whom the server believes about the addresses of callers.
func (r *report) checkProxies(c config.Config) {
	for _, n := range c.Server.TrustedProxies {
		if least := map[bool]int{true: 8, false: 32}[n.Addr().Is4()]; n.Bits() < least {
			r.problem("proxies", "list only the addresses of your own proxies in server.trusted_proxies",
				"The server trusts X-Forwarded-For from %s, so most of the internet can claim any address.", n)
		}
	}
}

// checkAddress checks what travels unencrypted, and whether the server knows the addresses of its callers.
func (r *report) checkAddress(c config.Config) {
	const check = "address"
	host, _, _ := net.SplitHostPort(c.Server.Listen)
	addr, err := netip.ParseAddr(host)
	isLocal := host == "localhost" || err == nil && addr.IsLoopback()
	hasTLS, isPlain, isSecure := c.Server.TLSCertFile != "", strings.HasPrefix(c.Server.BaseURL, "http://"), strings.HasPrefix(c.Server.BaseURL, "https://")
	switch {
	case hasTLS && isPlain:
		r.warning(check, "set server.base_url to the https:// address", "The server speaks TLS, but server.base_url is %s.", c.Server.BaseURL)
	case !isLocal && !hasTLS && !isSecure:
		r.warning(check, "put a proxy with TLS in front of the server and set server.base_url to its https:// address, or set server.tls_cert_file",
			"Other machines can connect to %s without TLS, so credentials travel unencrypted.", c.Server.Listen)
	case !hasTLS && isSecure && len(c.Server.TrustedProxies) == 0:
		r.warning(check, "add the address of the proxy to server.trusted_proxies",
			"The server does not trust your proxy, so all callers share the address of the proxy in limits and logs.")
	default:
		r.ok(check, "%s, as %s", c.Server.Listen, c.Server.URL(c.Server.Listen))
	}
}
