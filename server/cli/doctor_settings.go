package cli

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

// settings tells whether the settings hold; nothing else can be looked at where they do not.
func (d *examination) settings(flags *pflag.FlagSet, err error) bool {
	var problems config.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			text := p.Where() + ": " + p.What
			if hint := suspect(p.Setting); hint != "" {
				text += "; " + hint
			}
			d.wrong("settings", p.Mend, "%s", text)
		}
		return false
	}
	if err != nil {
		d.refused("settings", err)
		return false
	}
	list, err := config.Explain(flags)
	if err != nil {
		d.refused("settings", err)
		return false
	}
	var set []string
	for _, s := range list {
		if s.Source != "default" {
			set = append(set, s.Name)
		}
	}
	if len(set) == 0 {
		d.well("settings", "all are at their defaults")
	} else {
		d.well("settings", "they hold; set are %s", strings.Join(set, ", "))
	}
	return true
}

// secretSettings are those whose text nobody sees, so that nobody sees either what became of it on the way.
var secretSettings = []string{"encryption.key", "bootstrap.token"}

// suspect tells what seems to have happened to a secret on its way through shells, editors and manifests.
func suspect(setting string) string {
	for _, name := range secretSettings {
		if setting != name {
			continue
		}
		env := "KEYHOOK_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
		if text := os.Getenv(env); text != "" {
			return mangled(text)
		}
		if file := os.Getenv(env + "_FILE"); file != "" {
			if text, err := os.ReadFile(file); err == nil {
				return mangled(strings.TrimSuffix(string(text), "\n"))
			}
		}
	}
	return ""
}

// mangled tells what is odd about the text of a secret, without showing any of it; empty where nothing is.
func mangled(text string) string {
	trimmed := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "\ufeff"):
		return "it begins with a byte order mark, as some editors write"
	case strings.ContainsAny(trimmed, "\r\n"):
		return "it has more than one line"
	case trimmed != text:
		return "there is white space around it"
	case strings.HasSuffix(text, `\n`):
		return `it ends in the characters \n, which are no line break here`
	case len(text) > 1 && strings.ContainsRune(`"'`, rune(text[0])) && text[len(text)-1] == text[0]:
		return "there are quotes around it, which are part of it here"
	case strings.HasPrefix(text, "${") || strings.HasPrefix(text, "$("):
		return "it looks like a variable that nobody has filled in"
	}
	inner, err := base64.StdEncoding.DecodeString(text)
	if err == nil && len(inner) >= 16 && !strings.ContainsFunc(strings.TrimSuffix(string(inner), "\n"), func(r rune) bool { return r > '~' || !unicode.IsPrint(r) }) {
		return "it looks like base64 of another text: Kubernetes wants that under data, and plain text under stringData"
	}
	if distinct(text) < 8 {
		return "it has fewer than 8 different characters, and is easily guessed"
	}
	return ""
}

func distinct(text string) int {
	seen := map[rune]bool{}
	for _, r := range text {
		seen[r] = true
	}
	return len(seen)
}

// secrets looks at what the secrets came to.
func (d *examination) secrets(c config.Config) {
	odd := false
	for name, secret := range map[string]redact.Text{"encryption.key": c.Encryption.Key, "bootstrap.token": c.Bootstrap.Token} {
		if secret.IsZero() {
			continue
		}
		if what := mangled(secret.Reveal()); what != "" {
			odd = true
			d.warn("secrets", "look at where it is set; a key that the database was made with must stay as it is", "%s: %s", name, what)
		}
	}
	if !odd {
		d.well("secrets", "nothing is odd about those that are set")
	}
}

// certificateSoon is how long before its end a certificate is told of.
const certificateSoon = 14 * 24 * time.Hour

// serving looks at how the server is reached, and where deliveries may go.
func (d *examination) serving(c config.Config) {
	d.certificate(c)
	d.proxies(c)
	if _, err := egress.Roots(c.Egress.CAFile); err != nil {
		d.wrong("egress", "set egress.ca_file to a file of PEM certificates", "egress.ca_file: %v", err)
	}
	if c.Egress.AllowHTTP {
		d.warn("egress", "leave out --dev and egress.allow_http outside of development", "deliveries may go to http:// URLs, readable to all on the way")
	}
	for _, n := range c.Egress.AllowedNetworks {
		if n.Bits() == 0 || n.Addr().IsLoopback() || n.Contains(netip.MustParseAddr("169.254.169.254")) {
			d.warn("egress", "name single addresses of your own receivers in egress.allowed_networks", "customers may have deliveries sent into %s", n)
		}
		for _, denied := range c.Egress.DeniedNetworks {
			if denied.Overlaps(n) {
				d.warn("egress", "remove one of the two", "egress.denied_networks (%s) closes what egress.allowed_networks (%s) opens", denied, n)
			}
		}
	}
	if err := egress.CheckOwnAddresses(); err != nil {
		d.warn("egress", "let the process read its network interfaces (AF_NETLINK), or list its public addresses in egress.denied_networks", "deliveries to this machine's public addresses are not refused: %v", err)
	}
}

func (d *examination) certificate(c config.Config) {
	pair, err := c.Server.Certificate()
	if err != nil {
		d.wrong("tls", "set both to PEM files that this process may read", "%v", err)
		return
	}
	if pair == nil {
		return
	}
	leaf, err := x509.ParseCertificate(pair.Certificates[0].Certificate[0])
	if err != nil {
		d.wrong("tls", "put another certificate into server.tls_cert_file", "%v", err)
		return
	}
	d.expiry("tls", "renew server.tls_cert_file and start the server again", "the server's certificate", leaf)
}

// expiry tells of the end of a certificate.
func (d *examination) expiry(check, mend, what string, leaf *x509.Certificate) {
	left := time.Until(leaf.NotAfter)
	days := int(left.Hours() / 24)
	switch {
	case left < 0:
		d.wrong(check, mend, "%s has ended on %s", what, leaf.NotAfter.UTC().Format(time.DateOnly))
	case left < certificateSoon:
		d.warn(check, mend, "%s ends in %s, on %s", what, output.Count(days, "day", "days"), leaf.NotAfter.UTC().Format(time.DateOnly))
	default:
		d.well(check, "%s holds for %s more, to %s", what, output.Count(days, "day", "days"), leaf.NotAfter.UTC().Format(time.DateOnly))
	}
}

// proxies looks at who is believed, and at what travels in the open.
func (d *examination) proxies(c config.Config) {
	for _, n := range c.Server.TrustedProxies {
		if least := map[bool]int{true: 8, false: 32}[n.Addr().Is4()]; n.Bits() < least {
			d.wrong("proxies", "name the addresses of your own proxies in server.trusted_proxies",
				"%s is trusted to say who calls, so that most of the internet can pass for anyone", n)
		}
	}
	host, _, _ := net.SplitHostPort(c.Server.Listen)
	addr, err := netip.ParseAddr(host)
	isLocal := host == "localhost" || err == nil && addr.IsLoopback()
	hasTLS, isPlain := c.Server.TLSCertFile != "", strings.HasPrefix(c.Server.BaseURL, "http://")
	switch {
	case hasTLS && isPlain:
		d.warn("address", "set server.base_url to its https:// address", "the server speaks TLS, and server.base_url is %s", c.Server.BaseURL)
	case !isLocal && !hasTLS && !strings.HasPrefix(c.Server.BaseURL, "https://"):
		d.warn("address", "put a proxy with TLS before it and set server.base_url to its https:// address, or set server.tls_cert_file",
			"%s is open to other machines, and credentials travel to it in the open", c.Server.Listen)
	case !hasTLS && strings.HasPrefix(c.Server.BaseURL, "https://") && len(c.Server.TrustedProxies) == 0:
		d.warn("address", "name the proxy in server.trusted_proxies",
			"a proxy stands before the server and none is trusted, so that all callers share its address in limits and records")
	default:
		d.well("address", "%s, as %s", c.Server.Listen, c.Server.URL(c.Server.Listen))
	}
}
