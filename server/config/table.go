package config

import (
	"log/slog"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

const day = 24 * time.Hour

// table has every setting in the order in which they are shown, except the companions of secrets.
var table = []Setting{
	newSetting("server.listen", "127.0.0.1:8080", text("host:port", checkAddress),
		"host:port to listen on; 0.0.0.0 lets other machines connect, and port 0 means any free port"),
	newSetting("server.base_url", "", text("URL", optional(checkBaseURL)),
		"public URL of this server if it is behind a proxy; empty: made from server.listen"),
	newSetting("server.trusted_proxies", "", networks,
		"addresses and networks of your proxies; X-Forwarded-For and X-Forwarded-Proto of other clients are ignored"),
	newSetting("server.tls_cert_file", "", text("path", checkLine),
		"PEM certificate chain for HTTPS without a proxy; needs server.tls_key_file"),
	newSetting("server.tls_key_file", "", text("path", checkLine),
		"PEM private key of that certificate"),
	newSetting("server.shutdown_grace", "20s", duration(time.Second, 10*time.Minute),
		"time for current requests and attempts to end when the server stops; make it longer than webhooks.timeout"),
	newSetting("server.token_rate", show(check.DefaultTokenRate), number(1, 1_000_000),
		"requests per second of one organization without an API key, and twice as many in a burst; platform:act_as has no limit"),
	newSetting("server.connections_per_address", show(share.DefaultConnectionsPerAddress), number(1, share.MaxConnections),
		"open connections of one client address (IPv6: one /64, and four times as many for a /56); server.trusted_proxies have no limit"),
	newSetting("server.body_memory", show(int64(exchange.SmallestMemory)),
		limited("size", `"64MiB" or "1GiB"`, readSize, exchange.SmallestMemory, 64<<30),
		"memory for the bodies of all current requests; one organization may use two thirds of it"),

	newSetting("storage.path", "keyhook.db", text("path", checkDatabasePath),
		"database file; Keyhook also writes other files in the same directory"),
	newSetting("storage.synchronous", SynchronousFull, choice(SynchronousFull, SynchronousNormal),
		"full survives a power cut; normal is faster, but a power cut may lose the last writes"),
	newSetting("storage.retention_events", "720h", duration(time.Second, 3650*day),
		"how long to keep events, deliveries and attempts; what is pending stays, unless its subscription is paused or disabled"),
	newSetting("storage.retention_audit", "8760h", duration(time.Second, 36500*day),
		"how long to keep audit events"),

	newSetting("keys.prefix", access.DefaultKeyPrefix, text("text", checkKeyPrefix),
		"prefix of new API keys, for people and secret scanners; existing keys stay valid"),
	newSetting("keys.expiry_notice", "720h, 168h, 24h", notices,
		"how long before the end of an API key or an access token an audit event announces it, once for each; empty: never"),

	newSetting("webhooks.header_prefix", signature.DefaultHeaderPrefix, text("text", checkHeaderPrefix),
		"prefix of the headers of a delivery, such as X-Service-Signature; receivers depend on it"),
	newSetting("webhooks.max_attempts", show(webhook.DefaultPolicy().MaxAttempts), number(1, 100),
		"maximum number of attempts for one delivery, including the first"),
	newSetting("webhooks.retry_base", show(dispatch.DefaultRetryBase), duration(time.Millisecond, day),
		"delay before the second attempt"),
	newSetting("webhooks.retry_factor", show(dispatch.DefaultRetryFactor), limited("number", "2.5", readDecimal, 1, 100),
		"each delay is this many times longer than the delay before it"),
	newSetting("webhooks.retry_max", "600s", duration(time.Millisecond, 7*day),
		"maximum delay, even if Retry-After of a receiver asks for more"),
	newSetting("webhooks.timeout", show(dispatch.DefaultTimeout), duration(10*time.Millisecond, 5*time.Minute),
		"time limit of one attempt, from the DNS lookup to the end of the response"),
	newSetting("webhooks.concurrency", show(dispatch.DefaultConcurrency), number(1, 10000),
		"maximum number of attempts in progress, over all subscriptions"),
	newSetting("webhooks.concurrency_per_subscription", show(dispatch.DefaultPerSubscription), number(1, 10000),
		"maximum number of attempts in progress for one subscription, so a slow receiver does not delay the others"),
	newSetting("webhooks.poll_interval", show(dispatch.DefaultPollInterval), duration(10*time.Millisecond, time.Minute),
		"how often to read due deliveries from the database; most deliveries do not wait for this"),
	newSetting("webhooks.failing_after", show(webhook.DefaultPolicy().FailingAfter), number(1, 1000),
		"consecutive failed attempts after which a subscription is failing and gets one attempt at a time"),
	newSetting("webhooks.disabled_after", show(webhook.DefaultPolicy().DisabledAfter), number(2, 10000),
		"consecutive failed attempts after which a subscription is disabled, until somebody recovers or reactivates it"),
	newSetting("webhooks.probe_disabled", show(webhook.DefaultPolicy().ProbeDisabled), durationOrNone(time.Minute, 7*day),
		"how often to try one delivery of a subscription that failures have disabled, such as 1h; a success recovers it; 0: never"),

	newSetting("egress.allow_http", "false", choice(true, false),
		"allow http:// URLs for subscriptions; only for development, because http:// is not encrypted"),
	newSetting("egress.allowed_networks", "", networks,
		"private or loopback networks that deliveries may go to; keep them small, because customers choose the URLs"),
	newSetting("egress.denied_networks", "", networks,
		"networks that deliveries never go to, even if allowed; list the public addresses of your own machines"),
	newSetting("egress.ca_file", "", text("path", checkLine),
		"PEM file with more certificate authorities to trust, for your own receivers and issuer"),

	newSetting("encryption.key", "", secret(checkEncryptionKey),
		"key that encrypts the signing secrets; empty: the first start makes one in <database>.key, and you must back up that file"),

	newSetting("bootstrap.token", "", secret(checkToken),
		"access token of the first operator; empty: each start prints a new token until the first authenticated request"),

	newSetting("oidc.issuer", "", text("URL", optional(checkIssuer)),
		"issuer of Bearer tokens that the server accepts; its keys come from OpenID Connect discovery"),
	newSetting("oidc.audience", "", text("text", checkLine),
		"audience that a token of the issuer must have, so that tokens for other services are refused"),
	newSetting("oidc.organization_claim", "", text("text", checkLine),
		"claim with the id or external_id of the organization; empty: the only organization of the user, or X-Organization-Id"),

	newSetting("console.enabled", "true", choice(true, false),
		"serve the web console and the customer portal under /console/"),
	newSetting("console.name", console.DefaultName, text("text", checkName),
		"name that the console shows, such as the name of your product"),
	newSetting("console.accent", "", text("colour", optional(checkColor)),
		"colour of buttons and links in the console, in quotes; Keyhook makes readable variants for light and dark; empty: blue"),
	newSetting("console.logo_file", "", text("path", checkLine),
		"SVG or PNG file of at most 64 KiB that the console shows beside its name; empty: the mark of Keyhook"),
	newSetting("console.portal_pages", strings.Join(console.PortalPages(), ", "), portalPages,
		"pages that a portal link shows to a customer"),
	newSetting("console.frame_ancestors", "", origins,
		"origins of your pages that may show the console in a frame; they must be of the same site, or the browser sends no cookie"),
	newSetting("console.oidc_client_id", "", text("text", checkLine),
		"client id of the console at oidc.issuer, so that people sign in there; its redirect URI is <server.base_url>/console/oidc/callback/"),
	newSetting("console.oidc_client_secret", "", secret(checkLine),
		"client secret of the console at oidc.issuer; empty: a public client, which has only PKCE"),

	newSetting("metrics.listen", "", text("host:port", optional(checkAddress)),
		"host:port for /metrics without credentials; empty: server.listen, for loopback clients and platform:read"),

	newSetting("alerts.urls", "", serviceURLs,
		"services that tell you what needs a person, such as a disabled subscription; empty: nobody is told"),
	newSetting("alerts.interval", "15m", duration(time.Second, day),
		"time between two messages of a kind; what happens in between is one message"),
	newSetting("alerts.failing_after", "15m", durationOrNone(time.Minute, 7*day),
		"tell of a subscription that has failed for longer than this; 0: only of disabled ones"),

	newSetting("log.level", "info", choice(slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError),
		"lowest level to log: debug, info, warn or error"),
	newSetting("log.format", LogJSON, choice(LogJSON, LogText),
		"json for machines, text for people"),
}

// rule is a condition on settings. Its problem is reported for the first of names. It is not checked if one of them is wrong itself.
type rule struct {
	names      []string
	isBroken   func(Config) bool
	what, mend string
}

var rules = []rule{
	{[]string{"server.tls_cert_file", "server.tls_key_file"}, func(c Config) bool {
		return (c.Server.TLSCertFile == "") != (c.Server.TLSKeyFile == "")
	}, "one of server.tls_cert_file and server.tls_key_file is missing", "set both, or neither"},
	{[]string{"bootstrap.token", "keys.prefix"}, func(c Config) bool {
		token := c.Bootstrap.Token.Reveal()
		_, minted := access.LooksMinted(token)
		return minted || strings.HasPrefix(token, c.Keys.Prefix+"_")
	}, "the token looks like a key or token that Keyhook makes, so its checksum would be wrong",
		"set a token of another form, such as from: openssl rand -hex 24"},
	{[]string{"webhooks.retry_max", "webhooks.retry_base"}, func(c Config) bool { return c.Webhooks.RetryMax < c.Webhooks.RetryBase },
		"the value must be at least webhooks.retry_base, which is the first delay", "set a larger value, or a smaller webhooks.retry_base"},
	{[]string{"webhooks.disabled_after", "webhooks.failing_after"}, func(c Config) bool {
		return c.Webhooks.DisabledAfter <= c.Webhooks.FailingAfter
	}, "the value must be more than webhooks.failing_after, because a subscription is failing before it is disabled",
		"set a larger value, or a smaller webhooks.failing_after"},
	{[]string{"oidc.issuer", "oidc.audience", "oidc.organization_claim"}, func(c Config) bool {
		return (c.OIDC.Issuer == "") != (c.OIDC.Audience == "") || c.OIDC.Issuer == "" && c.OIDC.OrganizationClaim != ""
	}, "oidc.issuer and oidc.audience need each other, and oidc.organization_claim needs them", "set both, or none of the three"},
	{[]string{"console.oidc_client_id", "console.oidc_client_secret", "oidc.issuer"}, func(c Config) bool {
		return c.Console.OIDCClientID != "" && c.OIDC.Issuer == "" || c.Console.OIDCClientID == "" && !c.Console.OIDCClientSecret.IsZero()
	}, "console.oidc_client_id needs oidc.issuer, and console.oidc_client_secret needs console.oidc_client_id", "set what is missing, or remove both"},
	{[]string{"console.portal_pages"}, func(c Config) bool { return len(c.Console.PortalPages) == 0 }, "the portal has no page",
		"name at least one page, or remove the setting for all"},
	{[]string{"metrics.listen", "server.listen"}, func(c Config) bool {
		return c.Metrics.Listen == c.Server.Listen && !strings.HasSuffix(c.Metrics.Listen, ":0")
	}, "the address is the same as server.listen", "set another port, or remove metrics.listen to serve /metrics on server.listen"},
}
