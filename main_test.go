package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/config"
)

// typePackages define the types that all parts share. Every package may import them, but one of them only what its row names.
var typePackages = []string{"storage/access", "storage/webhook", "storage/fault", "storage/redact"}

// mayImport lists which of our packages each package may import: imports go down. A package without a row imports none.
var mayImport = map[string][]string{
	"":                             {"server", "server/cli", "server/config", "server/console", "server/metrics", "server/oidc", "server/socket", "limiter", "dispatch", "dispatch/alert", "dispatch/egress", "storage"},
	"server":                       {"server/check", "server/console", "server/credential", "server/docs", "server/exchange", "server/explain", "server/form", "server/platform", "server/share", "server/webhooks", "limiter", "dispatch/egress", "storage/clock", "storage/search"},
	"server/console":               {},
	"server/build":                 {},
	"server/form":                  {},
	"server/exchange":              {"server/credential", "server/form", "server/share"}, // the name of one header
	"server/platform":              {"server/build", "server/console", "server/exchange", "server/form", "storage/backup", "storage/clock"},
	"server/webhooks":              {"server/credential", "server/exchange", "server/explain", "server/form", "dispatch/egress"},
	"server/credential":            {"server/share"},
	"server/check":                 {"server/credential", "server/form", "server/share", "limiter"},
	"server/share":                 {},
	"server/explain":               {"server/check", "server/credential", "server/form"},
	"server/oidc":                  {},
	"server/socket":                {},
	"server/config":                {"dispatch/alert"},                                                  // checks alerts.urls
	"server/metrics":               {"server/build", "server/share", "dispatch/alert", "storage/clock"}, // main calls its hooks
	"server/cli/output":            {},
	"server/cli/client":            {"server/cli/output", "server/config", "server/socket"},
	"server/cli/apply":             {"dispatch/egress", "server/cli/client", "server/cli/flag", "server/cli/output", "server/config", "server/form"}, // reads fields as the server does
	"server/cli/flag":              {},
	"server/cli/child":             {},
	"server/cli/database":          {"server/cli/flag", "server/cli/output", "server/config", "storage", "storage/backup", "storage/disk"},
	"server/cli/demo":              {"server/cli/child", "server/cli/client", "server/cli/output", "dispatch/signature"},
	"server/cli/bench":             {"server/cli/child", "server/cli/client", "server/cli/flag", "server/cli/output"},
	"server/cli/doctor":            {"server/cli/output", "server/config", "server/socket", "storage", "storage/disk", "dispatch/alert", "dispatch/egress"},
	"server/cli/receive":           {"dispatch/signature", "server/cli/flag", "server/cli/output", "server/cli/receive/diagnosis", "server/config"},
	"server/cli/receive/diagnosis": {"dispatch/signature", "server/cli/output"}, // dispatch/signature alone decides whether a request is genuine
	"server/cli":                   {"dispatch/alert", "server/build", "server/cli/apply", "server/cli/bench", "server/cli/client", "server/cli/database", "server/cli/demo", "server/cli/doctor", "server/cli/flag", "server/cli/output", "server/cli/receive", "server/config", "server/console", "server/form", "storage", "storage/disk"},
	"dispatch":                     {"dispatch/sender"},
	"dispatch/sender":              {"dispatch/egress", "dispatch/signature"},
	"dispatch/alert":               {},
	"storage":                      {"storage/applied", "storage/backup", "storage/audit", "storage/clock", "storage/seal", "storage/delivery", "storage/directory", "storage/disk", "storage/encryption", "storage/fanout", "storage/history", "storage/pending", "storage/principal", "storage/publicid", "storage/quota", "storage/retention", "storage/scan", "storage/sqlite", "storage/timeline"},
	"storage/sqlite":               {"storage/backup", "storage/disk"},
	"storage/backup":               {"storage/disk"},
	"storage/access":               {"storage/fault", "storage/redact"},
	"storage/webhook":              {"storage/fault", "storage/redact"},
	"storage/publicid":             {},
	"storage/scan":                 {"storage/sqlite"},
	"storage/search":               {"storage/publicid", "storage/scan"},
	"storage/seal":                 {},
	"storage/delivery":             {},
	"storage/history":              {"storage/delivery", "storage/directory", "storage/pending", "storage/publicid", "storage/scan", "storage/search", "storage/sqlite", "storage/timeline"},
	"storage/applied":              {"storage/audit", "storage/scan", "storage/sqlite"},
	"storage/audit":                {},
	"storage/fanout":               {"storage/sqlite"},
	"storage/quota":                {"storage/directory", "storage/sqlite"},
	"storage/retention":            {"storage/audit", "storage/clock", "storage/delivery", "storage/directory", "storage/publicid", "storage/scan", "storage/sqlite", "storage/timeline"},
	"storage/timeline":             {"storage/clock", "storage/scan"},
	"storage/pending":              {"storage/delivery", "storage/scan", "storage/sqlite"},
	"storage/encryption":           {"storage/disk", "storage/seal", "storage/sqlite"},
	"storage/principal":            {"storage/clock", "storage/publicid", "storage/sqlite"},
	"storage/directory":            {"storage/clock", "storage/principal", "storage/publicid", "storage/scan", "storage/search", "storage/sqlite"},
	"storage/disk":                 {},
	"storage/storagetest":          {"storage", "storage/sqlite"},
}

// fences lists the packages that may import a module.
var fences = map[string][]string{
	"modernc.org/sqlite":                  {"storage/sqlite", "storage/faultdisk"}, // the latter is for tests, and nobody may import it
	"modernc.org/libc":                    {"storage/faultdisk"},
	"github.com/jmoiron/sqlx":             {"storage", "storage/encryption", "storage/sqlite"},
	"github.com/chromedp":                 {}, // only the tests of server/e2e/browser
	"github.com/go-jose/go-jose":          {"server/oidc"},
	"github.com/julienschmidt/httprouter": {"server"},
	"github.com/nicholas-fedor/shoutrrr":  {"dispatch/alert"},
	"github.com/prometheus":               {"server/metrics"},
	"github.com/spf13/viper":              {"server/config"},
	"github.com/yuin/goldmark":            {"server/docs"},
	"github.com/spf13/cobra":              {"", "server/cli", "server/cli/bench", "server/cli/client", "server/cli/database", "server/cli/demo", "server/cli/doctor", "server/cli/output", "server/cli/receive"},
	"go.yaml.in/yaml":                     {"server/config", "server/cli/apply", "server"}, // server makes JSON of openapi.yaml
	"golang.org/x/oauth2":                 {"server/oidc"},
	"golang.org/x/time/rate":              {"dispatch", "server/check", "server/share"},
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
	if diff := cmp.Diff(config.Default(), c, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
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
