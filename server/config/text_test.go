package config_test

import (
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

func TestTheTextsOfTheSettingsAreReadBack(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Storage.Path = filepath.Join(t.TempDir(), "keyhook.db")
	c.Encryption.Key = redact.New(strings.Repeat("ab", 32))
	c.Webhooks.Timeout, c.Webhooks.RetryFactor, c.Server.BodyMemory = 7*time.Second, 2.5, 65<<20
	c.Egress.DeniedNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	c = c.Dev()
	texts := c.Texts()
	if strings.Contains(strings.Join(slices.Sorted(maps.Values(texts)), " "), "abab") {
		t.Errorf("they show a secret: %v", texts)
	}
	own := config.Default()
	own.Encryption.Key, own.Development = c.Encryption.Key, c.Development // which no text has
	got, err := own.WithTexts(texts)
	if diff := cmp.Diff(c, got, cmp.Exporter(func(reflect.Type) bool { return true })); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
	want := []string{"server.body_memory", "storage.path", "webhooks.retry_factor", "webhooks.timeout", "egress.allow_http", "egress.allowed_networks", "egress.denied_networks", "log.format"}
	if diff := cmp.Diff(want, config.Differences(own.Texts(), texts)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

func TestThePathsInTheTextsAreAbsolute(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Server.TLSCertFile, c.Server.TLSKeyFile, c.Egress.CAFile, c.Console.LogoFile = "tls.crt", "tls.key", "ca.pem", "logo.svg"
	for _, name := range []string{"storage.path", "server.tls_cert_file", "server.tls_key_file", "egress.ca_file", "console.logo_file"} {
		if path := c.Texts()[name]; !filepath.IsAbs(path) {
			t.Errorf("%s is %s", name, path)
		}
	}
}
