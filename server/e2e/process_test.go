package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const operatorToken = "an-operator-token-for-tests"

// patience is how long a test waits for what must happen soon. Only a failure takes that long, so a slow machine may take its time.
const patience = time.Minute

// process is a running `keyhook serve`. Its database is dir/keyhook.db and survives it.
type process struct {
	caller  // as the operator
	cmd     *exec.Cmd
	dir     string
	url     string
	metrics string // host:port of the listener for metrics; empty without one
	stdout  string // the path of the file that takes the standard output, complete once the process is ready

	ended chan struct{} // closed when the process has ended
	mu    sync.Mutex
	log   []string // the last lines
	race  bool     // whether the race detector has reported anything
}

// keptLines is how much of the log is kept for a test that fails.
const keptLines = 1000

// start runs `serve` in dir until the test ends, and waits until it is ready. Settings are lines of the environment, such
// as KEYHOOK_WEBHOOKS_TIMEOUT=5s, and flags. Deliveries may go to this machine, unless a flag is --dev=false. The log level must
// let the line "ready" through.
func start(tb testing.TB, dir string, settings ...string) *process {
	tb.Helper()
	return startVersion(tb, program(), dir, settings...)
}

// startVersion is start with another binary.
func startVersion(tb testing.TB, binary, dir string, settings ...string) *process {
	tb.Helper()
	p, ready := launch(tb, binary, dir, settings...)
	select {
	case <-ready:
	case <-p.ended:
		tb.Fatalf("serve ended before it was ready:\n%s", p.said())
	case <-time.After(patience):
		tb.Fatalf("serve is not ready after %s:\n%s", patience, p.said())
	}
	p.caller = newCaller(p.url, "Bearer "+operatorToken)
	return p
}

// launch starts serve of a binary. The channel is closed when the log says that it is ready.
func launch(tb testing.TB, binary, dir string, settings ...string) (p *process, ready chan struct{}) {
	tb.Helper()
	p = &process{cmd: keyhook(tb, dir, "serve", "--dev", "--log.format=json"), dir: dir, ended: make(chan struct{})}
	p.cmd.Path = binary
	p.cmd.Env = append(p.cmd.Env, "KEYHOOK_SERVER_LISTEN=127.0.0.1:0", "KEYHOOK_BOOTSTRAP_TOKEN="+operatorToken)
	for _, setting := range settings {
		if strings.HasPrefix(setting, "--") {
			p.cmd.Args = append(p.cmd.Args, setting)
		} else {
			p.cmd.Env = append(p.cmd.Env, setting)
		}
	}
	stdout, err := os.Create(filepath.Join(tb.TempDir(), "stdout"))
	if err != nil {
		tb.Fatal(err)
	}
	defer stdout.Close()
	p.cmd.Stdout, p.stdout = stdout, stdout.Name()
	logged, err := p.cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if p.end(syscall.SIGKILL); p.race {
			tb.Errorf("the race detector has reported:\n%s", p.said())
		}
	})
	ready = make(chan struct{})
	go p.follow(logged, ready)
	return p, ready
}

// follow keeps the log, and closes ready when the URL is known. It ends with the process.
func (p *process) follow(logged io.Reader, ready chan<- struct{}) {
	defer close(p.ended)
	lines := bufio.NewScanner(logged)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.keep(lines.Text())
		var line struct{ Msg, URL, Address string }
		if ready == nil || json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		switch line.Msg {
		case "listening for metrics":
			p.metrics = line.Address
		case "ready":
			p.url = line.URL
			close(ready)
			ready = nil
		}
	}
	_ = p.cmd.Wait() // the exit code says it
}

// keep adds a line to the log.
func (p *process) keep(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.race = p.race || strings.Contains(line, "WARNING: DATA RACE")
	if p.log = append(p.log, line); len(p.log) > 2*keptLines {
		p.log = slices.Clone(p.log[keptLines:])
	}
}

// printed returns what the process has written to its standard output.
func (p *process) printed(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(p.stdout)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// said returns the end of the log so far.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// alive reports whether the process has not ended.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end sends a signal, waits, and returns the exit code; -1 after a signal that kills.
func (p *process) end(s os.Signal) int {
	_ = p.cmd.Process.Signal(s) // it may have ended by itself
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// wait returns the exit code of a process that ends by itself.
func (p *process) wait(tb testing.TB) int {
	tb.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		tb.Fatalf("it has not ended after %s:\n%s", patience, p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

// await waits for an event that must happen soon.
func await(tb testing.TB, c <-chan struct{}) {
	tb.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		tb.Fatalf("it did not happen within %s", patience)
	}
}

// status returns a field of /proc/PID/status that is in kB, in bytes; 0 once the process has ended.
func (p *process) status(field string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			kB, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64) // 0 stands out in the figures
			return kB << 10
		}
	}
	return 0
}

// peakMemory returns the most resident memory since the start or since forgetPeak, in bytes.
func (p *process) peakMemory() int64 { return p.status("VmHWM") }

// forgetPeak resets peakMemory (proc(5), clear_refs).
func (p *process) forgetPeak(tb testing.TB) {
	tb.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0); err != nil {
		tb.Logf("the peak counts from the start: %v", err)
	}
}

// size returns the bytes of the database (suffix "") or of a file beside it ("-wal").
func (p *process) size(tb testing.TB, suffix string) int64 {
	info, err := os.Stat(filepath.Join(p.dir, "keyhook.db"+suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		tb.Error(err)
		return 0
	}
	return info.Size()
}
