package config_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

// asValues tells cmp how to compare what it cannot look into. The files are where the values came from.
var asValues = cmp.Options{
	cmpopts.IgnoreFields(config.Config{}, "Files"),
	cmpopts.EquateComparable(netip.Prefix{}),
	cmp.Comparer(func(a, b redact.Text) bool { return a.Reveal() == b.Reveal() }),
}

// parse returns the flags of a command line.
func parse(tb testing.TB, args ...string) *pflag.FlagSet {
	tb.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		tb.Fatal(err)
	}
	return flags
}

// write makes a file of the given text and mode, whatever the umask.
func write(tb testing.TB, name, text string, mode os.FileMode) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		tb.Fatal(err)
	}
	return path
}

// loadFile loads a configuration file of the given text, with more flags.
func loadFile(tb testing.TB, text string, args ...string) (config.Config, error) {
	tb.Helper()
	path := write(tb, "keyhook.yaml", text, 0o600)
	return config.Load(parse(tb, append([]string{"--config", path}, args...)...))
}

// problemsOf asserts that an error is Problems, at least one, and returns them.
func problemsOf(tb testing.TB, err error) config.Problems {
	tb.Helper()
	var problems config.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		tb.Fatalf("got %v (%T), want Problems", err, err)
	}
	return problems
}

// values has three valid values for every setting: for the file (in YAML), the environment and the flag. None is the default.
var values = map[string][3]string{
	"server.listen":                         {"127.0.0.1:1", "[::1]:2", "localhost:3"},
	"server.base_url":                       {"https://a.example", "http://schlüssel.example:81/keys", "https://c.example"},
	"server.trusted_proxies":                {"[10.0.0.0/8, '::1']", " 192.168.0.0/16 , 172.16.0.1", "fd00::/8"},
	"server.tls_cert_file":                  {"a.crt", "b.crt", "c.crt"},
	"server.tls_key_file":                   {"a.key", "b.key", "c.key"},
	"server.shutdown_grace":                 {"1s", "2s", "3s"},
	"server.token_rate":                     {"1", "2", "3"},
	"server.connections_per_address":        {"1", "2", "3"},
	"server.body_memory":                    {"67108865", "65 MiB", "1GiB"},
	"storage.path":                          {"a.db", "/b/b.db", "./c.db"},
	"storage.synchronous":                   {"normal", "normal", "normal"},
	"storage.retention_events":              {"1h", "2h30m", "90s"},
	"storage.retention_audit":               {"1h", "2h", "3h"},
	"keys.expiry_notice":                    {"[1h, 2h]", "3h, 4h", "5h"},
	"keys.prefix":                           {"a", "b1", "cabcdefghijklmno"},
	"webhooks.header_prefix":                {"X-A", "X-B", "Acme-C"},
	"webhooks.max_attempts":                 {"1", "2", "'3'"},
	"webhooks.retry_base":                   {"1s", "2s", "3s"},
	"webhooks.retry_factor":                 {"1", "2.5", "3"},
	"webhooks.retry_max":                    {"1h", "2h", "3h"},
	"webhooks.timeout":                      {"1s", "2s", "3s"},
	"webhooks.concurrency":                  {"1", "2", "3"},
	"webhooks.concurrency_per_subscription": {"1", "2", "3"},
	"webhooks.poll_interval":                {"100ms", "2s", "3s"},
	"webhooks.failing_after":                {"1", "2", "3"},
	"webhooks.disabled_after":               {"6", "7", "8"},
	"webhooks.probe_disabled":               {"1h", "2h", "3h"},
	"egress.allow_http":                     {"true", "true", "true"},
	"egress.allowed_networks":               {"[10.0.0.1]", "10.0.0.2,10.0.0.3", "10.0.0.4"},
	"egress.denied_networks":                {"[192.0.2.1]", "192.0.2.0/24,2001:db8::/32", "198.51.100.0/24"},
	"egress.ca_file":                        {"a.pem", "b.pem", "c.pem"},
	"encryption.key":                        {strings.Repeat("a", 43), strings.Repeat("b", 43) + "=", strings.Repeat("c", 64)},
	"bootstrap.token":                       {strings.Repeat("1", 20), strings.Repeat("2", 20), strings.Repeat("3", 20)},
	"oidc.issuer":                           {"https://a.example", "https://b.example", "http://localhost:9"},
	"oidc.audience":                         {"a", "12345", "c"},
	"oidc.organization_claim":               {"a", "b", "c"},
	"console.enabled":                       {"false", "false", "false"},
	"console.name":                          {"Acme", "Bolt & Co", "Größe"},
	"console.accent":                        {"'#000000'", "#FFFFFF", "#3b5bdb"},
	"console.logo_file":                     {"a.svg", "b.svg", "c.png"},
	"console.portal_pages":                  {"[keys]", "keys, audit", "events"},
	"console.frame_ancestors":               {"[https://a.example]", "https://b.example:81, http://[::1]:82", "https://c.example"},
	"console.oidc_client_id":                {"a", "b", "c"},
	"console.oidc_client_secret":            {"a", "b", "c"},
	"metrics.listen":                        {"127.0.0.1:9091", ":9092", "127.0.0.1:0"},
	"alerts.urls":                           {"[ntfy://a.example/x, 'smtp://b.example/?from=a@b.example&to=c@d.example,e@f.example']", "ntfy://a.example/y,ntfy://b.example/y", "ntfy://c.example/z"},
	"alerts.interval":                       {"1m", "2m", "3m"},
	"alerts.failing_after":                  {"1m", "2m", "0"},
	"log.level":                             {"debug", "warn", "error"},
	"log.format":                            {"text", "text", "text"},
}

// needs are the flags that a setting needs beside itself.
var needs = map[string][]string{
	"server.tls_cert_file":       {"--server.tls_key_file=k"},
	"server.tls_key_file":        {"--server.tls_cert_file=c"},
	"oidc.issuer":                {"--oidc.audience=x"},
	"console.oidc_client_id":     {"--oidc.issuer=https://x.example", "--oidc.audience=x"},
	"console.oidc_client_secret": {"--oidc.issuer=https://x.example", "--oidc.audience=x", "--console.oidc_client_id=x"},
	"oidc.audience":              {"--oidc.issuer=https://x.example"},
	"oidc.organization_claim":    {"--oidc.issuer=https://x.example", "--oidc.audience=x"},
}

// Not parallel: it sets the environment, as do all tests here that call Setenv.
func TestEverySettingIsTakenFromTheNearestSource(t *testing.T) {
	for _, s := range config.Settings() {
		if strings.HasSuffix(s.Name, "key_file") && s.Name != "server.tls_key_file" || s.Name == "bootstrap.token_file" || s.Name == "alerts.urls_file" || s.Name == "console.oidc_client_secret_file" {
			continue // see TestASecretMayComeOutOfAFile
		}
		given, known := values[s.Name]
		if !known {
			t.Errorf("%s has no values in this test", s.Name)
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			section, key, _ := strings.Cut(s.Name, ".")
			path := write(t, "keyhook.yaml", section+":\n  "+key+": "+given[0]+"\n", 0o600)
			args := append([]string{"--config", path}, needs[s.Name]...)

			byDefault, _ := effective(t, s.Name)
			byFile, source := effective(t, s.Name, args...)
			if source != path+":2" {
				t.Errorf("source of the file's value is %q", source)
			}
			t.Setenv(s.Env, given[1])
			byEnv, source := effective(t, s.Name, args...)
			if source != s.Env {
				t.Errorf("source of the environment's value is %q", source)
			}
			byFlag, source := effective(t, s.Name, append(args, "--"+s.Name+"="+strings.Trim(given[2], "'"))...)
			if source != "--"+s.Flag {
				t.Errorf("source of the flag's value is %q", source)
			}
			t.Setenv(s.Env, "")
			if again, _ := effective(t, s.Name, args...); again != byFile {
				t.Errorf("an empty variable gives %q, want the file's %q", again, byFile)
			}

			got := []string{byFile, byEnv, byFlag}
			for i, text := range got {
				if text == byDefault {
					t.Errorf("source %d left the default %q", i, text)
				}
				for j := range i {
					if given[i] != given[j] && text == got[j] {
						t.Errorf("sources %d and %d both gave %q", i, j, text)
					}
				}
			}
		})
	}
}

// effective returns the value of one setting, even of a secret, and its source.
func effective(t *testing.T, name string, args ...string) (value, source string) {
	t.Helper()
	flags := parse(t, args...)
	if name == "oidc.issuer" || name == "oidc.audience" || name == "oidc.organization_claim" || strings.HasPrefix(name, "server.tls_") {
		if len(args) == 0 {
			return "", "default" // alone they are not valid
		}
	}
	list, err := config.Sources(flags)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(flags)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name == name {
			value, source = e.Value, e.Source
		}
	}
	switch name {
	case "console.oidc_client_secret":
		value = c.Console.OIDCClientSecret.Reveal()
	case "encryption.key":
		value = c.Encryption.Key.Reveal()
	case "alerts.urls":
		value = ""
		for _, url := range c.Alerts.URLs {
			value += url.Reveal() + " "
		}
	case "bootstrap.token":
		value = c.Bootstrap.Token.Reveal()
	}
	return value, source
}

func TestLoad(t *testing.T) {
	t.Parallel()

	t.Run("without any source it gives the defaults", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load(nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(config.Default(), c, asValues); diff != "" {
			t.Errorf("not the defaults (-want +got):\n%s", diff)
		}
	})

	for name, text := range map[string]string{
		"an empty file":                          "",
		"a file of comments":                     "# nothing\n",
		"a file of an empty document":            "---\n",
		"a section whose settings are commented": "encryption:\n  # key: x\nlog:\n",
		"a file with a byte order mark":          "\ufefflog:\n  level: info\n",
	} {
		t.Run(name+" gives the defaults", func(t *testing.T) {
			t.Parallel()
			c, err := loadFile(t, text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(config.Default(), c, asValues); diff != "" {
				t.Errorf("not the defaults (-want +got):\n%s", diff)
			}
		})
	}

	t.Run("a flag named as the setting is the same as --listen", func(t *testing.T) {
		t.Parallel()
		for _, arg := range []string{"--listen=:1", "--server.listen=:1"} {
			c, err := config.Load(parse(t, arg))
			if err != nil || c.Server.Listen != ":1" {
				t.Errorf("%s: listen %q, error %v", arg, c.Server.Listen, err)
			}
		}
	})

	t.Run("a number in a text setting keeps its digits", func(t *testing.T) {
		t.Parallel()
		c, err := loadFile(t, "bootstrap:\n  token: 00012345678901234567890123456789\n")
		if err != nil || c.Bootstrap.Token.Reveal() != "00012345678901234567890123456789" {
			t.Errorf("token %q, error %v", c.Bootstrap.Token.Reveal(), err)
		}
	})

	t.Run("all problems are reported at once, each with its place", func(t *testing.T) {
		t.Parallel()
		_, err := loadFile(t, "webhooks:\n  timeout: 5\n  tiemout: 5s\nlog:\n  level: loud\n", "--keys.prefix=KAT")
		var got []string
		for _, p := range problemsOf(t, err) {
			got = append(got, p.Setting+"|"+p.Source[strings.LastIndex(p.Source, "/")+1:])
		}
		want := []string{"|keyhook.yaml:3", "keys.prefix|--keys.prefix", "webhooks.timeout|keyhook.yaml:2", "log.level|keyhook.yaml:5"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		if !strings.HasPrefix(err.Error(), "4 wrong settings:\n") {
			t.Errorf("the error does not count them: %v", err)
		}
	})

	t.Run("a file that was named must exist", func(t *testing.T) {
		t.Parallel()
		_, err := config.Load(parse(t, "--config", filepath.Join(t.TempDir(), "none.yaml")))
		if p := problemsOf(t, err); len(p) != 1 || p[0].Source != "--config" || !strings.Contains(p[0].String(), "no such file") {
			t.Errorf("got %v", p)
		}
	})

	t.Run("a file larger than a megabyte is refused", func(t *testing.T) {
		t.Parallel()
		_, err := loadFile(t, strings.Repeat("# comment\n", 1<<17))
		if p := problemsOf(t, err); !strings.Contains(p[0].String(), "larger than") {
			t.Errorf("got %v", p)
		}
	})

	t.Run("--dev allows http and loopback in addition to the configuration", func(t *testing.T) {
		t.Parallel()
		c, err := loadFile(t, "egress:\n  allowed_networks: [10.0.0.0/8]\n", "--dev")
		if err != nil {
			t.Fatal(err)
		}
		want := config.Default()
		want.Egress.AllowedNetworks = c.Egress.AllowedNetworks[:1]
		if diff := cmp.Diff(want.Dev(), c, asValues); diff != "" {
			t.Errorf("not Dev (-want +got):\n%s", diff)
		}
		if got := c.Egress.AllowedNetworks; len(got) != 3 || got[0].String() != "10.0.0.0/8" || got[1].String() != "127.0.0.0/8" ||
			got[2].String() != "::1/128" {
			t.Errorf("allowed networks %v", got)
		}
	})

	t.Run("--dev keeps a log format that was set", func(t *testing.T) {
		t.Parallel()
		for arg, want := range map[string]string{"--log.format=json": "json", "--log.level=debug": "text"} {
			if c, err := config.Load(parse(t, "--dev", arg)); err != nil || c.Log.Format != want {
				t.Errorf("%s: format %q, error %v", arg, c.Log.Format, err)
			}
		}
	})
}

// Not parallel: it sets the environment.
func TestTheFileMayBeNamedInTheEnvironment(t *testing.T) {
	t.Setenv("KEYHOOK_CONFIG", write(t, "a.yaml", "keys:\n  prefix: fromenv\n", 0o600))
	if c, err := config.Load(nil); err != nil || c.Keys.Prefix != "fromenv" {
		t.Errorf("prefix %q, error %v", c.Keys.Prefix, err)
	}
	other := write(t, "b.yaml", "keys:\n  prefix: fromflag\n", 0o600)
	if c, err := config.Load(parse(t, "--config", other)); err != nil || c.Keys.Prefix != "fromflag" {
		t.Errorf("with a flag too: prefix %q, error %v", c.Keys.Prefix, err)
	}
}

// Not parallel: it sets the environment.
func TestUnknownNamesInTheEnvironmentAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"KEYHOOK_WEBHOOKS_TIEMOUT", "did you mean KEYHOOK_WEBHOOKS_TIMEOUT?"},
		{"KEYHOOK_LISTEN", "did you mean KEYHOOK_SERVER_LISTEN?"},
		{"KEYHOOK_COLOUR", "is not a setting; unset it"},
		{"KEYHOOK_WEBHOOKS", "is not a setting"},
		{"KEYHOOK_BOOTSTRAP_TOKEN_FILES", "did you mean KEYHOOK_BOOTSTRAP_TOKEN_FILE?"},
		{"KEYHOOK_LOG_LEVEL_FILE", "is not a setting"},
		{"KEYHOOK_PORT_8080_TCP_ADDR", "enableServiceLinks: false"},
		{"KEYHOOK_SERVICE_HOST", "enableServiceLinks: false"},
		{"KEYHOOK_CONSOLE_SERVICE_PORT_HTTP", "enableServiceLinks: false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(tt.name, "a value nobody should see")
			_, err := config.Load(nil)
			p := problemsOf(t, err)
			if len(p) != 1 || p[0].Source != tt.name || !strings.Contains(p[0].String(), tt.want) {
				t.Errorf("got %v, want %q", p, tt.want)
			}
			if strings.Contains(err.Error(), "nobody") {
				t.Errorf("the value is shown: %v", err)
			}
		})
	}
	t.Run("variables of the commands and tests are ignored", func(t *testing.T) {
		for _, name := range []string{"KEYHOOK_URL", "KEYHOOK_TOKEN", "KEYHOOK_WEBHOOK_SECRET", "KEYHOOK_TEST_REQUIRE", "KEYHOOKS_X", "NOT_KEYHOOK_X"} {
			t.Setenv(name, "x")
		}
		if _, err := config.Load(nil); err != nil {
			t.Error(err)
		}
	})
}

func TestURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, listening, want string
		server                config.Server
	}{
		{"names the address that is listened on", "127.0.0.1:8081", "http://127.0.0.1:8081", config.Server{}},
		{"names localhost for every IPv4 address", "0.0.0.0:80", "http://localhost:80", config.Server{}},
		{"names localhost for every address", "[::]:80", "http://localhost:80", config.Server{}},
		{"names localhost for no host", ":80", "http://localhost:80", config.Server{}},
		{"keeps the brackets of IPv6", "[::1]:80", "http://[::1]:80", config.Server{}},
		{"is https with a certificate", "a.example:443", "https://a.example:443", config.Server{TLSCertFile: "x"}},
		{"prefers the base URL", ":80", "https://k.example", config.Server{BaseURL: "https://k.example"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.server.URL(tt.listening); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"30d": 720 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute} {
		if c, err := config.Load(parse(t, "--storage.retention_events", text)); err != nil || c.Storage.RetentionEvents != want {
			t.Errorf("%s is %s, error %v", text, c.Storage.RetentionEvents, err)
		}
	}
}
