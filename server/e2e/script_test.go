package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the commands that people type, many of them against one server. The scripts are in testdata.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			bin := filepath.Join(env.WorkDir, ".bin")
			env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			env.Vars = append(env.Vars, raceOptions)
			return errors.Join(os.Mkdir(bin, 0o700), os.Symlink(typed(), filepath.Join(bin, "keyhook")))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "let": let, "ready": ready},
	})
}

// exits runs a command that must end with an exit code: exits CODE PROGRAM ARGUMENT…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENT…")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || strconv.Itoa(exit.ExitCode()) != args[0] {
		ts.Fatalf("error %v, want exit code %s", err, args[0])
	}
}

// let keeps the last output in a variable: let NAME
func let(ts *testscript.TestScript, neg bool, args []string) {
	value := strings.TrimSpace(ts.ReadFile("stdout"))
	if neg || len(args) != 1 || value == "" {
		ts.Fatalf("usage: let NAME, after a command with output")
	}
	ts.Setenv(args[0], value)
}

// ready waits until the log in a file says that the server is ready, and sets URL: ready FILE
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready FILE")
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		text, _ := os.ReadFile(ts.MkAbs(args[0])) // not there yet, maybe
		for line := range bytes.Lines(text) {
			var said struct{ Msg, URL string }
			if json.Unmarshal(line, &said) == nil && said.Msg == "ready" {
				ts.Setenv("URL", said.URL)
				return
			}
		}
	}
	ts.Fatalf("not ready after %s:\n%s", patience, ts.ReadFile(args[0]))
}

func TestDemo(t *testing.T) {
	t.Parallel()
	succeed(t, t.TempDir(), []string{"demo"}, "All checks passed")
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	heedHangup(t)
	cmd := keyhook(t, t.TempDir(), "demo")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(stdout).Scan() { // the server runs
		t.Fatalf("no step: %v\n%s", cmd.Wait(), stderr.String())
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // as a terminal that closes
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("error %v\n%s", err, stderr.String())
	}
	leavesNothing(t, cmd)
}
