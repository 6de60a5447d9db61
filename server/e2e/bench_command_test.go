package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
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
		Backlog int
		Figures map[string]struct {
			Value *float64
			Unit  string
			Ratio *float64
		}
	}
	decoder := json.NewDecoder(&stdout)
	if err := decoder.Decode(&got); err != nil || decoder.More() || got.Events != 200 || got.Backlog != 500 {
		t.Fatalf("error %v, more %t, decoded %+v", err, decoder.More(), got)
	}
	// Processor times of so short a run may round to nothing, but not their sum.
	parts := []string{"cpu_per_event_server", "cpu_per_event_receiver", "cpu_per_event_publisher"}
	proc := append([]string{"memory_idle", "memory_saturated", "memory_peak", "cpu_per_event"}, parts...)
	compared := []string{"end_to_end", "end_to_end_normal", "end_to_end_wide", "fanout", "batch", "keys", "keys_logged", "keys_limited", "gate", "gate_logged", "healthy_beside_hanging_p99", "healthy_beside_backlog_p99"}
	figures := slices.Concat(proc, compared, []string{
		"raw", "publish", "end_to_end_publish", "saturated_p50", "saturated_p99", "wide_p50", "full_to_normal",
		"gentle_p50", "gentle_p99", "bare", "bare_empty", "healthy_alone_p99",
	})
	for _, name := range figures {
		f, found := got.Figures[name]
		switch {
		case !found:
			t.Errorf("no %s", name)
		case runtime.GOOS != "linux" && slices.Contains(proc, name):
			if f.Value != nil {
				t.Errorf("%s is %g where nobody can tell", name, *f.Value)
			}
		case f.Value == nil || *f.Value < 0 || *f.Value == 0 && !slices.Contains(parts, name):
			t.Errorf("%s is %+v", name, f)
		}
		if slices.Contains(compared, name) && (f.Ratio == nil || *f.Ratio <= 0) {
			t.Errorf("the ratio of %s is %v", name, f.Ratio)
		}
	}
	if len(got.Figures) != len(figures) {
		t.Errorf("%d figures where %d are expected", len(got.Figures), len(figures))
	}
	if lines := strings.Count(stderr.String(), "\n"); lines != 10 || strings.Contains(stderr.String(), "\r") {
		t.Errorf("the progress is not a line for each of 10 sections:\n%q", stderr.String())
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
