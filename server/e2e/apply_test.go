package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestApplyAfterKills kills the command, then the server, while a file is applied. Each file is applied whole or not at all. In the end
// everything is there once, with a secret in the file for each subscription.
func TestApplyAfterKills(t *testing.T) {
	t.Parallel()
	const organizations, each = 20, 30
	dir := t.TempDir()
	// write writes the file with so many organizations.
	write := func(organizations int) {
		var file strings.Builder
		file.WriteString("organizations:\n")
		for i := range organizations {
			fmt.Fprintf(&file, "  - {external_id: customer-%d, name: Customer %d, plan: growth}\n", i, i)
		}
		file.WriteString("subscriptions:\n")
		for i := range organizations * each {
			fmt.Fprintf(&file, "  - {organization: customer-%d, external_id: sub-%d, url: \"https://example.com/%d\"}\n", i%organizations, i/organizations, i)
		}
		if err := os.WriteFile(filepath.Join(dir, "keyhook.yaml"), []byte(file.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := start(t, dir)
	args := []string{"apply", "-f", "keyhook.yaml", "--secrets-file", "secrets.jsonl"}
	lines := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "secrets.jsonl")) // not there yet, maybe
		return bytes.Count(text, []byte("\n"))
	}
	// during runs apply for a file with so many organizations, and calls kill when its secrets are in the file.
	during := func(organizations int, kill func(cmd *os.Process)) {
		write(organizations)
		enough := lines() + 50
		cmd := keyhook(t, dir, args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for lines() < enough {
			select {
			case err := <-ended:
				t.Fatalf("apply had ended before the kill: %v: %s", err, said.String())
			case <-time.After(time.Millisecond):
			}
		}
		kill(cmd.Process)
		if err := <-ended; err == nil {
			t.Logf("the kill came after the end: %s", said.String())
		}
	}
	wholeOrNot := func(wanted ...int) {
		t.Helper()
		var list, subscriptions struct{ Data []struct{ ID string } }
		server.must(t, "GET", "/api/v1/organizations/?limit=200", nil, &list)
		server.must(t, "GET", "/api/v1/webhooks/subscriptions/?organization=all&limit=1", nil, &subscriptions)
		if n := len(list.Data) - 1; !slices.Contains(wanted, n) || (n > 0) != (len(subscriptions.Data) > 0) {
			t.Errorf("%d organizations, want one of %d", n, wanted)
		}
	}
	during(organizations/2, func(cmd *os.Process) { _ = cmd.Kill() })
	wholeOrNot(0, organizations/2)
	during(organizations, func(*os.Process) { server.end(os.Kill) })
	server = start(t, dir)
	wholeOrNot(0, organizations/2, organizations) // the server may have made the first half after its client was killed
	succeed(t, dir, args, "unchanged")
	succeed(t, dir, append(args, "--prune"), fmt.Sprintf("= %d unchanged\n", organizations*(each+1)))

	saved := map[string]string{}
	text, err := os.ReadFile(filepath.Join(dir, "secrets.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var s struct {
			Organization string `json:"organization"`
			ExternalID   string `json:"external_id"`
			Secret       string `json:"secret"`
		}
		if json.Unmarshal(line, &s) != nil {
			continue // a kill has torn it, before the server got its secret; a later run has saved another one
		}
		saved[s.Organization+"/"+s.ExternalID] = s.Secret
	}
	if len(saved) != organizations*each {
		t.Errorf("%d subscriptions have a secret, want %d", len(saved), organizations*each)
	}
	var page struct{ Data []struct{ ID string } }
	server.must(t, "GET", "/api/v1/organizations/?limit=200", nil, &page)
	if len(page.Data) != organizations+1 {
		t.Errorf("%d organizations, want %d and Default", len(page.Data), organizations)
	}
}
