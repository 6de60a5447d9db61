package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestApplyAfterKills kills the command, then the server, while a file is applied. In the end everything is there once, with a
// secret in the file for each subscription.
func TestApplyAfterKills(t *testing.T) {
	t.Parallel()
	const organizations, each = 20, 30
	var file strings.Builder
	file.WriteString("organizations:\n")
	for i := range organizations {
		fmt.Fprintf(&file, "  - {external_id: customer-%d, name: Customer %d, plan: growth}\n", i, i)
	}
	file.WriteString("subscriptions:\n")
	for i := range organizations * each {
		fmt.Fprintf(&file, "  - {organization: customer-%d, external_id: sub-%d, url: \"https://example.com/%d\"}\n", i%organizations, i/organizations, i)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keyhook.yaml"), []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	server := start(t, dir)
	args := []string{"apply", "-f", "keyhook.yaml", "--secrets-file", "secrets.jsonl"}
	lines := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "secrets.jsonl")) // not there yet, maybe
		return bytes.Count(text, []byte("\n"))
	}
	// attempt runs apply and calls kill when the file has enough secrets. It returns what apply said if apply ended before.
	attempt := func(enough int, kill func(cmd *os.Process)) (said string, err error) {
		cmd := keyhook(t, dir, args...)
		var text bytes.Buffer
		cmd.Stderr = &text
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for lines() < enough {
			select {
			case err := <-ended:
				return text.String(), err
			case <-time.After(time.Millisecond):
			}
		}
		kill(cmd.Process)
		return "", <-ended
	}
	// during is attempt for more secrets. The server may still create the last subscription of a killed run after the next run has
	// read the list. That run then ends with a conflict, and another one continues.
	during := func(more int, kill func(cmd *os.Process)) {
		enough := lines() + more
		said, err := attempt(enough, kill)
		if strings.Contains(said, "already_exists") {
			said, err = attempt(enough, kill)
		}
		if said != "" || err == nil {
			t.Fatalf("apply had ended before the kill: %v: %s", err, said)
		}
	}
	during(50, func(cmd *os.Process) { _ = cmd.Kill() })
	during(50, func(*os.Process) { server.end(os.Kill) })
	server = start(t, dir)
	succeed(t, dir, args, "Wrote ")
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
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
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
