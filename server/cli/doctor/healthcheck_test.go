package doctor_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// answers returns a handler that responds to /readyz with a status and a text.
func answers(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusTeapot
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	})
}

// owned returns the path of a database that a server without a socket owns.
func owned(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "keyhook.db")
	storagetest.OpenWith(t, storagetest.Options(t, path))
	return path
}

const (
	ready    = `{"status":"ready","checks":{"database":{"ok":true}}}`
	notReady = `{"status":"not_ready","checks":{"storage":{"ok":false,"problem":"the disk is full"},"database":{"ok":true},"process":{"ok":false,"problem":"is shutting down"}}}`
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for _, tt := range []struct {
		name    string
		handler http.Handler // nil means that nobody listens
		tls     bool
		code    int
		says    string
	}{
		{"a ready server", answers(200, ready), false, cli.ExitOK, "ready: http://127.0.0.1:"},
		{"a ready server with TLS", answers(200, ready), true, cli.ExitOK, "ready: https://127.0.0.1:"},
		{"a server that is not ready", answers(503, notReady), false, cli.ExitFailure, " is not ready: process: is shutting down; storage: the disk is full\n"},
		{"another program", answers(200, "<html>"), false, cli.ExitFailure, "does not come from Keyhook; check server.listen"},
		{"no server", nil, false, cli.ExitFailure, "start it with \"keyhook serve\""},
		{"a server that does not respond", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }), false, cli.ExitFailure, "no response within 2.5s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(tt.handler)
			args := []string{"healthcheck", "--listen=" + server.Listener.Addr().String(), "--storage.path=" + owned(t)}
			switch {
			case tt.handler == nil:
				server.Listener.Close()
			case tt.tls:
				server.StartTLS()
				args = append(args, "--server.tls_cert_file=any", "--server.tls_key_file=any")
			default:
				server.Start()
			}
			if tt.handler != nil {
				t.Cleanup(func() { server.CloseClientConnections(); go server.Close() })
			}
			began := time.Now()
			code, stdout, stderr := run(t, args)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.says) || strings.Count(stdout+stderr, "\n") != 1 {
				t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}

	t.Run("asks this machine if the server listens on all addresses", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(answers(200, ready))
		t.Cleanup(server.Close)
		_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
		for listen, want := range map[string]string{"0.0.0.0:" + port: "ready: http://localhost:" + port, ":" + port: "ready: http://localhost:" + port, "[::]:1": "http://localhost:1 (server.listen)"} {
			_, stdout, stderr := run(t, []string{"healthcheck", "--listen=" + listen, "--storage.path=" + owned(t),
				"--server.base_url=http://127.0.0.1:1"}) // of the proxy, which healthcheck does not ask
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: output %q, errors %q", listen, stdout, stderr)
			}
		}
	})
	t.Run("uses the socket beside the database, unless it was left by a crash", func(t *testing.T) {
		t.Parallel()
		dir, err := os.MkdirTemp("", "hc") // the name of a socket must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // it is for the system to tidy up then
		socket := filepath.Join(dir, "keyhook.db.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: answers(200, ready), ReadHeaderTimeout: time.Second}}
		server.Start()
		args := []string{"healthcheck", "--listen=127.0.0.1:0", "--storage.path=" + strings.TrimSuffix(socket, ".sock")}
		if code, stdout, stderr := run(t, args); code != cli.ExitOK || stdout != "ready: "+socket+"\n" {
			t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
		}
		server.Close()
		if code, _, stderr := run(t, args); code != cli.ExitFailure || !strings.Contains(stderr, "server.listen") {
			t.Errorf("left from a crash: code %d, errors %q", code, stderr)
		}
	})

	t.Run("takes no other server for this one", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(answers(200, ready))
		t.Cleanup(server.Close)
		never := filepath.Join(t.TempDir(), "keyhook.db")
		stopped := filepath.Join(t.TempDir(), "keyhook.db")
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, stopped))
		stop()
		for _, path := range []string{never, stopped, "/no/such/keyhook.db"} {
			code, stdout, stderr := run(t, []string{"healthcheck", "--listen=" + server.Listener.Addr().String(), "--storage.path=" + path})
			if code != cli.ExitFailure || !strings.Contains(stderr, "no server is running for "+path) || !strings.Contains(stderr, "is another server") {
				t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
			}
		}
	})

	t.Run("exits with 1 for wrong settings too, because 2 has another meaning for containers", func(t *testing.T) {
		t.Parallel()
		if code, _, stderr := run(t, []string{"healthcheck", "--log.level=loud"}); code != cli.ExitFailure || !strings.Contains(stderr, "log.level") {
			t.Errorf("code %d, errors %q", code, stderr)
		}
	})
}
