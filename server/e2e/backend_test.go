package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// backendDocument returns the first block in the language after a heading of the document for back ends.
func backendDocument(t *testing.T, heading, language string) string {
	t.Helper()
	for _, b := range blocks(t, "backend.md") {
		if b.heading == heading && b.language == language {
			return b.text
		}
	}
	t.Fatalf("the document has no %s under %q", language, heading)
	return ""
}

// TestBackendPrograms runs the programs of the document for back ends against a server each: they sign a customer up, check
// its key, publish an event, and verify its delivery with the official libraries.
func TestBackendPrograms(t *testing.T) {
	t.Parallel()
	for _, program := range []struct {
		heading, language, file string
		prepare                 func(t *testing.T, dir string) *exec.Cmd
	}{
		{"Go", "go", "backend.go", goBackend},
		{"Node", "js", "backend.mjs", nodeBackend},
		{"Python", "python", "backend.py", pythonBackend},
	} {
		t.Run("in "+program.heading, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, program.file), []byte(backendDocument(t, program.heading, program.language)), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := program.prepare(t, dir)
			p := start(t, t.TempDir())
			for run, texts := range [][]string{{"key is valid: ", "received: {", `"type":"order.created"`, "portal: http"}, {"key is valid: "}} {
				receiver := startBackend(t, p, p.url, cmd)
				receiver.await(t, texts...) // the second run repeats its calls, and the event was published before
				receiver.refuses(t, run)
				receiver.stop()
				if run == 0 {
					opensPortal(t, p, receiver.said())
				}
			}
			var list struct{ Data []struct{ ID string } }
			p.must(t, "GET", "/api/v1/organizations/", nil, &list)
			if len(list.Data) != 3 {
				t.Errorf("%d organizations, want the first one, the back end's and one customer", len(list.Data))
			}
		})
	}
}

// TestOutbox runs the outbox of the document on SQLite: while Keyhook cannot be reached, killed, and with a response that is lost after
// Keyhook has stored the event. Each order is one event in the end, in order. An event that Keyhook refuses does not stop the others, and
// neither does a customer that has left.
func TestOutbox(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "outbox.py"), []byte(backendDocument(t, "Outbox", "python")), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir())
	p.must(t, "PUT", "/api/v1/organizations/customer-42/", object{"name": "Acme", "plan": "growth"}, nil)
	away := httptest.NewServer(nil)
	away.Close()
	var lost atomic.Int32
	target, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(*http.Response) error { // the event is stored
		if lost.Add(1) <= 2 {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	losing := httptest.NewServer(proxy)
	t.Cleanup(losing.Close)

	run := func(url, orders string, texts ...string) {
		cmd := pythonBackend(t, dir)
		cmd.Args = append([]string{cmd.Args[0], "outbox.py"}, strings.Fields(orders)...)
		relay := startBackend(t, p, url, cmd)
		relay.await(t, texts...)
		relay.stop() // kills it
	}
	run(away.URL, "1001 1002", "waiting: ")
	run(losing.URL, "", "waiting: ", `sent: customer-42 order.created {"number": 1002}`)
	run(p.url, "1003", `sent: customer-42 order.created {"number": 1003}`)
	database, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	if _, err := database.Exec(`INSERT INTO outbox (customer, type, data, key)
		VALUES ('customer-42', 'Not a type', '{}', 'x'), ('customer-41', 'order.created', '{}', 'y')`); err != nil {
		t.Fatal(err)
	}
	run(p.url, "1004", "refused: customer-42 not a type", "waiting: customer-41 http error 404", `sent: customer-42 order.created {"number": 1004}`)

	var list struct{ Data []struct{ ID string } }
	p.must(t, "GET", "/api/v1/events/?type=order.created&organization=all", nil, &list)
	var numbers []int
	for _, e := range slices.Backward(list.Data) {
		var event struct {
			Data struct{ Number int }
		}
		acting := p.caller
		acting.organization = "customer-42"
		acting.must(t, "GET", "/api/v1/events/"+e.ID+"/", nil, &event)
		numbers = append(numbers, event.Data.Number)
	}
	if !slices.Equal(numbers, []int{1001, 1002, 1003, 1004}) || lost.Load() < 3 {
		t.Errorf("events of the orders %v, %d requests through the proxy", numbers, lost.Load())
	}
}

// opensPortal signs in with the link that a program has printed, and with the link of the command in the document.
func opensPortal(t *testing.T, p *process, said string) {
	t.Helper()
	_, link, _ := strings.Cut(said, "portal: ")
	link, _, _ = strings.Cut(link, "\n")
	script := backendDocument(t, "A portal for your customers", "sh")
	cmd := keyhook(t, p.dir)
	cmd.Env = append(cmd.Env, "URL="+p.url, "BACKEND_TOKEN="+backendToken(t, p))
	cmd.Path, cmd.Args = tool(t, "sh"), []string{"sh", "-ec", fmt.Sprintf("keyhook() { %q \"$@\" >&2; }\n%s", program(), script)}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the command of the document: %v: %s", err, out)
	}
	var printed struct{ URL string }
	if err := json.Unmarshal(out, &printed); err != nil {
		t.Fatalf("the command of the document prints %s: %v", out, err)
	}
	for _, url := range []string{link, printed.URL} {
		secret, _ := strings.CutPrefix(url, p.url+"/console/#link=")
		var session struct {
			Kind   string
			Portal struct {
				Role      string
				ReturnURL string `json:"return_url"`
			}
			Permissions []string
		}
		p.must(t, "POST", "/api/v1/session/", object{"link": secret}, &session)
		if session.Kind != "portal" || session.Portal.Role != "customer" || session.Portal.ReturnURL != "https://shop.example/settings" || len(session.Permissions) < 6 {
			t.Errorf("the session of %q is %+v", url, session)
		}
	}
}

// backend is a running program.
type backend struct {
	address string
	stop    func()

	mu      sync.Mutex
	printed strings.Builder
}

// Write implements io.Writer.
func (b *backend) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.printed.Write(text)
}

func (b *backend) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.printed.String()
}

// await waits until the program has printed all texts.
func (b *backend) await(t *testing.T, texts ...string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		said, missing := b.said(), ""
		for _, text := range texts {
			if !strings.Contains(strings.ToLower(said), text) { // Python prints True
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q after %s:\n%s", missing, patience, said)
		}
	}
}

// refuses checks that the program refuses a delivery without a signature.
func (b *backend) refuses(t *testing.T, run int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		resp, err := http.Post("http://"+b.address, "application/json", strings.NewReader("{}"))
		if err == nil {
			if resp.Body.Close(); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("run %d: a forged delivery gets %s", run, resp.Status)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("run %d: %v\n%s", run, err, b.said())
		}
	}
}

// startBackend follows the document: it sets up a user for the back end once, and starts the program with the URL of the server.
func startBackend(t *testing.T, p *process, url string, program *exec.Cmd) *backend {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{address: listener.Addr().String()}
	listener.Close()
	_, port, _ := net.SplitHostPort(b.address)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program.Path, program.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = program.Dir, b, b
	cmd.Env = append(program.Environ(), "PORT="+port, "URL="+url, "BACKEND_TOKEN="+backendToken(t, p))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.stop = sync.OnceFunc(func() { cancel(); _ = cmd.Wait() })
	t.Cleanup(b.stop)
	return b
}

// backendToken runs the set-up of the document once, and returns the token.
func backendToken(t *testing.T, p *process) string {
	t.Helper()
	file := filepath.Join(p.dir, "backend.token")
	if token, err := os.ReadFile(file); err == nil {
		return string(token)
	}
	script := backendDocument(t, "Set up once", "sh") + "printf %s \"$BACKEND_TOKEN\" > " + file
	cmd := keyhook(t, p.dir)
	cmd.Path, cmd.Args = tool(t, "sh"), []string{"sh", "-ec", fmt.Sprintf("keyhook() { %q \"$@\"; }\n%s", program(), script)}
	if code, said := finish(t, cmd); code != 0 {
		t.Fatalf("the set-up fails with exit code %d: %s", code, said)
	}
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(token)
}

// library is the Go module with the official libraries of Standard Webhooks. It contains the library for Python too.
const library = "github.com/standard-webhooks/standard-webhooks/libraries"

// libraryDirectory returns where the module is. go.mod names it, because tests of the signatures import it.
func libraryDirectory(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", library).Output()
	if err != nil {
		t.Fatalf("find the module %s: %v", library, err)
	}
	return strings.TrimSpace(string(out))
}

func goBackend(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	module := "module backend\n\nrequire " + library + " v0.0.0\n\nreplace " + library + " => " + libraryDirectory(t) + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "backend", "backend.go") // a killed `go run` would leave the program running
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "backend"))
	cmd.Dir = dir
	return cmd
}

func nodeBackend(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	node := tool(t, "node")
	install(t, dir, "standardwebhooks@1.1.1")
	cmd := exec.CommandContext(t.Context(), node, "backend.mjs")
	cmd.Dir = dir
	return cmd
}

// install installs packages for Node in a directory.
func install(t *testing.T, dir string, packages ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "npm"), append([]string{"install", "--no-audit", "--no-fund", "--silent"}, packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		require(t, fmt.Sprintf("the packages %v from npm (%v: %s)", packages, err, out))
	}
}

func pythonBackend(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "python3"), "backend.py")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(libraryDirectory(t), "python"), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// TestStripeLibrary verifies a delivery with the library of Stripe and the line of the document.
func TestStripeLibrary(t *testing.T) {
	t.Parallel()
	deliveries := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		headers := map[string]string{}
		for name := range r.Header {
			headers[strings.ToLower(name)] = r.Header.Get(name)
		}
		text, _ := json.Marshal(map[string]any{"body": string(body), "headers": headers})
		deliveries <- string(text)
	}))
	t.Cleanup(receiver.Close)
	p := start(t, t.TempDir())
	var sub struct{ Secret string }
	p.must(t, "POST", "/api/v1/webhooks/subscriptions/", object{"url": receiver.URL, "event_types": []string{"order.created"}}, &sub)
	p.publish(t, "order.created")
	delivery := <-deliveries

	dir := t.TempDir()
	install(t, dir, "stripe@23.1.0")
	program := "import Stripe from \"stripe\";\nconst stripe = new Stripe(\"sk_test\");\n" +
		"const { body, headers, secret } = JSON.parse(process.argv[2]);\nconst event = " +
		backendDocument(t, "Receivers that use Stripe's library", "js") + "console.log(event.type);\n"
	if err := os.WriteFile(filepath.Join(dir, "verify.mjs"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[string]bool{sub.Secret: true, sub.Secret + "x": false} {
		cmd := exec.CommandContext(t.Context(), tool(t, "node"), "verify.mjs", strings.TrimSuffix(delivery, "}")+fmt.Sprintf(`,"secret":%q}`, secret))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if accepted := err == nil && string(out) == "order.created\n"; accepted != want {
			t.Errorf("accepted is %t, want %t: %v\n%s", accepted, want, err, out)
		}
	}
}
