package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
)

// TestMistakes makes mistakes of newcomers. Each answer names what was meant. No server runs: all are found before anything is sent.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"serve --listen 9000":                             `"9000" is not host:port; write an address such as 127.0.0.1:8080`,
		"serve --storage-path x.db":                       "did you mean --storage.path",
		"serve --webhooks.timeout 5":                      `"5" has no unit; write "5s" for seconds, or another unit: ms, m, h, d`,
		"subscriptions create --url x --secret whsec_x":   "did you mean --secret-file",
		"subscriptions create --url x --rate-limit 5":     "did you mean --rate-limit-per-second",
		"keys list --org acme":                            "did you mean --organization",
		"users create --email a@example.com --role owner": "unknown flag: --role (see keyhook users create --help)",
		"webhook create --url x":                          `unknown command "webhook" (see keyhook --help)`,
		"keys new --name x":                               `unknown command "new" (see`,
		"organizations create --name Acme":                `required flag(s) "plan" not set`,
		"keys get":                                        "ID is missing; write: keyhook keys get ID [flags] (see",
		"queue discard":                                   "there is no terminal to ask at; give --yes (see",
		"organizations members add x":                     "write: keyhook organizations members ORGANIZATION",
		"events list --since yesterday":                   "a duration before now such as 24h or 7d",
		"events publish a.b data.json":                    "for a file, write - and then <FILE",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, strings.Fields(line), serve(nil))
			if code != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("code %d, output %q, errors\n%swant\n%s", code, stdout, stderr, want)
			}
		})
	}
	for text, want := range map[string]string{
		"server:\n\tlisten: x\n":                 ":2: the file is not valid YAML: found character that cannot start any token; correct that line, or the line before or after it",
		"console:\n  accent: #3b5bdb\n":          ":2): the setting has no value; write a value (in quotes if it begins with #)",
		"console:\n  name: caf\xe9\n":            "the file is not valid YAML",
		"server: listen: x\n":                    "the file is not valid YAML: mapping values are not allowed in this context",
		"egress:\n  allowed_networks: [10.0.0.1": "the file is not valid YAML: did not find expected ",
		"storage:\n  retention_events: 720\n":    `"720" has no unit; write "720s" for seconds, or another unit: ms, m, h, d`,
	} {
		t.Run("the file "+text, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "k.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, _, stderr := run(t, []string{"config", "show", "--config", path}); code != cli.ExitUsage || !strings.Contains(stderr, want) {
				t.Errorf("code %d, errors\n%swant\n%s", code, stderr, want)
			}
		})
	}
}
