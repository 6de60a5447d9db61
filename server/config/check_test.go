package config_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/config"
)

// refusedValues are settings with a wrong value, and what the one problem must say.
var refusedValues = []struct{ name, value, want string }{
	{"server.listen", "8080", "host:port"},
	{"server.listen", "", "host:port"},
	{"server.listen", "127.0.0.1:http", "host:port"},
	{"server.listen", "127.0.0.1:65536", "host:port"},
	{"server.listen", "127.0.0.1:080", "host:port"},
	{"server.listen", "127.0.0.1:-1", "host:port"},
	{"server.listen", "a b:80", "host:port"},
	{"server.listen", "::1:80", "host:port"},
	{"server.base_url", "keys.example.com", "https://"},
	{"server.base_url", "ftp://a.example", "https://"},
	{"server.base_url", "https://", "https://"},
	{"server.base_url", "https://a.example/", `write "https://a.example"`},
	{"server.base_url", "https://a.example/<keys>", `write "https://a.example/%3Ckeys%3E"`},
	{"server.base_url", "https://a.example?x=1", "query"},
	{"server.base_url", "https://a.example#x", "query"},
	{"server.base_url", "https://user:pass@a.example", "user name or a password"},
	{"server.base_url", "https://a.example:99999", "no valid port"},
	{"server.base_url", "https://a.example:", "no valid port"},
	{"server.trusted_proxies", "10.0.0.0/33", "not an address or a network"},
	{"server.trusted_proxies", "10.0.0.1,,10.0.0.2", "empty item"},
	{"server.trusted_proxies", "10.1.2.3/8", `write "10.0.0.0/8" or "10.1.2.3"`},
	{"server.trusted_proxies", "::ffff:10.0.0.0/104", "write \"10.0.0.0/8\""},
	{"server.trusted_proxies", "fe80::1%eth0", "not an address or a network"},
	{"server.trusted_proxies", "proxy.example.com", "not an address or a network"},
	{"egress.allowed_networks", strings.Repeat("10.0.0.1,", 1000) + "10.0.0.1", "more than 1000"},
	{"server.shutdown_grace", "0s", "from 1s to 10m"},
	{"server.shutdown_grace", "999ms", "from 1s to 10m"},
	{"server.shutdown_grace", "-1s", "from 1s to 10m"},
	{"server.shutdown_grace", "11m", "from 1s to 10m"},
	{"server.token_rate", "0", "from 1 to 1000000"},
	{"server.connections_per_address", "0", "from 1 to 1024"},
	{"server.connections_per_address", "1025", "from 1 to 1024"},
	{"server.body_memory", "63MiB", "write a value from 64MiB to 64GiB"},
	{"server.body_memory", "65GiB", "write a value from 64MiB to 64GiB"},
	{"server.body_memory", "9223372036854775807GiB", "is not a size"},
	{"server.body_memory", "64MB", `write a value such as "64MiB"`},
	{"server.body_memory", "064MiB", "is not a size"},
	{"server.body_memory", "-64MiB", "is not a size"},
	{"server.body_memory", "", "is not a size"},
	{"storage.path", "", "write a path"},
	{"storage.path", ":memory:", "is not the path of a file"},
	{"storage.path", "file:x.db?mode=ro", "is not the path of a file"},
	{"storage.path", "/data/", "is not the path of a file"},
	{"storage.path", "a\nb", "not one line"},
	{"storage.path", strings.Repeat("x", 5000), "not one line"},
	{"storage.path", "\xff", "not one line"},
	{"storage.path", "a.db ", "not one line"},
	{"storage.synchronous", "FULL", "write full or normal"},
	{"storage.retention_events", "30 days", "is not a duration"},
	{"storage.retention_events", "0s", "out of range"},
	{"keys.prefix", "", "cannot be the prefix"},
	{"keys.prefix", "1a", "cannot be the prefix"},
	{"keys.prefix", "Svc", "cannot be the prefix"},
	{"keys.prefix", "svc_", "cannot be the prefix"},
	{"keys.prefix", "abcdefghijklmnopq", "cannot be the prefix"},
	{"keys.prefix", "kat", "cannot be the prefix"},
	{"keys.prefix", "ksl", "cannot be the prefix"},
	{"keys.prefix", "whsec", "cannot be the prefix"},
	{"webhooks.header_prefix", "X Service", "header name"},
	{"webhooks.header_prefix", "X-Service-", "header name"},
	{"webhooks.header_prefix", "X-Sérvice", "header name"},
	{"webhooks.header_prefix", "X:", "header name"},
	{"webhooks.header_prefix", "", "header name"},
	{"webhooks.header_prefix", "WebHook", "header name"},
	{"webhooks.max_attempts", "0", "from 1 to 100"},
	{"webhooks.max_attempts", "1e3", "not a whole number"},
	{"webhooks.max_attempts", "010", "not a whole number"},
	{"webhooks.max_attempts", "0x10", "not a whole number"},
	{"webhooks.max_attempts", "1_0", "not a whole number"},
	{"webhooks.max_attempts", "99999999999999999999", "not a whole number"},
	{"webhooks.max_attempts", "", "not a whole number"},
	{"webhooks.retry_factor", "0.5", "from 1 to 100"},
	{"webhooks.retry_factor", "nan", "not a number"},
	{"webhooks.retry_factor", "inf", "not a number"},
	{"webhooks.timeout", "5", `write "5s"`},
	{"webhooks.timeout", "0", `write "0s"`},
	{"webhooks.timeout", "2.5", `write "2.5s"`},
	{"webhooks.timeout", "", "is not a duration"},
	{"webhooks.timeout", "5 s", "is not a duration"},
	{"webhooks.timeout", "1h", "out of range"},
	{"webhooks.concurrency", "0", "out of range"},
	{"webhooks.poll_interval", "1ns", "out of range"},
	{"egress.allow_http", "yes", "write true or false"},
	{"egress.allow_http", "1", "write true or false"},
	{"egress.allow_http", "TRUE", "write true or false"},
	{"bootstrap.token", strings.Repeat("s", 19), "20 to 200"},
	{"bootstrap.token", strings.Repeat("s", 201), "20 to 200"},
	{"bootstrap.token", strings.Repeat("s", 20) + " s", "visible ASCII"},
	{"bootstrap.token", strings.Repeat("s", 20) + "é", "visible ASCII"},
	{"bootstrap.token", "", "is empty"},
	{"bootstrap.token", "svc_" + strings.Repeat("a", 20), "of another form"},
	{"bootstrap.token", "kat_" + strings.Repeat("a", 36), "of another form"},
	{"encryption.key", "short", "openssl rand -base64 32"},
	{"encryption.key", strings.Repeat("x", 42) + "==", "32 random bytes"},
	{"encryption.key", strings.Repeat("x", 64), "32 random bytes"},
	{"encryption.key", strings.Repeat("+", 42) + "-", "32 random bytes"},
	{"encryption.key", "", "is empty"},
	{"oidc.issuer", "http://login.example.com", "plain HTTP"},
	{"oidc.issuer", "login", "https://"},
	{"console.name", "", "1 to 40 characters"},
	{"console.name", strings.Repeat("é", 41), "1 to 40 characters"},
	{"console.name", "a\tb", "not one line"},
	{"console.accent", "blue", "six hex digits"},
	{"console.accent", "#fff", "six hex digits"},
	{"console.accent", "#3b5bdg", "six hex digits"},
	{"console.portal_pages", "keys,plans", `"plans" is no page of the portal; write one of: subscriptions, events, keys, audit`},
	{"console.portal_pages", " ", "name at least one page, or remove the setting for all"},
	{"console.frame_ancestors", "https://a.example,,https://b.example", "empty item"},
	{"console.frame_ancestors", "https://a.example/", `write "https://a.example"`},
	{"console.frame_ancestors", "https://a.example; script-src *", "is not an http or https URL"},
	{"console.frame_ancestors", "https://a;b.example", "no valid host"},
	{"console.frame_ancestors", "https://*", "no valid host"},
	{"console.frame_ancestors", strings.Repeat("https://a.example,", 20) + "https://a.example", "more than 20"},
	{"oidc.issuer", "https://login.example.com", "oidc.audience need"},
	{"oidc.audience", "keyhook", "oidc.issuer"},
	{"console.oidc_client_id", "a", "needs oidc.issuer"},
	{"console.oidc_client_secret", "a", "needs console.oidc_client_id"},
	{"metrics.listen", "9090", "host:port"},
	{"metrics.listen", "127.0.0.1:8080", "same as server.listen"},
	{"alerts.urls", "", "is empty"},
	{"alerts.urls", "ntfy.sh/topic", "URL 1: the text is not a URL"},
	{"alerts.urls", "ntfy://a.example/x logger://", "discord://, generic://, gotify://, ntfy://, slack://, smtp://, teams://, telegram://"},
	{"alerts.urls", strings.Repeat("ntfy://a.example/x,", 20) + "ntfy://a.example/x", "more than 20"},
	{"alerts.interval", "500ms", "from 1s to 24h"},
	{"alerts.failing_after", "30s", "from 1m to 168h"},
	{"log.level", "trace", "debug or info or warn or error"},
	{"log.level", "INFO+1", "debug or info or warn or error"},
	{"log.format", "", "write json or text"},
	{"server.tls_cert_file", "a.crt", "set both, or neither"},
	{"server.tls_key_file", "a.key", "set both, or neither"},
	{"webhooks.failing_after", "15", "more than webhooks.failing_after"},
	{"webhooks.probe_disabled", "30s", "from 1m"},
	{"webhooks.disabled_after", "5", "more than webhooks.failing_after"},
	{"webhooks.retry_max", "14s", "at least webhooks.retry_base"},
}

// TestValuesAtTheirLimits are the last ones that are not refused.
func TestValuesAtTheirLimits(t *testing.T) {
	t.Parallel()
	times := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for _, value := range []string{
		"alerts.urls=" + times(20, "ntfy://a.example/x"), "console.frame_ancestors=" + times(20, "https://a.example"), "keys.expiry_notice=" + times(9, "48h") + ",1h",
		"console.portal_pages=subscriptions,events,keys,audit", "console.name=" + strings.Repeat("é", 40), "alerts.interval=1s", "alerts.interval=24h",
		"alerts.failing_after=0", "alerts.failing_after=0s", "alerts.failing_after=1m", "alerts.failing_after=168h", "webhooks.probe_disabled=0s", "webhooks.probe_disabled=1m",
		"server.body_memory=64MiB", "server.token_rate=1", "server.connections_per_address=1024", "webhooks.disabled_after=6", "webhooks.retry_max=15s",
	} {
		if _, err := config.Load(parse(t, "--"+value)); err != nil {
			t.Errorf("%.60s: %v", value, err)
		}
	}
}

func TestValuesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range refusedValues {
		value := tt.value
		if len(value) > 30 {
			value = value[:30] + "…"
		}
		t.Run(tt.name+" as "+value, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(parse(t, "--"+tt.name+"="+tt.value))
			p := problemsOf(t, err)
			if len(p) != 1 || !strings.Contains(p[0].String(), tt.want) {
				t.Errorf("got %v, want one problem with %q", err, tt.want)
			}
			if len(p[0].String()) > 300 {
				t.Errorf("the message has %d bytes", len(p[0].String()))
			}
		})
	}
}
