// Package child owns the temporary servers of demo and bench: it runs this program again, with a database in the caller's
// directory. It does not know what the callers request.
package child

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
)

// Server is a running server. Its log goes to a file, so that nobody has to read a pipe.
type Server struct {
	URL      string
	Token    string // of the operator
	Database string // the path of its file

	process *exec.Cmd
	log     string
	ended   chan error // gets one value
}

// Directory makes a temporary directory for a server. Its name begins with a prefix.
func Directory(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", fault.Advise(fmt.Errorf("cannot make a temporary directory: %w", err), "set TMPDIR to a directory that you may write to")
	}
	return dir, nil
}

// Start runs `serve` and waits until it is ready. The database and the log are in dir. The server listens on a free port of the
// loopback address, and may send deliveries there. settings are more variables for its environment.
func Start(ctx context.Context, dir string, settings ...string) (*Server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &Server{
		Token: rand.Text(), Database: filepath.Join(dir, "keyhook.db"),
		log: filepath.Join(dir, "serve.log"), ended: make(chan error, 1),
		process: exec.Command(program, "serve", "--log.format=json"),
	}
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	ours := func(variable string) bool { return strings.HasPrefix(variable, "KEYHOOK_") }
	s.process.Env = append(slices.DeleteFunc(os.Environ(), ours),
		"KEYHOOK_STORAGE_PATH="+s.Database, "KEYHOOK_BOOTSTRAP_TOKEN="+s.Token, "KEYHOOK_SERVER_LISTEN=127.0.0.1:0",
		"KEYHOOK_EGRESS_ALLOWED_NETWORKS=127.0.0.0/8")
	s.process.Env = append(s.process.Env, settings...)
	s.process.Stderr = log
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl C in a terminal reaches only the parent, which then stops the child
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a server: %w", err)
	}
	go func() { s.ended <- s.process.Wait() }()
	if err := s.awaitReady(ctx); err != nil {
		s.Kill()
		return nil, fmt.Errorf("cannot start a server: %w", err)
	}
	return s, nil
}

// awaitReady waits for the line of the log that says "ready" and contains the URL.
func (s *Server) awaitReady(ctx context.Context) error {
	const limit = 15 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the server was not ready within %s", limit))
	defer cancel()
	for {
		text, err := os.ReadFile(s.log)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			var entry struct {
				Message string `json:"msg"`
				URL     string `json:"url"`
			}
			if json.Unmarshal(line, &entry) == nil && entry.Message == "ready" {
				s.URL = entry.URL
				return nil
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case err := <-s.ended:
			s.ended <- err // for Kill
			return fmt.Errorf("the server stopped at once: %w\n%s", err, s.Tail())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// PID is the id of its process.
func (s *Server) PID() int { return s.process.Process.Pid }

// Stop asks the server to stop, and expects exit code 0.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Kill ends the server if it still runs.
func (s *Server) Kill() {
	if err := s.process.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		_ = <-s.ended // a killed process always ends with an error
	}
}

// Tail returns the last ten lines of the log, for an error message.
func (s *Server) Tail() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return "  the log cannot be read: " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-10):], "\n  ")
}
