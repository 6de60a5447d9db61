package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// child is this program run as a server of its own.
type child struct {
	url, token, database string

	process *exec.Cmd
	ended   chan error
	log     *logTail
}

// startChild runs `serve` on a free port with a database in dir, and waits until it is ready.
func startChild(ctx context.Context, dir string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{
		token:    rand.Text(),
		database: filepath.Join(dir, "keyhook.db"),
		process:  exec.Command(program, "serve", "--log.format=json"),
		ended:    make(chan error, 1),
		log:      &logTail{ready: make(chan string, 1)},
	}
	c.process.Env = append(withoutSettings(os.Environ()),
		"KEYHOOK_SERVER_LISTEN=127.0.0.1:0",
		"KEYHOOK_STORAGE_PATH="+c.database,
		"KEYHOOK_BOOTSTRAP_TOKEN="+c.token,
		"KEYHOOK_EGRESS_ALLOWED_NETWORKS=127.0.0.0/8",
		"KEYHOOK_EGRESS_CA_FILE="+filepath.Join(dir, "ca.pem"),
		"KEYHOOK_WEBHOOKS_RETRY_BASE=300ms",
	)
	logged, err := c.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.log.follow(logged)
		c.ended <- c.process.Wait() // only once the pipe is read to its end
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, demoWait, fmt.Errorf("it was not ready within %s", demoWait))
	defer cancel()
	select {
	case c.url = <-c.log.ready:
		return c, nil
	case err := <-c.ended:
		return nil, fmt.Errorf("it ended at once: %w\n%s", err, c.log.tail())
	case <-ctx.Done():
		c.kill()
		return nil, context.Cause(ctx)
	}
}

// stop tells the server to stop and expects exit code 0.
func (c *child) stop(ctx context.Context) error {
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill ends the server if it still runs.
func (c *child) kill() {
	if err := c.process.Process.Kill(); err == nil {
		<-c.ended
	}
}

// withoutSettings leaves out what would configure the server in another way than the demo does.
func withoutSettings(environment []string) []string {
	var kept []string
	for _, pair := range environment {
		if !strings.HasPrefix(pair, "KEYHOOK_") {
			kept = append(kept, pair)
		}
	}
	return kept
}

// logTail follows a server's log: it reports the address in its "ready" line and keeps the last lines.
type logTail struct {
	ready chan string

	mu    sync.Mutex
	lines []string
}

const tailLines = 10

func (t *logTail) follow(r io.Reader) {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		t.add(scanner.Text())
		var line struct {
			Message string `json:"msg"`
			URL     string `json:"url"`
		}
		if json.Unmarshal(scanner.Bytes(), &line) == nil && line.Message == "ready" {
			t.ready <- line.URL
		}
	}
	if err := scanner.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.add("the log could not be read further: " + err.Error())
		_, _ = io.Copy(io.Discard, r) // so that the server is not held up
	}
}

func (t *logTail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, "  "+line)
	t.lines = t.lines[max(0, len(t.lines)-tailLines):]
}

func (t *logTail) tail() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
