package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withoutToken is the setting of a server that mints the token of the first operator and prints it.
const withoutToken = "KEYHOOK_BOOTSTRAP_TOKEN="

func TestFirstToken(t *testing.T) {
	t.Parallel()

	t.Run("comes with a link that signs in to the console once, which counts as its first use", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		linkOf := func(p *process) string {
			_, rest, _ := strings.Cut(p.printed(t), "\nConsole: "+p.url+"/console/#link=")
			link, _, found := strings.Cut(rest, "\n")
			if !found {
				t.Fatalf("no link was printed: %s", p.printed(t))
			}
			return link
		}
		signIn := func(p *process, link string) (status int, kind string) {
			resp, err := http.Post(p.url+"/api/v1/session/", "application/json", strings.NewReader(`{"link":"`+link+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var body struct{ Kind, Code string }
			if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, body.Kind + body.Code
		}
		p := start(t, dir, withoutToken)
		replaced := linkOf(p)
		p.end(syscall.SIGTERM)
		p = start(t, dir, withoutToken)
		link := linkOf(p)
		for _, tt := range []struct {
			link   string
			status int
			says   string
		}{
			{replaced, http.StatusUnauthorized, "invalid_link"}, {link, http.StatusCreated, "sign_in_link"}, {link, http.StatusUnauthorized, "invalid_link"},
		} {
			if status, says := signIn(p, tt.link); status != tt.status || says != tt.says {
				t.Errorf("status %d %s, want %d %s", status, says, tt.status, tt.says)
			}
		}
		if strings.Contains(p.said(), link) {
			t.Errorf("the log shows the link: %s", p.said())
		}
		p.end(syscall.SIGTERM)
		p = start(t, dir, withoutToken)
		p.end(syscall.SIGTERM)
		if printed := p.printed(t); printed != "" {
			t.Errorf("printed after the link was used: %s", printed)
		}
	})

	t.Run("is printed at each start until somebody has made an authenticated request", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		tokenOf := func(p *process) string {
			_, rest, found := strings.Cut(p.printed(t), "kat_")
			if !found {
				t.Fatalf("no token was printed: %s", p.printed(t))
			}
			return "kat_" + rest[:36]
		}
		p := start(t, dir, withoutToken)
		for _, path := range []string{"/healthz", "/metrics"} { // they need no credential here
			if status, text := get(t, p.url+path); status != http.StatusOK {
				t.Fatalf("%s: status %d, %s", path, status, text)
			}
		}
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
		replaced := tokenOf(p)
		again := start(t, dir, withoutToken)
		for token, want := range map[string]int{replaced: http.StatusUnauthorized, tokenOf(again): http.StatusOK} {
			if status, _, _ := again.whoami(t, "Bearer "+token); status != want {
				t.Errorf("a token got %d, want %d", status, want)
			}
		}
		again.end(syscall.SIGTERM)
		third := start(t, dir, withoutToken)
		third.end(syscall.SIGTERM)
		if printed := third.printed(t); printed != "" {
			t.Errorf("printed after somebody had made an authenticated request: %s", printed)
		}
	})

	t.Run("is not printed after a command over the socket, but still after a health check", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		for i, command := range [][]string{{"healthcheck"}, {"api", "GET", "whoami/"}, {"healthcheck"}} {
			p := start(t, dir, withoutToken)
			if code, said := finish(t, keyhook(t, dir, command...)); code != 0 && command[0] != "healthcheck" { // which may come too soon after the start
				t.Errorf("%v: exit code %d: %s", command, code, said)
			}
			p.end(syscall.SIGTERM)
			if printed := strings.Contains(p.printed(t), "kat_"); printed != (i < 2) {
				t.Errorf("start %d: printed %s", i, p.printed(t))
			}
		}
	})

	t.Run("is not printed if it comes from the settings", func(t *testing.T) {
		t.Parallel()
		p := start(t, t.TempDir())
		p.end(syscall.SIGTERM)
		printed := p.printed(t)
		if strings.Contains(printed, operatorToken) || strings.Contains(printed, "kat_") || strings.Contains(printed, "#link=") {
			t.Errorf("printed %s", printed)
		}
		if !strings.Contains(printed, p.url+"/console/\n") {
			t.Errorf("no address of the console: %s", printed)
		}
	})
}

func TestSecondServer(t *testing.T) {
	t.Parallel()

	t.Run("refuses a file that another process owns, and names that process", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		p := start(t, dir)
		code, said := finish(t, keyhook(t, dir, "serve", "--listen=127.0.0.1:0"))
		if code == 0 || !strings.Contains(said, strconv.Itoa(p.cmd.Process.Pid)) || strings.Count(said, "\n") != 1 {
			t.Errorf("exit code %d: %s", code, said)
		}
	})

	for _, tt := range []struct {
		name, setting string
		args          []string
	}{
		{"refuses a port in use before it touches a file", "server.listen", []string{"serve", "--listen="}},
		{"refuses a port in use for metrics before it touches a file", "metrics.listen", []string{"serve", "--listen=127.0.0.1:0", "--metrics.listen="}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, dir := start(t, t.TempDir()), t.TempDir()
			tt.args[len(tt.args)-1] += strings.TrimPrefix(p.url, "http://")
			code, said := finish(t, keyhook(t, dir, tt.args...))
			if code == 0 || !strings.Contains(said, tt.setting) || strings.Count(said, "\n") != 1 {
				t.Errorf("exit code %d: %s", code, said)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

func TestStop(t *testing.T) {
	t.Parallel()

	for _, stop := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} { // a terminal that closes sends the latter
		t.Run("finishes the attempts on the wire after the signal "+stop.String(), func(t *testing.T) {
			t.Parallel()
			heedHangup(t)
			receiver, dir := hang(t), t.TempDir()
			p := start(t, dir)
			sub := p.subscribe(t, receiver.url)
			p.publish(t, "a")
			await(t, receiver.arrived)
			if err := p.cmd.Process.Signal(stop); err != nil {
				t.Fatal(err)
			}
			receiver.answer()
			if code := p.wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			var log struct{ Data []struct{ Outcome string } }
			start(t, dir).must(t, "GET", "/api/v1/webhooks/subscriptions/"+sub+"/deliveries/", nil, &log)
			if len(log.Data) != 1 || log.Data[0].Outcome != "succeeded" {
				t.Errorf("the log holds %+v", log.Data)
			}
		})
	}

	t.Run("ends at once at the second signal", func(t *testing.T) {
		t.Parallel()
		receiver := hang(t)
		p := start(t, t.TempDir())
		p.subscribe(t, receiver.url)
		p.publish(t, "a")
		await(t, receiver.arrived)
		// Two signals of one kind may become one, so these are of two kinds.
		for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
		}
		if code := p.wait(t); code != 1 || !strings.Contains(p.said(), "a second signal arrived") {
			t.Errorf("exit code %d:\n%s", code, p.said())
		}
	})

	t.Run("takes a signal that is sent twice for one", func(t *testing.T) {
		t.Parallel()
		receiver := hang(t)
		p := start(t, t.TempDir(), "KEYHOOK_WEBHOOKS_TIMEOUT=1s")
		p.subscribe(t, receiver.url)
		p.publish(t, "a")
		await(t, receiver.arrived)
		// Signals that arrive together may become one, so there are several, on a busy machine fewer.
		for began := time.Now(); time.Since(began) < 10*time.Millisecond; time.Sleep(2 * time.Millisecond) {
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d:\n%s", code, p.said())
		}
	})
}

// TestPrefixes changes keys.prefix and webhooks.header_prefix while a key is in use and a delivery waits for its retry.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	receiver, arrived := headersOf(t)
	dir := t.TempDir()
	p := start(t, dir, "KEYHOOK_WEBHOOKS_RETRY_BASE=2s")
	var older, newer struct {
		Key       string
		ID        string
		KeyPrefix string `json:"key_prefix"`
	}
	p.must(t, "POST", "/api/v1/api-keys/", object{"name": "older", "scope": "events:write api_keys:write"}, &older)
	p.subscribe(t, receiver, "a")
	p.publish(t, "a")
	first := <-arrived
	p.end(syscall.SIGTERM)

	p = start(t, dir, "KEYHOOK_KEYS_PREFIX=acme", "KEYHOOK_WEBHOOKS_HEADER_PREFIX=X-Acme")
	accepted := func(key string) bool {
		status, _, _ := p.whoami(t, "ApiKey "+key)
		return status == http.StatusOK
	}
	if !accepted(older.Key) || !strings.HasPrefix(older.Key, "svc_") {
		t.Errorf("the older key %s is refused", older.KeyPrefix)
	}
	p.must(t, "POST", "/api/v1/api-keys/"+older.ID+"/rotate/", object{"grace_seconds": 60}, &newer)
	if !strings.HasPrefix(newer.Key, "acme_") || !strings.HasPrefix(newer.KeyPrefix, "acme_") || !accepted(newer.Key) || !accepted(older.Key) {
		t.Errorf("the newer key is %s", newer.KeyPrefix)
	}
	second := <-arrived
	for _, name := range []string{"Signature", "Timestamp", "Event-Id", "Event-Type", "Attempt"} {
		if first.Get("X-Service-"+name) == "" || first.Get("X-Acme-"+name) != "" {
			t.Errorf("%s before the change: %v", name, first)
		}
		if second.Get("X-Acme-"+name) == "" || second.Get("X-Service-"+name) != "" {
			t.Errorf("%s after the change: %v", name, second)
		}
	}
	if second.Get("X-Acme-Attempt") != "2" || second.Get("Webhook-Signature") == "" {
		t.Errorf("the second attempt: %v", second)
	}
}

func TestFilesThatOthersMayReadAreNamedAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir)
	p.end(syscall.SIGTERM)
	if strings.Contains(p.said(), "other users may read") {
		t.Errorf("a new database: %s", p.said())
	}
	dir, err := filepath.EvalSymlinks(dir)
	noError(t, err)
	path := filepath.Join(dir, "keyhook.db")
	noError(t, os.Chmod(path, 0o644), os.Chmod(path+".key", 0o640))
	p = start(t, dir)
	p.end(syscall.SIGTERM)
	for _, part := range []string{"other users may read the database or its key; run: chmod 600 " + path + " ", path + ".key (mode 0640)", path + " (mode 0644)"} {
		if !strings.Contains(p.said(), part) {
			t.Errorf("the log does not say %q: %s", part, p.said())
		}
	}
}
