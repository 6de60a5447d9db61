package config

import (
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/redact"
)

// setting is one line of the table: all that is known about one name.
type setting struct {
	name     string // dotted, as in the file
	fallback string // the default, as text
	why      string // one line: what it is for
	value    value  // how it is read, checked and shown
	secret   bool   // never shown; may be given by file, see companion
}

// env is the name in the environment.
func (s setting) env() string { return envName(s.name) }

// companion names the setting of the file that holds a secret.
func (s setting) companion() string { return s.name + "_file" }

const day = 24 * time.Hour

// table is every setting, in the order in which it is shown. Secrets have a companion beside what stands here.
var table = []setting{
	{name: "server.listen", fallback: "127.0.0.1:8080",
		why:   "host:port to serve on; another host than loopback opens it to the network, port 0 takes a free one",
		value: address(func(c *Config) *string { return &c.Server.Listen }, false)},
	{name: "server.base_url", fallback: "",
		why:   "the address by which callers reach this server, where a proxy stands before it; empty: made from listen",
		value: text(func(c *Config) *string { return &c.Server.BaseURL }, isBaseURL)},
	{name: "server.trusted_proxies", fallback: "",
		why:   "addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; of anyone else they are ignored",
		value: networks(func(c *Config) *[]netip.Prefix { return &c.Server.TrustedProxies })},
	{name: "server.tls_cert_file", fallback: "",
		why:   "PEM certificate chain, to serve HTTPS without a proxy; goes with tls_key_file",
		value: text(func(c *Config) *string { return &c.Server.TLSCertFile }, isPath)},
	{name: "server.tls_key_file", fallback: "",
		why:   "PEM private key of that certificate",
		value: text(func(c *Config) *string { return &c.Server.TLSKeyFile }, isPath)},
	{name: "server.shutdown_grace", fallback: "20s",
		why:   "what requests and attempts in flight get to end at a stop; a little more than webhooks.timeout loses none",
		value: duration(func(c *Config) *time.Duration { return &c.Server.ShutdownGrace }, 0, 10*time.Minute)},

	{name: "server.token_rate", fallback: "100",
		why:   "requests a second that one organization may make without an API key, in bursts twice as many; platform:act_as has no limit",
		value: number(func(c *Config) *int { return &c.Server.TokenRate }, 1, 1_000_000)},
	{name: "server.connections_per_address", fallback: "128",
		why:   "connections that one client address (IPv6: one /64) may have at once; trusted_proxies may have any number",
		value: number(func(c *Config) *int { return &c.Server.ConnectionsPerAddress }, 1, 1024)},
	{name: "server.body_memory", fallback: "64MiB",
		why:   "memory for the bodies of all requests in progress; one organization may use up to two thirds of it",
		value: size(func(c *Config) *int64 { return &c.Server.BodyMemory }, 64<<20, 64<<30)},
	{name: "storage.path", fallback: "keyhook.db",
		why:   "the one database file; its directory must be writable, for the files that stand beside it",
		value: text(func(c *Config) *string { return &c.Storage.Path }, isDatabase)},
	{name: "storage.synchronous", fallback: SynchronousFull,
		why:   "with full, what was acknowledged survives a power cut; with normal, which is faster, the last moments may be lost",
		value: choice(func(c *Config) *string { return &c.Storage.Synchronous }, SynchronousFull, SynchronousNormal)},
	{name: "storage.retention_events", fallback: "720h",
		why:   "how long events, deliveries and attempts are kept once nothing is pending",
		value: duration(func(c *Config) *time.Duration { return &c.Storage.RetentionEvents }, time.Second, 3650*day)},
	{name: "storage.retention_audit", fallback: "8760h",
		why:   "how long audit events are kept",
		value: duration(func(c *Config) *time.Duration { return &c.Storage.RetentionAudit }, time.Second, 36500*day)},

	{name: "keys.prefix", fallback: access.DefaultKeyPrefix,
		why:   "what new API keys begin with, so that people and secret scanners know them; keys made before stay valid",
		value: text(func(c *Config) *string { return &c.Keys.Prefix }, isKeyPrefix)},

	{name: "webhooks.header_prefix", fallback: "X-Service",
		why:   "what our headers on a delivery begin with: X-Service gives X-Service-Signature; receivers rely on it",
		value: text(func(c *Config) *string { return &c.Webhooks.HeaderPrefix }, isHeaderPrefix)},
	{name: "webhooks.max_attempts", fallback: "5",
		why:   "attempts in total, the first included, before a delivery is given up",
		value: number(func(c *Config) *int { return &c.Webhooks.MaxAttempts }, 1, 100)},
	{name: "webhooks.retry_base", fallback: "15s",
		why:   "delay before the second attempt",
		value: duration(func(c *Config) *time.Duration { return &c.Webhooks.RetryBase }, time.Millisecond, day)},
	{name: "webhooks.retry_factor", fallback: "4",
		why:   "by how much each delay is longer than the one before",
		value: factor(func(c *Config) *float64 { return &c.Webhooks.RetryFactor }, 1, 100)},
	{name: "webhooks.retry_max", fallback: "600s",
		why:   "no delay is longer, whatever a receiver's Retry-After asks",
		value: duration(func(c *Config) *time.Duration { return &c.Webhooks.RetryMax }, time.Millisecond, 7*day)},
	{name: "webhooks.timeout", fallback: "15s",
		why:   "what one attempt may take from the look-up of the name to the end of the response",
		value: duration(func(c *Config) *time.Duration { return &c.Webhooks.Timeout }, 10*time.Millisecond, 5*time.Minute)},
	{name: "webhooks.concurrency", fallback: "256",
		why:   "attempts in flight at once, over all subscriptions",
		value: number(func(c *Config) *int { return &c.Webhooks.Concurrency }, 1, 10000)},
	{name: "webhooks.concurrency_per_subscription", fallback: "16",
		why:   "attempts in flight at once to one subscription, so that a slow receiver holds up nobody else",
		value: number(func(c *Config) *int { return &c.Webhooks.ConcurrencyPerSubscription }, 1, 10000)},
	{name: "webhooks.poll_interval", fallback: "1s",
		why:   "how often the table is asked for what is due, beside what is handed over in memory",
		value: duration(func(c *Config) *time.Duration { return &c.Webhooks.PollInterval }, 10*time.Millisecond, time.Minute)},
	{name: "webhooks.failing_after", fallback: "5",
		why:   "failures in a row after which a subscription is failing and is probed one attempt at a time",
		value: number(func(c *Config) *int { return &c.Webhooks.FailingAfter }, 1, 1000)},
	{name: "webhooks.disabled_after", fallback: "15",
		why:   "failures in a row after which it is disabled until someone sets it active again",
		value: number(func(c *Config) *int { return &c.Webhooks.DisabledAfter }, 2, 10000)},

	{name: "egress.allow_http", fallback: "false",
		why:   "whether subscriptions may have http:// URLs; for development, since payloads then travel in the open",
		value: boolean(func(c *Config) *bool { return &c.Egress.AllowHTTP })},
	{name: "egress.allowed_networks", fallback: "",
		why:   "private or loopback networks that deliveries may go to; each is a hole in the guard, so keep them narrow",
		value: networks(func(c *Config) *[]netip.Prefix { return &c.Egress.AllowedNetworks })},
	{name: "egress.denied_networks", fallback: "",
		why:   "networks that deliveries never go to, even if public or allowed: list the public addresses of your own machines",
		value: networks(func(c *Config) *[]netip.Prefix { return &c.Egress.DeniedNetworks })},
	{name: "egress.ca_file", fallback: "",
		why:   "PEM certificates of authorities to trust beside the system's, for receivers and an issuer of your own",
		value: text(func(c *Config) *string { return &c.Egress.CAFile }, isPath)},

	{name: "encryption.key", fallback: "", secret: true,
		why:   "seals the signing secrets; unset: made at the first start in <database>.key, to be kept as safe as the file",
		value: confidential(func(c *Config) *redact.Text { return &c.Encryption.Key }, isEncryptionKey)},

	{name: "bootstrap.token", fallback: "", secret: true,
		why:   "access token of the first operator, valid from the first start on; unset: each start prints a new one, until one is used",
		value: confidential(func(c *Config) *redact.Text { return &c.Bootstrap.Token }, isToken)},

	{name: "oidc.issuer", fallback: "",
		why:   "issuer whose tokens are accepted as Bearer; its keys are found by OpenID Connect discovery",
		value: text(func(c *Config) *string { return &c.OIDC.Issuer }, isIssuer)},
	{name: "oidc.audience", fallback: "",
		why:   "the audience that such a token must name, so that one made for another service does not open this one",
		value: text(func(c *Config) *string { return &c.OIDC.Audience }, isLine)},
	{name: "oidc.organization_claim", fallback: "",
		why:   "claim that names the organization, by its id or external_id; empty: the user's only membership, or X-Organization-Id",
		value: text(func(c *Config) *string { return &c.OIDC.OrganizationClaim }, isLine)},

	{name: "metrics.listen", fallback: "",
		why:   "host:port for /metrics alone, without credentials; empty: on the main listener for platform:read or loopback",
		value: address(func(c *Config) *string { return &c.Metrics.Listen }, true)},

	{name: "log.level", fallback: "info",
		why:   "the least severe lines that are written: debug, info, warn or error",
		value: level(func(c *Config) *slog.Level { return &c.Log.Level })},
	{name: "log.format", fallback: LogJSON,
		why:   "json for machines, text for eyes",
		value: choice(func(c *Config) *string { return &c.Log.Format }, LogJSON, LogText)},
}

// rule is a condition over more than one setting; its problem is reported at the first of names. It is skipped where one
// of them is wrong by itself.
type rule struct {
	names  []string
	broken func(Config) string // what is wrong and the mend, or empty
}

var rules = []rule{
	{[]string{"server.tls_cert_file", "server.tls_key_file"}, func(c Config) string {
		if (c.Server.TLSCertFile == "") != (c.Server.TLSKeyFile == "") {
			return "goes with server.tls_key_file: set both, or neither"
		}
		return ""
	}},
	{[]string{"bootstrap.token", "keys.prefix"}, func(c Config) string {
		if token := c.Bootstrap.Token.Reveal(); looksMinted(token, c.Keys.Prefix) {
			return "has the form of a key or token that Keyhook makes, and would be taken for a mistyped one: choose another form"
		}
		return ""
	}},
	{[]string{"webhooks.disabled_after", "webhooks.failing_after"}, func(c Config) string {
		if c.Webhooks.DisabledAfter <= c.Webhooks.FailingAfter {
			return "must be more than webhooks.failing_after, since a subscription is failing before it is disabled"
		}
		return ""
	}},
	{[]string{"oidc.issuer", "oidc.audience", "oidc.organization_claim"}, func(c Config) string {
		if c.OIDC.Issuer != "" && c.OIDC.Audience == "" {
			return "needs oidc.audience, or tokens made for any other service would be accepted"
		}
		if c.OIDC.Issuer == "" && c.OIDC.Audience+c.OIDC.OrganizationClaim != "" {
			return "is missing, while oidc.audience or oidc.organization_claim is set: set the issuer, or none of them"
		}
		return ""
	}},
	{[]string{"metrics.listen", "server.listen"}, func(c Config) string {
		if c.Metrics.Listen == c.Server.Listen && !strings.HasSuffix(c.Metrics.Listen, ":0") {
			return "is the same as server.listen: take another port, or leave it empty to serve /metrics there"
		}
		return ""
	}},
}

// looksMinted reports whether a token of the operator's choice looks like a credential that Keyhook makes. The server would
// check its checksum then.
func looksMinted(token, keyPrefix string) bool {
	_, ok := access.LooksMinted(token)
	return ok || strings.HasPrefix(token, keyPrefix+"_")
}
