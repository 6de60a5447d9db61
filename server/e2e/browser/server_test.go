package browser

import (
	"bufio"
	"bytes"
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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const operatorToken = "an-operator-token-for-tests"

// server is a running `keyhook serve`. Its client acts as the operator.
type server struct {
	client
	tb       testing.TB
	dir      string
	listen   string // host:port
	settings []string
	cmd      *exec.Cmd
	stdout   string // the path of the file with the standard output

	ended chan struct{} // closed when the process has ended
	mu    sync.Mutex
	log   []string
}

// start runs `serve` until the test ends, and waits until it is ready. Settings are lines of the environment, such as
// KEYHOOK_CONSOLE_NAME=Acme. Deliveries may go to this machine, and retries follow at once: an event that always fails has
// ended within a second.
func start(tb testing.TB, settings ...string) *server {
	tb.Helper()
	return startAt(tb, "127.0.0.1:0", settings...)
}

// startBehind is start behind a proxy that serves the server under a path, such as /keyhook. The server's base has that path.
func startBehind(tb testing.TB, path string, settings ...string) *server {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	listen := l.Addr().String()
	if err := l.Close(); err != nil { // the server takes the port
		tb.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix(path, httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listen})))
	tb.Cleanup(proxy.Close)
	return startAt(tb, listen, append(settings, "KEYHOOK_SERVER_BASE_URL="+proxy.URL+path)...)
}

func startAt(tb testing.TB, listen string, settings ...string) *server {
	tb.Helper()
	s := &server{tb: tb, dir: tb.TempDir(), listen: listen, settings: append([]string{
		"KEYHOOK_BOOTSTRAP_TOKEN=" + operatorToken, "KEYHOOK_WEBHOOKS_RETRY_BASE=20ms", "KEYHOOK_WEBHOOKS_RETRY_FACTOR=1",
	}, settings...)}
	s.again()
	tb.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

// again starts the server again after end, with its data and at its old address.
func (s *server) again() {
	s.tb.Helper()
	s.cmd = exec.Command(program(), "serve", "--dev", "--log.format=json", "--server.listen="+s.listen)
	s.cmd.Dir = s.dir
	s.cmd.Env = append([]string{"TMPDIR=" + s.tb.TempDir(), "PATH=" + os.Getenv("PATH")}, s.settings...)
	stdout, err := os.Create(filepath.Join(s.tb.TempDir(), "stdout"))
	if err != nil {
		s.tb.Fatal(err)
	}
	defer stdout.Close()
	s.cmd.Stdout, s.stdout = stdout, stdout.Name()
	logged, err := s.cmd.StderrPipe()
	if err != nil {
		s.tb.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	ready := make(chan string, 1)
	s.ended = make(chan struct{})
	go s.follow(logged, ready)
	select {
	case url := <-ready:
		s.client = client{base: url, authorization: "Bearer " + operatorToken}
		if strings.HasSuffix(s.listen, ":0") {
			s.listen = hostOf(url)
		}
	case <-s.ended:
		s.tb.Fatalf("serve ended before it was ready:\n%s", s.said())
	case <-time.After(time.Minute):
		s.tb.Fatalf("serve is not ready after a minute:\n%s", s.said())
	}
}

// follow keeps the log, and sends the URL of the server when it is ready. It ends with the process.
func (s *server) follow(logged io.Reader, ready chan<- string) {
	defer close(s.ended)
	lines := bufio.NewScanner(logged)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.mu.Unlock()
		var line struct{ Msg, URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			ready <- strings.TrimSuffix(line.URL, "/")
		}
	}
	_ = s.cmd.Wait() // the exit code says it
}

// said returns the log so far.
func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// printed returns the standard output, such as the link of the first start.
func (s *server) printed() string {
	s.tb.Helper()
	text, err := os.ReadFile(s.stdout)
	if err != nil {
		s.tb.Fatal(err)
	}
	return string(text)
}

// end stops the server with a signal. Its pages stay open.
func (s *server) end(signal os.Signal) {
	_ = s.cmd.Process.Signal(signal) // it may have ended by itself
	<-s.ended
}

// client calls the API with one credential.
type client struct {
	base          string
	authorization string
	organization  string // the organization to act in; empty for that of the credential
}

// object is a JSON object.
type object = map[string]any

// call makes a request and returns the status and the body of the response.
func (c client) call(tb testing.TB, method, path string, body any) (status int, response []byte) {
	tb.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			tb.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(tb.Context(), method, c.base+path, bytes.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.authorization != "" {
		req.Header.Set("Authorization", c.authorization)
	}
	if c.organization != "" {
		req.Header.Set("X-Organization-Id", c.organization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	response, err = io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, response
}

// must is call for what must succeed. It reads the response into result, unless that is nil.
func (c client) must(tb testing.TB, method, path string, body, result any) {
	tb.Helper()
	status, response := c.call(tb, method, path, body)
	if status >= 300 {
		tb.Fatalf("%s %s: %d: %.500s", method, path, status, response)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(response, result); err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
}

// create is a POST that returns the id of what it made.
func (c client) create(tb testing.TB, path string, body object) (id string) {
	tb.Helper()
	var made struct{ ID string }
	c.must(tb, "POST", path, body, &made)
	return made.ID
}

// read returns a field of what the API has at path.
func (c client) read(tb testing.TB, path, field string) string {
	tb.Helper()
	var found object
	c.must(tb, "GET", path, nil, &found)
	return fmt.Sprint(found[field])
}
