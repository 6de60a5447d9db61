package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/cli/child"
)

// TestMain is also the program that Start runs: with the argument serve, it behaves as the variable KEYHOOK_MODE says.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "serve") {
		os.Exit(serve())
	}
	os.Setenv("KEYHOOK_OF_THE_CALLER", "must not reach the child")
	os.Exit(m.Run())
}

func serve() (code int) {
	if os.Getenv("KEYHOOK_MODE") == "fails" {
		for i := range 30 {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		return 3
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	if os.Getenv("KEYHOOK_MODE") == "ready" {
		for _, variable := range os.Environ() {
			if strings.HasPrefix(variable, "KEYHOOK_") {
				fmt.Fprintln(os.Stderr, variable)
			}
		}
		fmt.Fprintln(os.Stderr, `{"msg":"ready","url":"http://127.0.0.1:7"}`)
	}
	<-stopped
	return 0
}

func TestServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := child.Start(t.Context(), dir, "KEYHOOK_MODE=ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	if s.URL != "http://127.0.0.1:7" || s.Database != filepath.Join(dir, "keyhook.db") || len(s.Token) < 20 || s.PID() == os.Getpid() {
		t.Errorf("%+v with the process %d", s, s.PID())
	}
	for _, want := range []string{
		"KEYHOOK_STORAGE_PATH=" + s.Database, "KEYHOOK_BOOTSTRAP_TOKEN=" + s.Token,
		"KEYHOOK_SERVER_LISTEN=127.0.0.1:0", "KEYHOOK_EGRESS_ALLOWED_NETWORKS=127.0.0.0/8",
	} {
		if !strings.Contains(s.Tail(), want+"\n") {
			t.Errorf("the server does not get %s:\n%s", want, s.Tail())
		}
	}
	if strings.Contains(s.Tail(), "KEYHOOK_OF_THE_CALLER") {
		t.Errorf("the server gets the settings of the caller:\n%s", s.Tail())
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("it did not stop with exit code 0: %v", err)
	}
	s.Kill() // it has ended, so nothing waits
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	t.Run("if the server stops at once, with the last lines of its log", func(t *testing.T) {
		t.Parallel()
		_, err := child.Start(t.Context(), t.TempDir(), "KEYHOOK_MODE=fails")
		want := "cannot start a server: the server stopped at once: exit status 3\n  line 2"
		// The Go runtime may add a line of its own when coverage is measured.
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "\n  line 29") || strings.Count(err.Error(), "\n") != 10 {
			t.Errorf("error %v", err)
		}
	})
	t.Run("if the caller gives up before the server is ready", func(t *testing.T) {
		t.Parallel()
		why := errors.New("the caller gives up")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, why)
		t.Cleanup(cancel)
		if _, err := child.Start(ctx, t.TempDir(), "KEYHOOK_MODE=silent"); !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("if a server was there before", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "serve.log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := child.Start(t.Context(), dir, "KEYHOOK_MODE=ready"); !errors.Is(err, os.ErrExist) {
			t.Errorf("error %v", err)
		}
	})
}
