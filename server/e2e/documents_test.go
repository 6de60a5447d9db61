package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notRun lists the commands of documents that need more than a server, by page and first line, and says why.
var notRun = map[string]string{
	"README.md: apt install ./keyhook_0.1.0_amd64.deb && systemctl enable --now keyhook":                                "needs a release; .ci/release installs its package",
	"install.md: apt install ./keyhook_0.1.0_amd64.deb":                                                                 "as above",
	"install.md: sha256sum --check --ignore-missing SHA256SUMS":                                                         "as above",
	"install.md: export KEYHOOK_IMAGE=registry.keyhook.example/keyhook:0.1.0":                                           "needs Docker",
	"install.md: curl -fsSL https://keyhook.example/releases/download/v0.1.0/keyhook_0.1.0_linux_amd64.tar.gz | tar xz": "needs a release",
	"install.md: git clone https://keyhook.example keyhook && cd keyhook && git checkout v0.1.0":                        "as above",
	"README.md: go build . && ./keyhook serve --dev":                                                                    "the server runs already",
	"README.md: go test ./...":                                                                     "runs this test",
	"README.md: ./keyhook bench":                                                                   "takes a minute; TestBench runs it",
	"operating.md: keyhook doctor https://example.com/hook":                                        "needs the network; the tests of doctor have receivers",
	"operating.md: docker compose -f .github/compose.yaml exec keyhook /keyhook doctor":            "needs Docker",
	"operating.md: docker compose -f .github/compose.yaml stop":                                    "needs Docker",
	"operating.md: useradd --system --home-dir /var/lib/keyhook --shell /usr/sbin/nologin keyhook": "changes this machine; TestServiceUnit checks the unit",
	"operating.md: journalctl --unit keyhook --follow":                                             "needs the service",
	"operating.md: journalctl --unit keyhook --grep REQUEST_ID":                                    "needs the service",
	"operating.md: litestream replicate keyhook.db file:///var/backups/keyhook":                    "writes outside of the directory; TestLitestream runs it",
	"operating.md: litestream restore -o replica.db file:///var/backups/keyhook":                   "as above",
	"operating.md: curl -s $URL/api/v1/whoami/ -H \"Authorization: Bearer $JWT\"":                  "needs an identity provider; server/oidc has one",
	"clients.md: go mod init shop && mkdir keyhook":                                                "TestGeneratedClients runs it",
	"clients.md: npm init -y && npm pkg set type=module":                                           "as above",
	"clients.md: go run .": "as above",
	"clients.md: npx tsc --strict --target es2022 --module nodenext --skipLibCheck main.ts && node main.js":                                    "as above",
	"monitoring.md: promtool check rules keyhook-alerts.yaml":                                                                                  "server/monitoring_test.go runs it",
	`capacity.md: taskset -c 0 strace -f -qq -o strace.log --seccomp-bpf -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_exit=5000 \`: "takes a minute, and needs leave to trace",
	"capacity.md: keyhook bench": "takes a minute; TestBench runs it",
	"capacity.md: export KEYHOOK_BOOTSTRAP_TOKEN=operator-token-for-capacity": "publishes 100,000 events to a server of its own",
}

// failures lists the commands of which the documents say that they fail, with their exit codes.
var failures = map[string]int{
	`keyhook keys explain "$KEY" GET /api/v1/events/`: 1,
	`echo "$BODY" | keyhook verify --secret "$SECRET" --body - -H "X-Service-Timestamp: $STAMP" -H "X-Service-Signature: $SIGNATURE"`: 1,
	"keyhook subscriptions test $SUB": 1,
	"keyhook alert test":              2,
}

// harmless lists the files that the commands make and git shows. Every other file may have a secret, so git must ignore it.
var harmless = []string{"backend.go", "backend.mjs", "backend.py", "cursor.txt", "customers.yaml", "generate.yaml", "keyhook-alerts.yaml", "main.go", "main.ts", "outbox.py", "overlay.yaml"}

// block is a piece of code in a document.
type block struct {
	page, heading, language, text string
	line                          int
	file                          string // the name under which the reader saves it; empty if nothing says so
	shown                         string // the output that the document shows
}

var (
	fence   = regexp.MustCompile("(?ms)^( *)```(\\w*)\n(.*?)^ *```$")
	savedAs = regexp.MustCompile("Save (?:it|this file) as `([^`]+)`")
	pageOf  = regexp.MustCompile(`\]\(server/docs/(\w+\.md)`)
)

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// name is the key of notRun.
func (b block) name() string {
	first, _, _ := strings.Cut(b.text, "\n")
	return b.page + ": " + first
}

// check compares the output of the commands with the output that the document shows. There, … stands for any text.
func (b block) check(t *testing.T, out string) {
	t.Helper()
	mayFail := slices.ContainsFunc(strings.Split(b.text, "\n"), func(line string) bool { return failures[strings.TrimSpace(line)] != 0 })
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "keyhook: ") && !mayFail || strings.Contains(line, `"type":"about:blank"`) {
			t.Errorf("%s prints an error: %s", b, line)
		}
	}
	var lines []string
	for line := range strings.Lines(b.shown) {
		lines = append(lines, strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, "\n")), "…", ".*"))
	}
	if len(lines) > 0 && !regexp.MustCompile(`(?m)^`+strings.Join(lines, `$(?s:.*)^`)+`$`).MatchString(out) {
		t.Errorf("%s shows\n%s\nand prints\n%s", b, b.shown, out)
	}
}

// blocks returns the code of a page, in order.
func blocks(t *testing.T, page string) (found []block) {
	t.Helper()
	text := source(t, page)
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		indent := text[m[2]:m[3]]
		b := block{page: page, language: text[m[4]:m[5]], line: 1 + strings.Count(text[:m[0]], "\n")}
		b.text = strings.ReplaceAll("\n"+text[m[6]:m[7]], "\n"+indent, "\n")[1:]
		before := strings.TrimRight(text[:m[0]], "\n")
		_, heading, _ := strings.Cut(before[max(0, strings.LastIndex(before, "\n## ")):], "\n## ")
		b.heading, _, _ = strings.Cut(heading, "\n")
		if named := savedAs.FindStringSubmatch(before[strings.LastIndex(before, "\n\n")+1:]); named != nil {
			b.file = named[1]
		}
		if b.language == "text" && len(found) > 0 {
			found[len(found)-1].shown = b.text
			continue
		}
		found = append(found, b)
	}
	return found
}

// source returns the text of a page.
func source(t *testing.T, page string) string {
	t.Helper()
	path := filepath.Join("../docs", page)
	if page == "README.md" {
		path = "../../README.md"
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// flags returns the flags of a server for one page: with --dev only if the page says so.
func flags(t *testing.T, page string) []string {
	t.Helper()
	return []string{fmt.Sprintf("--dev=%t", strings.Contains(source(t, page), "serve --dev"))}
}

// pages returns the names of all documents with commands for users, in the order of the table in README. README is the first.
func pages(t *testing.T) []string {
	t.Helper()
	_, table, _ := strings.Cut(source(t, "README.md"), "\n## Where to read more\n")
	table, _, _ = strings.Cut(table, "\n## ")
	order := []string{"README.md"}
	for _, m := range pageOf.FindAllStringSubmatch(table, -1) {
		if !slices.Contains(order, m[1]) {
			order = append(order, m[1])
		}
	}
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(order, filepath.Base(file)) {
			t.Errorf("the table in README does not name %s", file)
		}
	}
	return order
}

// TestDocumentsRun pastes the commands of the documents, page after page, into the shell of one reader with one server. Another
// reader begins with each page, on a server with --dev only if the page asks for it.
func TestDocumentsRun(t *testing.T) {
	t.Parallel()
	order := pages(t)
	documents, unused := map[string][]block{}, map[string]bool{}
	for name := range notRun {
		unused[name] = true
	}
	for command := range failures {
		unused[command] = true
	}
	for _, page := range order {
		for _, b := range blocks(t, page) {
			delete(unused, b.name())
			for line := range strings.Lines(b.text) {
				delete(unused, strings.TrimSpace(line))
			}
			if notRun[b.name()] == "" {
				documents[page] = append(documents[page], b)
			}
		}
	}
	for entry := range unused {
		t.Errorf("no document has %q", entry)
	}
	read := func(t *testing.T, r *reader, page string) {
		for _, b := range documents[page] {
			r.follow(t, b)
		}
		r.closeTerminal(t)
	}
	t.Run("one after the other, on one server", func(t *testing.T) {
		t.Parallel()
		r := newReader(t)
		for _, page := range order {
			read(t, r, page)
		}
		r.showsNoSecrets(t)
	})
	for _, page := range order {
		if slices.ContainsFunc(documents[page], func(b block) bool { return b.language == "sh" }) {
			t.Run("only "+page+", on a new server", func(t *testing.T) {
				t.Parallel()
				read(t, newReader(t, flags(t, page)...), page)
			})
		}
	}
}

// showsNoSecrets checks that git ignores the files that the commands have made.
func (r *reader) showsNoSecrets(t *testing.T) {
	t.Helper()
	ignored, err := os.ReadFile("../../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, ".gitignore"), ignored, 0o600); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), tool(t, "git"), args...)
		cmd.Dir = r.dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.scratch, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "--quiet")
	shown := strings.Fields(git("ls-files", "--others", "--exclude-standard"))
	if want := append([]string{".gitignore"}, harmless...); !slices.Equal(shown, want) {
		t.Errorf("git shows %v, want %v", shown, want)
	}
}
