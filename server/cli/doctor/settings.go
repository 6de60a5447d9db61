package doctor

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/storage/redact"
)

// checkSettings reports the problems of the settings, and whether there are none.
func (r *report) checkSettings(flags *pflag.FlagSet) (areValid bool) {
	list, err := config.Sources(flags)
	if err != nil {
		r.failure("settings", err)
		return false
	}
	var changed []string
	for _, s := range list {
		if s.Source != "default" {
			changed = append(changed, s.Name)
		}
	}
	text := "All settings have their defaults."
	if len(changed) > 0 {
		text = "Changed from the defaults: " + strings.Join(changed, ", ")
	}
	r.ok("settings", "The settings are valid. %s", text)
	return true
}

// checkSecrets checks the secrets whose value is never shown for damage by shells, editors and manifests. A secret that was refused is
// not in c, so this reads it from the environment or from its file.
func (r *report) checkSecrets(c config.Config) {
	before := len(r.Findings)
	values := []redact.Text{c.Encryption.Key, c.Bootstrap.Token}
	for i, name := range []string{"encryption.key", "bootstrap.token"} {
		env := "KEYHOOK_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
		content, _ := os.ReadFile(os.Getenv(env + "_FILE")) // the problem of the setting says what is wrong with the file
		text := cmp.Or(values[i].Reveal(), os.Getenv(env), strings.TrimSuffix(string(content), "\n"))
		if defect := defectOf(text); defect != "" {
			r.warning("secrets", "check where the secret is set, but do not change the key of an existing database", "%s: %s", name, defect)
		}
	}
	if len(r.Findings) == before {
		r.ok("secrets", "The secrets in the settings look right.")
	}
}

// defectOf says what seems to be wrong with the text of a secret, without showing any of it. It returns "" if nothing is, and for no secret.
func defectOf(text string) string {
	trimmed := strings.TrimSpace(text)
	distinct := slices.Compact(slices.Sorted(slices.Values([]rune(text))))
	inner, err := base64.StdEncoding.DecodeString(text)
	isBinary := func(r rune) bool { return r > '~' || !unicode.IsPrint(r) }
	switch {
	case text == "":
		return ""
	case strings.HasPrefix(text, "\ufeff"):
		return "the value begins with a byte order mark, which some editors write"
	case strings.ContainsAny(trimmed, "\r\n"):
		return "the value has more than one line"
	case trimmed != text:
		return "the value has white space around it"
	case strings.HasSuffix(text, `\n`):
		return `the value ends with the two characters \n instead of a line break`
	case len(text) > 1 && strings.ContainsRune(`"'`, rune(text[0])) && text[len(text)-1] == text[0]:
		return "the value includes the quotes around it"
	case strings.HasPrefix(text, "${") || strings.HasPrefix(text, "$("):
		return "the value looks like a variable that was not replaced"
	case err == nil && len(inner) >= 16 && !strings.ContainsFunc(strings.TrimSuffix(string(inner), "\n"), isBinary):
		return "the value looks like base64 of another text (Kubernetes needs base64 under data, and plain text under stringData)"
	case len(distinct) < 8:
		return "the value has fewer than 8 different characters, so it is easy to guess"
	}
	return ""
}

// checkServing checks how clients reach the server, and where deliveries and alerts may go.
func (r *report) checkServing(c config.Config) {
	if pair, err := c.Server.Certificate(); err != nil {
		r.failure("tls", err)
	} else if pair != nil { // its leaf was parsed
		r.checkExpiry("renew server.tls_cert_file and restart the server", "The server's certificate", pair.Certificates[0].Leaf)
	}
	for _, n := range c.Server.TrustedProxies {
		if n.Addr().Is4() && n.Bits() < 8 || n.Addr().Is6() && n.Bits() < 32 {
			r.problem("proxies", "list only the addresses of your own proxies in server.trusted_proxies",
				"The server trusts X-Forwarded-For from %s, so most of the internet can claim any address.", n)
		}
	}
	r.checkAddress(c.Server)
	if _, err := console.ReadLogo(c.Console.LogoFile); err != nil {
		r.problem("console", "set console.logo_file to an SVG or PNG file of at most 64 KiB that this process may read", "console.logo_file: %v", err)
	}
	r.checkEgress(c.Egress)
	r.checkAlerts(c.Alerts)
}

// checkExpiry reports when a certificate expires. what names the certificate at the beginning of a sentence.
func (r *report) checkExpiry(mend, what string, leaf *x509.Certificate) {
	left, end := time.Until(leaf.NotAfter), leaf.NotAfter.UTC().Format(time.DateOnly)
	days := output.Count(int(left.Hours()/24), "day", "days")
	switch {
	case left < 0:
		r.problem("tls", mend, "%s expired on %s.", what, end)
	case left < alert.ExpiresSoon:
		r.warning("tls", mend, "%s expires in %s, on %s.", what, days, end)
	default:
		r.ok("tls", "%s is valid for another %s, until %s.", what, days, end)
	}
}

// checkAddress checks what travels unencrypted, and whether the server knows the addresses of its callers.
func (r *report) checkAddress(s config.Server) {
	host, _, _ := net.SplitHostPort(s.Listen)
	addr, err := netip.ParseAddr(host)
	isLocal := host == "localhost" || err == nil && addr.IsLoopback()
	hasTLS, isSecure := s.TLSCertFile != "", strings.HasPrefix(s.BaseURL, "https://")
	switch {
	case hasTLS && strings.HasPrefix(s.BaseURL, "http://"):
		r.warning("address", "set server.base_url to the https:// address", "The server speaks TLS, but server.base_url is %s.", s.BaseURL)
	case !isLocal && !hasTLS && !isSecure:
		r.warning("address", "put a proxy with TLS in front of the server and set server.base_url to its https:// address, or set server.tls_cert_file",
			"Other machines can connect to %s without TLS, so credentials travel unencrypted.", s.Listen)
	case !hasTLS && isSecure && len(s.TrustedProxies) == 0:
		r.warning("address", "add the address of the proxy to server.trusted_proxies",
			"The server does not trust your proxy, so all callers share the address of the proxy in limits and logs.")
	default:
		r.ok("address", "%s, as %s", s.Listen, s.URL(s.Listen))
	}
}

func (r *report) checkEgress(e config.Egress) {
	if _, err := egress.Roots(e.CAFile); err != nil {
		r.problem("egress", "set egress.ca_file to a file of PEM certificates", "egress.ca_file: %v", err)
	}
	if e.AllowHTTP {
		r.warning("egress", "use --dev and egress.allow_http only for development", "Deliveries may go to http:// URLs, where everybody on the network can read them.")
	}
	for _, n := range e.AllowedNetworks {
		if n.Bits() == 0 || n.Addr().IsLoopback() || n.Contains(netip.MustParseAddr("169.254.169.254")) {
			r.warning("egress", "list only the addresses of your own receivers in egress.allowed_networks", "Customers can send deliveries to %s.", n)
		}
		for _, denied := range e.DeniedNetworks {
			if denied.Overlaps(n) {
				r.warning("egress", "remove one of the two networks", "egress.denied_networks (%s) blocks addresses that egress.allowed_networks (%s) allows.", denied, n)
			}
		}
	}
	if err := egress.CheckOwnAddresses(); err != nil {
		r.warning("egress", "let the process read its network interfaces (AF_NETLINK), or list its public addresses in egress.denied_networks",
			"Deliveries to the public addresses of this machine are not blocked: %v", err)
	}
}

// checkAlerts checks alerts.urls. It sends nothing.
func (r *report) checkAlerts(c config.Alerts) {
	channels, err := alert.Channels(c.URLs)
	var names []string
	for _, channel := range channels {
		names = append(names, channel.String())
	}
	switch {
	case err != nil:
		r.failure("alerts", err)
	case len(names) > 0:
		r.ok("alerts", "Keyhook tells %s: %s. Test them with: keyhook alert test", output.Count(len(names), "channel", "channels"), strings.Join(names, ", "))
	case r.serverHasAlerts:
		r.ok("alerts", "The server has alerts.urls, which it tells nobody. Test them with: keyhook alert test, with the settings of the server")
	default:
		r.ok("alerts", "Doctor found no alerts.urls. Without them, Keyhook tells nobody when a subscription is disabled or the disk is nearly full.")
	}
}
