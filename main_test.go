package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport is which of our packages each of them may import: imports go down. A package that is not named may import
// none of ours.
var mayImport = map[string][]string{
	"": {
		"server", "server/cli", "server/config", "server/metrics", "server/oidc", "server/socket", "limiter", "dispatch", "dispatch/egress",
		"storage", "storage/access", "storage/webhook", "storage/fault",
	},
	"server":              {"server/docs", "limiter", "dispatch/egress", "storage/access", "storage/backup", "storage/clock", "storage/webhook", "storage/fault"},
	"server/oidc":         {"storage/access", "storage/fault"},  // whom a token is about, and what its holder may know of a refusal
	"server/metrics":      {"storage/clock", "storage/webhook"}, // the vocabulary of what it counts; whoever counts reaches it through a hook
	"server/cli":          {"server/config", "server/socket", "storage", "storage/backup", "storage/disk", "storage/fault", "dispatch/signature", "dispatch/diagnosis", "dispatch/egress"},
	"dispatch":            {"dispatch/egress", "dispatch/signature", "storage/webhook"},
	"dispatch/diagnosis":  {"dispatch/signature"}, // which alone decides what is genuine
	"storage":             {"storage/access", "storage/backup", "storage/clock", "storage/webhook", "storage/fault", "storage/seal", "storage/disk"},
	"storage/access":      {"storage/fault"},
	"storage/webhook":     {"storage/fault"},
	"storage/storagetest": {"storage", "storage/access", "storage/webhook"},
}

// fences is where a module may be imported.
var fences = map[string][]string{
	"modernc.org/sqlite":                  {"storage", "storage/faultdisk"}, // the latter is for tests, and nobody may import it
	"modernc.org/libc":                    {"storage/faultdisk"},
	"github.com/jmoiron/sqlx":             {"storage"},
	"github.com/coreos/go-oidc":           {"server/oidc"},
	"github.com/go-jose/go-jose":          {"server/oidc"},
	"github.com/julienschmidt/httprouter": {"server", "server/cli"}, // bench compares the server with a bare handler of it
	"github.com/prometheus":               {"server/metrics"},
	"github.com/spf13/viper":              {"server/config"},
	"github.com/yuin/goldmark":            {"server/docs"},
	"github.com/spf13/cobra":              {"", "server/cli"},
	"go.yaml.in/yaml":                     {"server/config", "server"}, // server makes JSON of openapi.yaml
	"golang.org/x/time/rate":              {"dispatch", "server"},
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
		for _, path := range words[1:] {
			if ours, isOurs := strings.CutPrefix(path, module+"/"); isOurs && !slices.Contains(mayImport[pkg], ours) {
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
