package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// snippets returns the examples in one language from the document about proxies, so that the tests run what readers copy.
func snippets(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("docs/gate.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	_, section, _ := strings.Cut(string(text), "\n## Let your proxy ask\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range strings.Split(section, "\n```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(block, "\n```")
		found = append(found, code+"\n")
	}
	if len(found) == 0 {
		t.Fatalf("the document has no example in %s", language)
	}
	return found
}

// program finds a program of another package. If it is missing, the test is skipped, or fails with KEYHOOK_TEST_REQUIRE.
func program(t *testing.T, name, pkg string) string {
	t.Helper()
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
		t.Fatalf("there is no %s: install the package %s", name, pkg)
	}
	t.Skipf("there is no %s: install the package %s", name, pkg)
	return ""
}

// replace replaces texts that must be present.
func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the example has no %s", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// listener is a running proxy between a client and an API, set up as the document says.
type listener struct {
	url string
	api *upstream
}

// upstream is the API behind the proxy. It records its requests.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
	body []string
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.seen, u.body = append(u.seen, r), append(u.body, string(body))
		w.Header().Set("X-From", "the API")
		fmt.Fprintln(w, "orders")
	}))
	t.Cleanup(u.Close)
	return u
}

// take returns the requests since the last call.
func (u *upstream) take() (requests []*http.Request, bodies []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	requests, bodies = u.seen, u.body
	u.seen, u.body = nil, nil
	return requests, bodies
}

// run starts a proxy and waits until it listens. The proxy stops when the test ends.
func (l *listener) run(t *testing.T, address string, cmd *exec.Cmd) {
	t.Helper()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"), "HOME="+cmd.Dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), output.String())
		}
	})
	l.url = "http://" + address
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			if conn.LocalAddr().String() != address { // Linux may connect a port that nobody listens on to itself
				return
			}
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("it ended: %v\n%s", err, output.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not listen: %v", err)
		}
	}
}

// freeAddress returns a loopback address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startNginx(t *testing.T, keyhook string) *listener {
	t.Helper()
	l, dir, address := &listener{api: newUpstream(t)}, t.TempDir(), freeAddress(t)
	path := program(t, "nginx", "nginx-light")
	settings := replace(t, snippets(t, "nginx")[0],
		"listen 80;", "listen "+address+";", "127.0.0.1:8080", keyhook, "127.0.0.1:3000", l.api.Listener.Addr().String())
	const around = `daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
%[2]s}
`
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), fmt.Appendf(nil, around, dir, settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-p", dir, "-c", "nginx.conf", "-e", "stderr")
	cmd.Dir = dir
	l.run(t, address, cmd)
	return l
}

func startCaddy(t *testing.T, keyhook string) *listener {
	t.Helper()
	l, dir, address := &listener{api: newUpstream(t)}, t.TempDir(), freeAddress(t)
	path := program(t, "caddy", "caddy")
	settings := "{\n\tadmin off\n}\n" + replace(t, snippets(t, "caddyfile")[0],
		"api.example.com", "http://"+address, "127.0.0.1:8080", keyhook, "127.0.0.1:3000", l.api.Listener.Addr().String())
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	cmd.Dir = dir
	l.run(t, address, cmd)
	return l
}

func TestProxies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		proxy func(t *testing.T, keyhook string) *listener
		abilities
	}{
		"nginx":                   {startNginx, abilities{down: 503, underscores: true}},
		"Caddy":                   {startCaddy, abilities{down: 502, underscores: true, others: true, bodies: true, upgrades: true}},
		"the protocol of Traefik": {startTraefik, abilities{down: 500, bodies: true}},
		"the protocol of Envoy":   {startEnvoy, abilities{down: 503, underscores: true, bodies: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testProxy(t, tt.proxy, tt.abilities)
		})
	}
}

// abilities are what a proxy does with the settings of the document.
type abilities struct {
	down        int  // the status where Keyhook is down
	underscores bool // it removes headers such as X_Service_Key_Id
	others      bool // it removes all other headers that begin with X-Service
	bodies      bool // it passes on the body of a refusal
	upgrades    bool // it switches to other protocols
}

// proxied is an API behind a proxy that asks Keyhook.
type proxied struct {
	*listener
	key      access.Credential // a valid one
	identity map[string]string // of the key, in the headers
	abilities
}

// ask makes a request to the proxy. It returns the response, its body, and the requests with their bodies that the API got.
func (p *proxied) ask(t *testing.T, line, as, body string, header ...string) (*http.Response, string, []*http.Request, []string) {
	t.Helper()
	method, path, _ := strings.Cut(line, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
	}
	if as != "" {
		r.Header.Set("Authorization", as)
	}
	response, err := servertest.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text := servertest.Read(t, response)
	requests, bodies := p.api.take()
	return response, text, requests, bodies
}

// passes expects the proxy to pass on a request with the valid key, with the identity of the key and without the key itself.
func (p *proxied) passes(t *testing.T, line, body string, header ...string) {
	t.Helper()
	response, text, requests, bodies := p.ask(t, line, servertest.APIKey(p.key), body, header...)
	if response.StatusCode != 200 || response.Header.Get("X-From") != "the API" || text != "orders\n" && !strings.HasPrefix(line, "HEAD") || len(requests) != 1 {
		t.Fatalf("%s: %d %v %q, %d requests came through", line, response.StatusCode, response.Header, text, len(requests))
	}
	r := requests[0]
	if r.Method+" "+r.RequestURI != line || bodies[0] != body {
		t.Errorf("%s %s with %d bytes came through, want %s with %d", r.Method, r.RequestURI, len(bodies[0]), line, len(body))
	}
	got := identity(servertest.Response{Response: &http.Response{Header: r.Header}})
	if external := "Organization-External-Id"; got[external] == "absent" { // nginx passes on no empty header
		got[external] = ""
	}
	if diff := cmp.Diff(p.identity, got); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if dump := fmt.Sprint(r.Header); r.Header.Get("Authorization") != "" || strings.Contains(dump, p.key.Reveal()) || strings.Contains(dump, "spoofed") {
		t.Errorf("came through with %v", r.Header)
	}
}

// refuses expects the proxy to refuse a credential.
func (p *proxied) refuses(t *testing.T, as string, status int, code string) *http.Response {
	t.Helper()
	response, text, requests, _ := p.ask(t, "POST /orders/?permission=events:read", as, "a body")
	if response.StatusCode != status || len(requests) != 0 {
		t.Errorf("status %d, want %d; %d requests came through: %s", response.StatusCode, status, len(requests), text)
	}
	if !strings.Contains(text, `"code":"`+code+`"`) || !strings.Contains(text, fmt.Sprintf(`"status":%d`, status)) || strings.Contains(text, `"detail"`) != p.bodies { // nginx shows only the code
		t.Errorf("no problem with the code %s: %s", code, text)
	}
	if got := response.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	challenges := strings.Count(strings.Join(response.Header.Values("WWW-Authenticate"), ","), `ApiKey realm="keyhook"`)
	if challenges > 1 || (challenges == 1) != (status == 401) {
		t.Errorf("challenges %q", response.Header.Values("WWW-Authenticate"))
	}
	return response
}

func testProxy(t *testing.T, proxy func(*testing.T, string) *listener, can abilities) {
	f := start(t)
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read"}`).Want(t, 201, "")
	f.Plan(t, "two", true, true, "2")
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	customer := "PATCH " + servertest.Orgs + owner.Home.ID + "/"
	f.Do(t, customer, servertest.Operator, `{"external_id":"acme-17"}`).Want(t, 200, "")
	key, raw := storagetest.Key(t, f.Store, owner, "orders:read", access.EventsRead)
	revoked, asRevoked := storagetest.Key(t, f.Store, owner, "orders:read")
	_, asNarrow := storagetest.Key(t, f.Store, owner, access.EventsRead)
	small, _ := storagetest.Organization(t, f.Store, "small", "two", access.RoleOwner)
	_, asSmall := storagetest.Key(t, f.Store, small, "orders:read")
	if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Organization.RowID, revoked.ID); err != nil {
		t.Fatal(err)
	}
	keyhook, _ := strings.CutPrefix(f.URL, "http://")
	l := proxy(t, keyhook)
	identity := map[string]string{
		"Key-Id": key.ID, "User-Id": owner.User.ID, "Organization-Id": owner.Organization.ID, "Organization-External-Id": "acme-17",
		"Scope": "events:read orders:read", "Plan": "growth",
	}
	p := &proxied{l, raw, identity, can}

	t.Run("passes on requests with a valid key, with its identity and without the key", func(t *testing.T) {
		for _, line := range []string{"GET /orders/7?page=2&x=%20y", "HEAD /", "DELETE /orders/7", "PROPFIND /orders", "OPTIONS /orders"} {
			p.passes(t, line, "")
		}
	})
	t.Run("passes on bodies", func(t *testing.T) {
		p.passes(t, "POST /orders/", `{"order":1}`, "Content-Type", "application/json")
		p.passes(t, "PUT /orders/7", strings.Repeat("0123456789", 50_000))
	})
	t.Run("replaces identity headers that a client sends", func(t *testing.T) {
		p.passes(t, "GET /orders/?key=x&permission=platform:write", "",
			"X-Service-Key-Id", "spoofed", "x-service-user-id", "spoofed", "X-Service-Organization-Id", "spoofed", "X-Service-Organization-Id", "spoofed too",
			"X-SERVICE-SCOPE", "spoofed", "X-Service-Plan", "spoofed", "X-Organization-Id", "org_x")
		if can.underscores { // CGI, WSGI and Rack treat all of these names as one
			p.passes(t, "GET /orders/", "", "X_Service_Key_Id", "spoofed", "X-Service_Key_Id", "spoofed", "X_Service-User-Id", "spoofed", "x_service_plan", "spoofed")
		}
		if can.others { // nginx overwrites only the headers that it names
			p.passes(t, "GET /orders/", "", "X-Service-Role", "spoofed")
		}
	})
	t.Run("replaces the external id that a client sends where there is none", func(t *testing.T) {
		spoofed := []string{"X-Service-Organization-External-Id", "other-customer"}
		p.passes(t, "GET /orders/", "", spoofed...)
		f.Do(t, customer, servertest.Operator, `{"external_id":null}`).Want(t, 200, "")
		p.identity["Organization-External-Id"] = ""
		p.passes(t, "GET /orders/", "", spoofed...)
		f.Do(t, customer, servertest.Operator, `{"external_id":"acme-17"}`).Want(t, 200, "")
		p.identity["Organization-External-Id"] = "acme-17"
	})
	t.Run("does not let a client remove the identity headers", func(t *testing.T) {
		p.passes(t, "GET /orders/", "", "Connection", "X-Service-Key-Id, X-Service-Organization-Id, X-Service-Scope")
		p.passes(t, "GET /orders/", "", "Connection", "keep-alive", "Connection", "x-service-key-id")
	})
	t.Run("switches to another protocol if the proxy supports that", func(t *testing.T) {
		_, _, requests, _ := p.ask(t, "GET /orders/", servertest.APIKey(raw), "", "Connection", "Upgrade", "Upgrade", "orders")
		if len(requests) != 1 || (requests[0].Header.Get("Upgrade") == "orders") != can.upgrades || requests[0].Header.Get("X-Service-Key-Id") != key.ID {
			t.Errorf("%d requests came through: %v", len(requests), requests)
		}
	})
	t.Run("refuses requests without a credential, or with another kind", func(t *testing.T) {
		p.refuses(t, "", 401, "missing_credential")
		p.refuses(t, servertest.Bearer(token), 401, "wrong_scheme")
		p.refuses(t, "ApiKey svc_x", 401, "invalid_key")
		p.refuses(t, servertest.APIKey(raw)+", "+servertest.APIKey(asSmall), 400, "multiple_credentials")
	})
	t.Run("refuses a revoked key", func(t *testing.T) { p.refuses(t, servertest.APIKey(asRevoked), 401, "key_revoked") })
	t.Run("refuses a key without the permission", func(t *testing.T) { p.refuses(t, servertest.APIKey(asNarrow), 403, "permission_denied") })
	t.Run("refuses requests beyond the limit, with Retry-After", func(t *testing.T) {
		for range 2 {
			if response, _, requests, _ := p.ask(t, "GET /", servertest.APIKey(asSmall), ""); response.StatusCode != 200 || len(requests) != 1 {
				t.Errorf("status %d", response.StatusCode)
			}
		}
		if retry := p.refuses(t, servertest.APIKey(asSmall), 429, "rate_limited").Header.Get("Retry-After"); retry == "" || retry == "0" || len(retry) > 2 {
			t.Errorf("Retry-After %q", retry)
		}
	})
	t.Run("refuses all requests while Keyhook is down", func(t *testing.T) {
		f.Stop()
		for range 3 {
			response, text, requests, _ := p.ask(t, "POST /orders/", servertest.APIKey(raw), "a body")
			if response.StatusCode != can.down || len(requests) != 0 {
				t.Errorf("status %d, %d requests came through: %s", response.StatusCode, len(requests), text)
			}
		}
	})
}

// TestExamplesOfOtherProxies reads the examples of proxies that do not run here. Their paths must exist, and they must copy every
func TestExamplesOfOtherProxies(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read"}`).Want(t, 201, "")
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, "orders:read")
	var named []string
	for name := range f.Do(t, "GET "+gate+"forward/", servertest.APIKey(key), "").Header {
		if strings.HasPrefix(name, "X-Service-") {
			named = append(named, name)
		}
	}
	if len(named) != 6 {
		t.Errorf("a response has %v", named)
	}
	examples := snippets(t, "yaml")
	if len(examples) != 2 {
		t.Fatalf("%d examples in YAML", len(examples))
	}
	for i, tt := range []struct{ name, address, after string }{
		{"Traefik", "address: http://127.0.0.1:8080", ""}, {"Envoy", "path_prefix: ", "/v1/orders/7?x=1"},
	} {
		t.Run("has an existing path and every header for "+tt.name, func(t *testing.T) {
			var parsed map[string]any
			if err := yaml.Unmarshal([]byte(examples[i]), &parsed); err != nil {
				t.Fatal(err)
			}
			_, path, found := strings.Cut(examples[i], tt.address)
			path, _, _ = strings.Cut(path, "\n")
			if !found || !strings.HasPrefix(path, gate) {
				t.Fatalf("it asks %q", path)
			}
			f.Do(t, "PATCH "+path+tt.after, servertest.APIKey(key), "").Want(t, 200, "")
			for _, name := range named {
				if !strings.Contains(strings.ToLower(examples[i]), "- "+strings.ToLower(name)) && !strings.Contains(examples[i], "- exact: "+strings.ToLower(name)) {
					t.Errorf("it has no %s", name)
				}
			}
			if strings.Count(strings.ToLower(examples[i]), "authorization") == 0 {
				t.Error("it passes on the credential")
			}
		})
	}
}
