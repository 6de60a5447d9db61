package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/metrics"
	"github.com/keyhook/keyhook/server/oidc"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// typePackages define the types that all parts share. Every package may import them, but one of them only what its row names.
var typePackages = []string{"storage/access", "storage/webhook", "storage/fault", "storage/filter", "storage/redact"}

// mayImport lists which of our packages each package may import: imports go down. A package without a row imports none.
var mayImport = map[string][]string{
	"":                             {"server", "server/cli", "server/config", "server/console", "server/explain", "server/metrics", "server/oidc", "server/socket", "dispatch", "dispatch/alert", "dispatch/egress", "storage"},
	"server":                       {"server/apply", "server/check", "server/console", "server/credential", "server/docs", "server/exchange", "server/explain", "server/form", "server/platform", "server/share", "server/usage", "server/webhooks", "limiter", "dispatch/egress", "dispatch/signature", "storage/clock", "storage/search"},
	"server/apply":                 {"server/exchange", "server/form", "server/platform", "server/webhooks"}, // what both ask of the store
	"server/console":               {},
	"server/build":                 {},
	"server/form":                  {"dispatch/egress"},                                  // the rules for the URL of a subscription
	"server/exchange":              {"server/credential", "server/form", "server/share"}, // the name of one header
	"server/platform":              {"server/build", "server/console", "server/exchange", "server/form", "storage/backup", "storage/clock"},
	"server/webhooks":              {"server/exchange", "server/explain", "server/form", "dispatch/egress", "dispatch/sender"}, // its signatures
	"server/usage":                 {"server/exchange", "server/form"},
	"server/credential":            {"server/share"},
	"server/check":                 {"server/credential", "server/form", "server/share", "limiter"},
	"server/share":                 {},
	"server/explain":               {"server/check", "server/credential", "server/form", "storage/disk"}, // the quotes of a shell
	"server/oidc":                  {"server/form"},
	"server/socket":                {},
	"server/config":                {"dispatch", "dispatch/alert", "dispatch/signature", "server/check", "server/console", "server/exchange", "server/share"}, // their limits and defaults
	"server/metrics":               {"server/build", "server/share", "dispatch/alert", "storage/clock"},                                                       // main calls its hooks
	"server/cli/output":            {},
	"server/cli/about":             {"server/build", "server/cli/output"},
	"server/cli/client":            {"server/cli/output", "server/config", "server/socket"},
	"server/cli/apply":             {"server/cli/client", "server/cli/output", "server/config"},
	"server/cli/child":             {},
	"server/cli/database":          {"server/cli/output", "server/config", "storage", "storage/backup", "storage/disk"},
	"server/cli/demo":              {"server/cli/child", "server/cli/client", "server/cli/output", "dispatch/signature", "storage"}, // it writes the week of --keep into a file that no server has open
	"server/cli/bench":             {"server/cli/child", "server/cli/client", "server/cli/output", "server/share"},
	"server/cli/doctor":            {"server/cli/client", "server/cli/output", "server/config", "server/console", "server/socket", "storage", "storage/disk", "dispatch/alert", "dispatch/egress"},
	"server/cli/leak":              {"server/cli/output", "server/config"},
	"server/cli/receive":           {"dispatch/signature", "server/cli/client", "server/cli/output", "server/cli/receive/diagnosis", "server/config"},
	"server/cli/receive/diagnosis": {"dispatch/signature", "server/cli/output", "server/form"}, // dispatch/signature alone decides whether a request is genuine
	"server/cli":                   {"dispatch/alert", "server/build", "server/cli/about", "server/cli/apply", "server/cli/bench", "server/cli/client", "server/cli/database", "server/cli/demo", "server/cli/doctor", "server/cli/leak", "server/cli/output", "server/cli/receive", "server/config", "server/console", "server/explain", "storage", "storage/disk"},
	"dispatch":                     {"dispatch/fair", "dispatch/sender", "dispatch/signature"},
	"dispatch/fair":                {},
	"dispatch/sender":              {"dispatch/egress", "dispatch/signature"},
	"dispatch/alert":               {"storage/clock", "storage/disk"},
	"storage":                      {"storage/audit", "storage/backup", "storage/catalogue", "storage/clock", "storage/delivery", "storage/directory", "storage/disk", "storage/encryption", "storage/fanout", "storage/feed", "storage/history", "storage/instance", "storage/pending", "storage/queue", "storage/retention", "storage/scan", "storage/seal", "storage/sqlite", "storage/sqlite/ownership", "storage/subscription"},
	"storage/queue":                {"storage/audit", "storage/catalogue", "storage/clock", "storage/seal", "storage/delivery", "storage/encryption", "storage/fanout", "storage/history", "storage/instance", "storage/pending", "storage/principal", "storage/publicid", "storage/quota", "storage/scan", "storage/sqlite"},
	"storage/subscription":         {"storage/audit", "storage/seal", "storage/delivery", "storage/directory", "storage/encryption", "storage/history", "storage/principal", "storage/publicid", "storage/queue", "storage/quota", "storage/sqlite"},
	"storage/feed":                 {"storage/audit", "storage/delivery", "storage/fanout", "storage/history", "storage/publicid", "storage/queue", "storage/quota", "storage/scan", "storage/sqlite"},
	"storage/instance":             {"storage/sqlite"},
	"storage/sqlite":               {"storage/backup", "storage/disk", "storage/sqlite/ownership"},
	"storage/sqlite/ownership":     {"storage/disk"},
	"storage/backup":               {"storage/disk"},
	"storage/access":               {"storage/fault", "storage/redact"},
	"storage/webhook":              {"storage/fault", "storage/filter", "storage/redact"},
	"storage/filter":               {},
	"storage/publicid":             {},
	"storage/scan":                 {"storage/clock", "storage/sqlite"},
	"storage/search":               {"storage/publicid", "storage/scan"},
	"storage/seal":                 {},
	"storage/delivery":             {},
	"storage/history":              {"storage/delivery", "storage/directory", "storage/pending", "storage/publicid", "storage/scan", "storage/search", "storage/sqlite"},
	"storage/audit":                {"storage/sqlite"},
	"storage/catalogue":            {"storage/sqlite"},
	"storage/fanout":               {"storage/delivery", "storage/sqlite"},
	"storage/quota":                {"storage/sqlite"},
	"storage/retention":            {"storage/audit", "storage/clock", "storage/delivery", "storage/directory", "storage/publicid", "storage/queue", "storage/scan", "storage/sqlite", "storage/subscription"},
	"storage/pending":              {"storage/delivery", "storage/scan", "storage/sqlite"},
	"storage/encryption":           {"storage/disk", "storage/seal", "storage/sqlite"},
	"storage/principal":            {"storage/clock", "storage/publicid", "storage/sqlite"},
	"storage/directory":            {"storage/audit", "storage/clock", "storage/principal", "storage/publicid", "storage/quota", "storage/scan", "storage/search", "storage/sqlite"},
	"storage/disk":                 {},
	"storage/storagetest":          {"storage", "storage/sqlite"},
	"storage/storagetest/seeds":    {},
	"server/servertest":            {"server", "server/console", "dispatch/egress", "storage", "storage/storagetest"}, // for tests, and nobody may import it
}

// fences lists the packages that may import a module.
var fences = map[string][]string{
	"modernc.org/sqlite":                    {"storage/sqlite", "storage/faultdisk", "server/build"}, // the second is for tests, and nobody may import it; the third reads the version
	"github.com/santhosh-tekuri/jsonschema": {"server/servertest"},
	"modernc.org/libc":                      {"storage/faultdisk"},
	"github.com/jmoiron/sqlx":               {"storage", "storage/encryption", "storage/sqlite"},
	"github.com/chromedp":                   {}, // only the tests of server/e2e/browser
	"github.com/go-jose/go-jose":            {"server/oidc"},
	"github.com/go-json-experiment/json":    {"server/form"},
	"github.com/julienschmidt/httprouter":   {"server"},
	"github.com/prometheus":                 {"server/metrics"},
	"github.com/spf13/viper":                {"server/config"},
	"github.com/yuin/goldmark":              {"server/docs"},
	"github.com/spf13/cobra":                {"", "server/cli", "server/cli/about", "server/cli/bench", "server/cli/client", "server/cli/database", "server/cli/demo", "server/cli/doctor", "server/cli/leak", "server/cli/output", "server/cli/receive"},
	"go.yaml.in/yaml":                       {"server/config", "server/cli/apply", "server"}, // server completes openapi.yaml
	"golang.org/x/oauth2":                   {"server/oidc"},
	"golang.org/x/time/rate":                {"dispatch/fair", "server/check", "server/share"},
}

func TestImportsGoDown(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const module = "github.com/keyhook/keyhook"
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(strings.TrimPrefix(words[0], module), "/")
		seen[pkg] = true
		allowed, hasRow := mayImport[pkg]
		if hasRow && !slices.Contains(typePackages, pkg) {
			allowed = append(slices.Clip(allowed), typePackages...)
		}
		for _, path := range words[1:] {
			if ours, isOurs := strings.CutPrefix(path, module+"/"); isOurs && !slices.Contains(allowed, ours) {
				t.Errorf("%s must not import %s", words[0], ours)
			}
			for fenced, allowed := range fences {
				if (path == fenced || strings.HasPrefix(path, fenced+"/")) && !slices.Contains(allowed, pkg) {
					t.Errorf("%s must not import %s", words[0], path)
				}
			}
		}
	}
	for pkg := range mayImport {
		if !seen[pkg] {
			t.Errorf("the table names %q, which does not exist", pkg)
		}
	}
}

func TestTheExampleConfigEqualsTheDefaults(t *testing.T) {
	t.Parallel()
	flags := newServe().Flags()
	if err := flags.Parse([]string{"--config=config.example.yaml"}); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(flags)
	if err != nil {
		t.Fatal(err)
	}
	defaults := load(t, nil)
	defaults.Files = c.Files
	if diff := cmp.Diff(defaults, c, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("not the defaults (-want +got):\n%s", diff)
	}
}

// TestFunctionsAreShort holds functions to 60 lines and tests to 120. The route table is one list, and may be longer.
func TestFunctionsAreShort(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		most := 60
		if strings.HasSuffix(path, "_test.go") {
			most = 120
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			lines := files.Position(d.End()).Line - files.Position(d.Pos()).Line + 1
			if f, isFunction := d.(*ast.FuncDecl); isFunction && lines > most && f.Name.Name != "table" {
				t.Errorf("%s: %s has %d lines; split it below %d", path, f.Name.Name, lines, most)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// budget is the number of lines of code that each package may have, without tests. A commit that raises a number says why. A commit
// that makes a package smaller lowers its number. Otherwise the room would fill by itself. The sum has its own limit, so what comes in
// pays with what goes out.
var budget = map[string]int{
	"":                             290,
	"dispatch":                     2696,
	"dispatch/alert":               1326,
	"dispatch/egress":              590,
	"dispatch/fair":                250,
	"dispatch/sender":              470,
	"dispatch/signature":           360,
	"limiter":                      180,
	"server":                       2870,
	"server/apply":                 891,
	"server/build":                 90,
	"server/check":                 592,
	"server/cli":                   2525,
	"server/cli/about":             50,
	"server/cli/apply":             798,
	"server/cli/bench":             420,
	"server/cli/child":             140,
	"server/cli/client":            372,
	"server/cli/database":          320,
	"server/cli/demo":              670,
	"server/cli/doctor":            761,
	"server/cli/leak":              80,
	"server/cli/output":            386, // errors hide signing secrets too
	"server/cli/receive":           780,
	"server/cli/receive/diagnosis": 350,
	"server/config":                1445,
	"server/console":               410,
	"server/credential":            335,
	"server/docs":                  680,
	"server/exchange":              821,
	"server/explain":               924, // the highest rate limit is not raised
	"server/form":                  1665,
	"server/metrics":               510,
	"server/oidc":                  870,
	"server/platform":              950,
	"server/share":                 570,
	"server/socket":                250,
	"server/usage":                 200,
	"server/webhooks":              1302,
	"storage":                      1000,
	"storage/access":               1430,
	"storage/audit":                270,
	"storage/backup":               341,
	"storage/catalogue":            140,
	"storage/clock":                210,
	"storage/delivery":             125,
	"storage/directory":            2690,
	"storage/disk":                 690,
	"storage/encryption":           567,
	"storage/fanout":               370,
	"storage/filter":               440,
	"storage/fault":                170,
	"storage/feed":                 290,
	"storage/history":              1171,
	"storage/instance":             50, // it also reads and writes JSON, which its three users did
	"storage/pending":              380,
	"storage/principal":            700,
	"storage/publicid":             70,
	"storage/queue":                2877,
	"storage/quota":                210,
	"storage/redact":               60,
	"storage/retention":            1040,
	"storage/scan":                 510,
	"storage/seal":                 210,
	"storage/search":               290,
	"storage/sqlite":               3322,
	"storage/sqlite/ownership":     240,
	"storage/subscription":         520,
	"storage/webhook":              1650,
}

const (
	budgetOfAll    = 50838 // the aim is 50,000
	linesOfPackage = 3500  // of any package
	filesOfPackage = 25
)

// testPackages are for tests only.
var testPackages = []string{"server/e2e", "server/e2e/browser", "server/servertest", "storage/faultdisk", "storage/storagetest", "storage/storagetest/seeds"}

// TestPackagesKeepToTheirBudget counts the lines of code.
func TestPackagesKeepToTheirBudget(t *testing.T) {
	t.Parallel()
	lines, files, all := map[string]int{}, map[string]int{}, 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), ".")
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || slices.Contains(testPackages, pkg) {
			return err
		}
		text, err := os.ReadFile(path)
		lines[pkg] += bytes.Count(text, []byte("\n"))
		files[pkg]++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, n := range lines {
		all += n
		switch most := budget[pkg]; {
		case n > most:
			t.Errorf("%q has %d lines, and may have %d: make it smaller, or raise the number and say why", pkg, n, most)
		case n < most-most/20-20:
			t.Errorf("%q has %d lines, and may have %d: lower the number", pkg, n, most)
		}
		if n > linesOfPackage || files[pkg] > filesOfPackage {
			t.Errorf("%q has %d lines in %d files, which is too large: split it", pkg, n, files[pkg])
		}
	}
	for pkg := range budget {
		if files[pkg] == 0 {
			t.Errorf("the budget names %q, which does not exist", pkg)
		}
	}
	if all > budgetOfAll {
		t.Errorf("%d lines in all, and there may be %d", all, budgetOfAll)
	}
}

// options are what main passes to the parts.
type options struct {
	Store     storage.Options
	Dispatch  dispatch.Options
	Transport *http.Transport
	Alert     alert.Options
	Issuer    oidc.Options
	Server    server.Options
	Allows    map[string]bool // whether a subscription may have the URL
}

// usedElsewhere are the settings that are not in an option.
var usedElsewhere = map[string]string{
	"server.listen":  "serve listens there",
	"metrics.listen": "serve listens there",
	"log.level":      "config.Log.Logger", "log.format": "config.Log.Logger",
}

// arrivals are the options that each setting changes, with a value other than the default, and other settings that the value needs.
var arrivals = map[string]struct{ value, needs, options string }{
	"server.base_url":                {"https://keys.example.com", "", "Alert.From Server.BaseURL"},
	"server.trusted_proxies":         {"10.1.0.0/16", "", "Server.TrustedProxies"},
	"server.tls_cert_file":           {"cert.pem", "server.tls_key_file=key.pem", "Alert.From"}, // and serve loads the files
	"server.tls_key_file":            {"key.pem", "server.tls_cert_file=cert.pem", "Alert.From"},
	"server.shutdown_grace":          {"33s", "", "Dispatch.Grace Server.ShutdownGrace"},
	"server.token_rate":              {"77", "", "Server.TokenRate"},
	"server.connections_per_address": {"99", "", "Server.ConnectionsPerAddress"},
	"server.body_memory":             {"96MiB", "", "Server.BodyMemory"},

	"storage.path":             {"other.db", "", "Store.Path"},
	"storage.synchronous":      {"normal", "", "Store.Synchronous"},
	"storage.retention_events": {"100h", "", "Store.KeepEvents"},
	"storage.retention_audit":  {"9000h", "", "Store.KeepAudit"},
	"keys.expiry_notice":       {"48h, 2h", "", "Store.ExpiryNotice"},
	"encryption.key":           {strings.Repeat("ab", 32), "", "Store.EncryptionKey"},
	"bootstrap.token":          {"console-console-console", "", "Store.BootstrapLife"},

	"keys.prefix":                           {"abc", "", "Server.KeyPrefix"},
	"webhooks.header_prefix":                {"X-Acme", "", "Dispatch.HeaderPrefix Server.HeaderPrefix"},
	"webhooks.max_attempts":                 {"7", "", "Dispatch.Policy.MaxAttempts Store.Policy.MaxAttempts"},
	"webhooks.failing_after":                {"6", "", "Dispatch.Policy.FailingAfter Store.Policy.FailingAfter"},
	"webhooks.disabled_after":               {"25", "", "Dispatch.Policy.DisabledAfter Store.Policy.DisabledAfter"},
	"webhooks.probe_disabled":               {"2h", "", "Dispatch.Policy.ProbeDisabled Store.Policy.ProbeDisabled"},
	"webhooks.retry_base":                   {"20s", "", "Dispatch.RetryBase"},
	"webhooks.retry_factor":                 {"3", "", "Dispatch.RetryFactor"},
	"webhooks.retry_max":                    {"700s", "", "Dispatch.RetryMax"},
	"webhooks.timeout":                      {"12s", "", "Dispatch.Timeout Server.TestTimeout"},
	"webhooks.concurrency":                  {"200", "", "Dispatch.Concurrency Transport.MaxIdleConns Transport.MaxIdleConnsPerHost"},
	"webhooks.concurrency_per_subscription": {"8", "", "Dispatch.PerSubscription"},
	"webhooks.poll_interval":                {"2s", "", "Dispatch.PollInterval"}, // and the check of the scheduler

	"egress.allow_http":       {"true", "", "Allows.http://a.example Dispatch.AllowHTTP"},
	"egress.allowed_networks": {"10.0.0.0/8", "", "Allows.https://10.0.0.1"},
	"egress.denied_networks":  {"8.8.8.0/24", "", "Allows.https://8.8.8.8"},
	"egress.ca_file":          {"ca.pem", "", ""}, // serve reads the file

	"oidc.issuer":                {"https://id.example.com", "oidc.audience=keyhook", "Issuer.Audience Issuer.Issuer Server.Issuer"},
	"oidc.audience":              {"keyhook", "oidc.issuer=https://id.example.com", "Issuer.Audience Issuer.Issuer Server.Issuer"},
	"oidc.organization_claim":    {"org", "oidc.issuer=https://id.example.com oidc.audience=keyhook", "Issuer.Audience Issuer.Issuer Issuer.OrganizationClaim Server.Issuer"},
	"console.enabled":            {"false", "", "Alert.Page Server.Console"},
	"console.name":               {"Acme", "", "Server.Console.Name"},
	"console.accent":             {"#123456", "", "Server.Console.Accent"},
	"console.logo_file":          {"logo.svg", "", ""}, // serve reads the file
	"console.portal_pages":       {"keys", "", "Server.Console.PortalPages"},
	"console.frame_ancestors":    {"https://a.example", "", "Server.Console.FrameAncestors"},
	"console.oidc_client_id":     {"client", "oidc.issuer=https://id.example.com oidc.audience=keyhook", "Issuer.Audience Issuer.Issuer Server.Issuer Server.SignIn"},
	"console.oidc_client_secret": {"secret", "oidc.issuer=https://id.example.com oidc.audience=keyhook console.oidc_client_id=client", "Issuer.Audience Issuer.Issuer Server.Issuer Server.SignIn"},
	"alerts.urls":                {"ntfy://ntfy.example/topic", "", "Alert.URLs"},
	"alerts.interval":            {"20m", "", "Alert.Interval"},
	"alerts.failing_after":       {"20m", "", "Alert.Failing"},
}

// load returns the settings with these values.
func load(t *testing.T, values map[string]string) config.Config {
	t.Helper()
	flags := newServe().Flags()
	for name, value := range values {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(flags)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// optionsOf returns the options as texts, by their names.
func optionsOf(c config.Config) map[string]string {
	a := &appliance{settings: c, log: slog.New(slog.DiscardHandler), metrics: metrics.New(), store: new(storage.Store), url: "http://localhost:8080"}
	if c.OIDC.Issuer != "" {
		a.issuer = oidc.New(a.issuerOptions())
	}
	all := options{
		Store: a.storeOptions(cli.NewFirstStart(c.Bootstrap)), Dispatch: a.dispatchOptions(), Alert: a.alertOptions(nil), Issuer: a.issuerOptions(),
		Server: a.serverOptions((*tls.Config)(nil)), Allows: map[string]bool{},
	}
	all.Transport = all.Dispatch.Transport.(*http.Transport)
	all.Server.Settings = nil // shows all
	for _, url := range []string{"http://a.example", "https://10.0.0.1", "https://8.8.8.8", "https://a.example"} {
		_, err := all.Server.CheckURL(url)
		all.Allows[url] = err == nil
	}
	texts := map[string]string{}
	flatten(texts, "", reflect.ValueOf(all))
	return texts
}

// flatten writes the fields of our structs, down to those of packages of others.
func flatten(texts map[string]string, name string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil() && strings.Count(name, ".") < 2 && v.Elem().Kind() == reflect.Struct:
		flatten(texts, name, v.Elem())
	case v.Kind() == reflect.Struct && strings.Count(name, ".") < 2 && v.Type().Name() != "Credential":
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				flatten(texts, strings.TrimPrefix(name+"."+field.Name, "."), v.Field(i))
			}
		}
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			texts[name+"."+key.String()] = fmt.Sprint(v.MapIndex(key))
		}
	case v.Kind() == reflect.Func || v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer || v.Kind() == reflect.Chan:
		texts[name] = fmt.Sprint(v.IsNil())
	default:
		texts[name] = fmt.Sprintf("%#v", v)
	}
}

// TestLinesOfLibraries is not parallel, because it changes the log of the process.
func TestLinesOfLibraries(t *testing.T) {
	before, flags := log.Writer(), log.Flags()
	t.Cleanup(func() { log.SetOutput(before); log.SetFlags(flags) })
	for level, want := range map[slog.Level]string{slog.LevelInfo: "", slog.LevelDebug: `"level":"DEBUG","msg":"Unsolicited \"ok\""`} {
		var text bytes.Buffer
		logLibraries(slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: level})))
		log.Printf("Unsolicited %q", "ok")
		if got := text.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("at level %s: %q", level, got)
		}
	}
}

// TestEachSettingReachesItsPart gives each setting a value other than its default. Otherwise nobody would see that main forgets
// to pass it on.
func TestEachSettingReachesItsPart(t *testing.T) {
	t.Parallel()
	defaults := optionsOf(load(t, nil))
	for name := range load(t, nil).Texts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, ok := arrivals[name]
			if !ok && usedElsewhere[name] == "" {
				t.Fatal("which options does the setting change? Write them into arrivals")
			}
			if !ok {
				return
			}
			values := map[string]string{name: want.value}
			for other := range strings.FieldsSeq(want.needs) {
				key, value, _ := strings.Cut(other, "=")
				values[key] = value
			}
			got, changed := optionsOf(load(t, values)), []string{}
			for option := range maps.Keys(got) {
				if got[option] != defaults[option] {
					changed = append(changed, option)
				}
			}
			slices.Sort(changed)
			if diff := cmp.Diff(strings.Fields(want.options), changed); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// TestALongPollIntervalIsReady: the scheduler of a server without work looks at its clock once in an interval.
func TestALongPollIntervalIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := storagetest.Open(t)
		a := &appliance{settings: load(t, map[string]string{"webhooks.poll_interval": "1m"}), log: slog.New(slog.DiscardHandler), metrics: metrics.New(), store: store}
		a.dispatcher = dispatch.New(store, a.dispatchOptions())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.dispatcher.Run(ctx) }()
		for _, check := range a.serverOptions(nil).Checks {
			if check.Name != "scheduler" {
				continue
			}
			for range 5 {
				time.Sleep(25 * time.Second)
				if _, err := check.Run(ctx); err != nil {
					t.Error(err)
				}
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWhatIsNoSettingReachesItsPart has the content of files, and the hooks of the metrics.
func TestWhatIsNoSettingReachesItsPart(t *testing.T) {
	t.Parallel()
	c := load(t, map[string]string{"dev": "true", "oidc.issuer": "https://id.example.com", "oidc.audience": "keyhook"})
	a := &appliance{
		settings: c, log: slog.New(slog.DiscardHandler), metrics: metrics.New(), store: new(storage.Store), url: "http://localhost:8080",
		roots: x509.NewCertPool(), logo: []byte("<svg/>"),
	}
	a.issuer = oidc.New(a.issuerOptions())
	var certificate tls.Config
	sent, told, served := a.dispatchOptions(), a.alertOptions(&certificate), a.serverOptions(&certificate)
	if roots := sent.Transport.(*http.Transport).TLSClientConfig.RootCAs; roots != a.roots || a.issuerOptions().Roots != a.roots {
		t.Error("egress.ca_file does not reach deliveries, or not the issuer")
	}
	if served.TLS != &certificate || told.Certificate != &certificate {
		t.Error("the certificate does not reach the server, or not the alerts")
	}
	if string(served.Console.Logo) != "<svg/>" || !served.Console.Parts || a.serverOptions(nil).Issuer == nil {
		t.Errorf("the console is %+v", served.Console)
	}
	a.settings.Development = false
	if a.serverOptions(nil).Console.Parts {
		t.Error("the page with all components is served without --dev")
	}
	var checks []string
	for _, check := range served.Checks {
		checks = append(checks, check.Name)
	}
	if diff := cmp.Diff([]string{"storage", "clock", "scheduler"}, checks); diff != "" || served.Deliveries == nil {
		t.Errorf("checks of readiness (-want +got):\n%s", diff)
	}
	if page := told.Page("org_1", "sub_1"); page != "http://localhost:8080/console/subscriptions/sub_1/?org=org_1" || told.Command == nil {
		t.Errorf("an alert leads to %s", page)
	}

	sent.OnSettled(webhook.Result{Succeeded: true}, webhook.Settled{State: webhook.Delivered})
	told.OnEnd(alert.Kinds()[0], true)
	served.Observe(http.MethodGet, "/x/", http.StatusTeapot, "", 0)
	served.Connections.ConnectionOpened()
	a.storeOptions(cli.NewFirstStart(c.Bootstrap)).Observer.Published(7)
	w := httptest.NewRecorder()
	served.Metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/", nil))
	for _, want := range []string{
		`keyhook_deliveries_ended_total{state="delivered"} 1`, `keyhook_alerts_total{kind="` + string(alert.Kinds()[0]) + `",result="sent"} 1`,
		`keyhook_http_requests_total{method="GET",route="/x/",status="418"} 1`, "keyhook_http_connections 1", "keyhook_events_published_total 7",
	} {
		if !strings.Contains(w.Body.String(), "\n"+want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	a.settings.Metrics.Listen = "127.0.0.1:9090"
	if a.serverOptions(nil).Metrics != nil {
		t.Error("the main listener serves the metrics, too")
	}
}

// TestDependenciesHaveAReason compares the direct dependencies with the table of CONTRIBUTING.md.
func TestDependenciesHaveAReason(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(".github/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Dependencies\n")
	table, _, _ = strings.Cut(table, "\n## ")
	_, direct, _ := strings.Cut(string(module), "require (\n")
	direct, _, _ = strings.Cut(direct, "\n)")
	for line := range strings.Lines(direct) {
		if name := strings.Fields(line)[0]; !strings.Contains(table, "`"+name+"`") {
			t.Errorf("CONTRIBUTING.md does not say why we need %s", name)
		}
	}
}
