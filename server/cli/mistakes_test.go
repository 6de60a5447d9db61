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
	const sub, key = "sub_01h455vb4pex5vsknk084sn02q", "key_01h455vb4pex5vsknk084sn02q"
	for line, want := range map[string]string{
		"deliveries get att_01h455vb4pex5vsknk084sn02q": `SUBSCRIPTION is "att_01h455vb4pex5vsknk084sn02q", but must be the id of a subscription (sub_…), not the id of`,

		// Flags of other programs.
		"serve --listen 9000":                                        `"9000" is not host:port; write an address such as 127.0.0.1:8080`,
		"serve --storage-path x.db":                                  "did you mean --storage.path",
		"serve --webhooks.timeout 5":                                 `"5" has no unit; write "5s" for seconds, or another unit: ms, m, h, d`,
		"serve start":                                                `"start" is one argument too many; write: keyhook serve (see`,
		"subscriptions create --url x --header A:b":                  `did you mean --headers-file file (file with own request headers, one "Name: value" on a line`,
		"subscriptions create --url x -H A:b":                        "did you mean --headers-file",
		"subscriptions create --url x --secret whsec_x":              "did you mean --secret-file",
		"subscriptions create --url x --events a.b":                  "did you mean --event-types",
		"subscriptions create --url x --rate-limit 5":                "did you mean --rate-limit-per-second",
		"plans update growth --rate-limit 5":                         "did you mean --api-rate-limit-per-minute",
		"subscriptions create x":                                     "write: keyhook subscriptions create --url …",
		"subscriptions create --url a --url b":                       `--url is "b", but the flag is there already; give it once`,
		"keys list --org acme":                                       "did you mean --organization",
		"keys list --output json":                                    "did you mean --json",
		"keys list --page 2":                                         "did you mean --cursor",
		"keys create --name x --scopes a:b":                          "did you mean --scope permissions",
		"keys create --name x --permissions a:b":                     "did you mean --scope permissions",
		"keys create x --scope a:b":                                  "write: keyhook keys create --name … --scope …",
		"organizations create --name Acme":                           "--plan is missing; write: keyhook organizations create --name … --plan …",
		"organizations add-member acme --user ada --role owner":      "write: keyhook organizations add-member ORGANIZATION USER --role …",
		"users create --email a@example.com --role owner":            "a role belongs to a membership; run \"keyhook organizations add-member",
		"events publish --type a.b":                                  "write: keyhook events publish TYPE [JSON|-]",
		"events publish a.b --data {}":                               "write: keyhook events publish TYPE [JSON|-]",
		"listen --url http://127.0.0.1:3000":                         "did you mean --forward URL",
		"subscriptions create --url x --id a":                        `did you mean --external-id text (id in your own product`,
		"subscriptions create --url x --name a":                      "did you mean --external-id",
		"subscriptions update " + sub + " --status healthy":          `run "keyhook subscriptions pause", "keyhook subscriptions reactivate" or`,
		"subscriptions replay " + sub + " --event evt_1":             `to send one event again, run "keyhook deliveries redeliver SUBSCRIPTION ATTEMPT"`,
		"subscriptions list --active=false":                          "did you mean --paused",
		"subscriptions list --event-type a.b":                        "there is no flag --event-type; the flags are --all, --cursor, --limit, --paused, --pending, --search, --status (see",
		"deliveries list " + sub + " --status failed":                "did you mean --outcome succeeded|failed",
		"keys create --name x --scope a:b --expires 30d":             "did you mean --expires-at or --expires-in?",
		"keys rotate " + key + " --grace-period 1h":                  "did you mean --grace duration",
		"plans create --name x --max-keys 3":                         "did you mean --max-api-keys n",
		"users update ada --role member":                             `a role belongs to a membership; run "keyhook organizations add-member`,
		"serve --tls":                                                "did you mean --server.tls_cert_file or --server.tls_key_file?",
		"apply customers.yaml":                                       `"customers.yaml" is one argument too many; write: keyhook apply --file … (see`,
		"apply":                                                      "--file is missing; write: keyhook apply --file … (see",
		"backup --output x":                                          "write: keyhook backup [FILE]",
		"queue discard":                                              "there is no terminal to ask at; give --yes (see",
		"subscriptions secret " + sub:                                `for a new one, run "keyhook subscriptions rotate-secret SUBSCRIPTION"`,
		"keys verify backend-1":                                      "must be the API key itself, svc_…, not an id",
		"doctor --url x":                                             "there is no flag --url; write: keyhook doctor [URL]",
		"--json keys list":                                           "--json stands before the command; write it at the end: keyhook keys list … --json",
		"webhook create --url x":                                     `unknown command "webhook"; did you mean subscriptions?`,
		"keys new --name x":                                          `unknown command "new"; did you mean create?`,
		"users update usr_01h455vb4pex5vsknk084sn02q --is-active no": `"no" stands alone after a flag that is true or false; write --is-active=false`,
		"subscriptions update " + sub + " --ordered true":            "write --ordered=true",
		"plans update growth --webhooks false":                       "write --webhooks=false",
		// Commands of other programs.
		"token list": `to list the access tokens of a user, run "keyhook users tokens USER"`, "token revoke x": `run "keyhook users revoke-token USER TOKEN"`,
		"orgs list": "did you mean organizations?", "webhooks list": "did you mean subscriptions?", "keys revoke " + key: "did you mean delete?",
		"keys rm " + key: "did you mean delete?", "keys show " + key: "did you mean get?", "keys test x": `unknown command "test"; did you mean verify? (see`,
		"keys disable " + key: `an API key cannot be paused; to end it for good, run "keyhook keys delete ID"`, "events send a.b": "did you mean publish?", "send a.b": `run "keyhook events publish TYPE`,
		"subscriptions remove " + sub: `"remove"; did you mean delete? (see`, "subscriptions disable " + sub: "did you mean pause?",
		"subscriptions resume " + sub: "did you mean reactivate?", "subscriptions logs " + sub: `run "keyhook deliveries list SUBSCRIPTION"`,
		"users deactivate ada": `run "keyhook users update USER --is-active=false"`, "organizations members add x": "write: keyhook organizations members ORGANIZATION",
		"queue pause": "did you mean hold?", "start": "did you mean serve?", "status": "did you mean doctor?", "migrate": `"keyhook serve" upgrades its database`,
		"login": "set KEYHOOK_URL and KEYHOOK_TOKEN", "config set a b": `"keyhook config init" creates a file`, "config validate": "did you mean show?",
		"queue flush": `unknown command "flush"; the commands are discard, hold, release, show`, "plans set growth": `"set"; did you mean update? (see`,
		// Values.
		"events list --since 2026-11-23": "must have the form of 2026-11-23T00:00:00Z", "events list --since yesterday": "a duration before now such as 24h or 7d",
		"keys create --name x --scope a:b --expires-at 2027-01-01": "must have the form of 2027-01-01T00:00:00Z",
		"keys verify " + key: "must be the API key itself, svc_…, not an id", "keys verify kat_" + strings.Repeat("0", 36): "must be an API key, svc_…, not an access token",
		"permissions create --key Orders:Read": "words of lower-case letters, digits and _ with colons between them",
		"events publish a.b {'a':1}":           "JSON must be valid JSON: it is wrong in line 1, column 2 (byte 1)",
		"events publish a.b data.json":         "for a file, write - and then <FILE", "events publish a.b {}x": "text follows the first value; write only one value",
		"keys list --url http://x/api/v1/ --token t": `the URL of a server must end before /api/v1; write "http://x"`,
		"keys list --url localhost:1 --token t":      "give a URL with http:// or https://",
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
