package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedClients generates clients from the served description with the commands of the document, compiles them, and runs the
// programs of the document twice against a server. The tools come from the registries of Go and npm.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	if underRace {
		t.Log("the generated clients run without the race detector, which sees nothing of them")
		return
	}
	const maxLines = 15_000 // of Go
	for _, language := range []string{"Go", "TypeScript"} {
		t.Run("in "+language, func(t *testing.T) {
			t.Parallel()
			tool(t, map[string]string{"Go": "go", "TypeScript": "npx"}[language])
			p := start(t, t.TempDir())
			dir := t.TempDir()
			var scripts []string // the first one generates the client, the last one runs the program
			for _, b := range blocks(t, "clients.md") {
				switch {
				case b.heading != language:
				case b.file != "":
					if err := os.WriteFile(filepath.Join(dir, b.file), []byte(b.text), 0o600); err != nil {
						t.Fatal(err)
					}
				case b.language == "sh":
					scripts = append(scripts, b.text)
				}
			}
			run := func(script string) string {
				cmd := exec.CommandContext(t.Context(), tool(t, "sh"), "-ec", script)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "URL="+p.url, "BACKEND_TOKEN="+backendToken(t, p), "GOFLAGS=-mod=mod")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s\n%v\n%s", script, err, out)
				}
				return string(out)
			}
			for _, script := range append(scripts, scripts[len(scripts)-1]) {
				if said := run(script); script != scripts[0] && !strings.Contains(said, "in_feed ") {
					t.Errorf("no verdict in %s", said)
				}
			}
			var list struct{ Data []struct{ ID string } }
			p.must(t, "GET", "/api/v1/webhooks/subscriptions/?organization=all", nil, &list)
			if len(list.Data) != 1 {
				t.Errorf("%d subscriptions after two runs", len(list.Data))
			}
			if language == "Go" {
				text, err := os.ReadFile(filepath.Join(dir, "keyhook/keyhook.go"))
				if n := strings.Count(string(text), "\n"); err != nil || n > maxLines {
					t.Errorf("the client has %d lines, and may have %d; error %v", n, maxLines, err)
				}
			}
		})
	}
}
