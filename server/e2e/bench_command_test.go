package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestBench(t *testing.T) {
	t.Parallel()
	cmd := keyhook(t, t.TempDir(), "bench", "--events=200", "--fanout=3", "--body=300", "--connections=8", "--json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("error %v, errors:\n%s", err, stderr.String())
	}
	var got struct {
		Events  int
		Figures map[string]struct{ Value float64 }
	}
	decoder := json.NewDecoder(&stdout)
	if err := decoder.Decode(&got); err != nil || decoder.More() || got.Events != 200 {
		t.Fatalf("error %v, more %t, decoded %+v", err, decoder.More(), got)
	}
	figures := []string{"publish", "end_to_end", "fanout", "batch", "key_checks", "direct", "direct_get", "steady_p50", "steady_p99"}
	if runtime.GOOS == "linux" {
		figures = append(figures, "memory_idle", "memory_peak")
	}
	for _, name := range figures {
		if f := got.Figures[name]; f.Value <= 0 {
			t.Errorf("%s is %+v", name, f)
		}
	}
	if len(got.Figures) != len(figures) {
		t.Errorf("%d figures where %d are expected", len(got.Figures), len(figures))
	}
	if lines := strings.Count(stderr.String(), "\n"); lines != 7 || strings.Contains(stderr.String(), "\r") {
		t.Errorf("the progress is not a line for each of 7 sections:\n%q", stderr.String())
	}
	leavesNothing(t, cmd)
}

// leavesNothing checks that a command has removed its temporary files.
func leavesNothing(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	directory, _ := strings.CutPrefix(cmd.Env[0], "TMPDIR=")
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	cmd := keyhook(t, t.TempDir(), "bench", "--events=1000000")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() { // the first section has begun, so the children run
		t.Fatalf("no progress: %v", cmd.Wait())
	}
	if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Process.Signal(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	var last string
	for lines.Scan() { // to the end of the pipe
		last = lines.Text()
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(last, "interrupted") {
		t.Errorf("error %v, last line %q", err, last)
	}
	leavesNothing(t, cmd)
}
