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

// process is a running `keyhook serve`. Its database is dir/keyhook.db and survives it.
type process struct {
	caller // as the operator
	cmd    *exec.Cmd
	dir    string
	url    string

	ended chan struct{} // closed when the process has ended
	mu    sync.Mutex
	log   []string // the last lines
}

// keptLines is how much of the log is kept for a test that fails.
const keptLines = 1000

// start runs `serve` in dir until the test ends, and waits until it is ready. Settings are lines of the environment, such
// as KEYHOOK_WEBHOOKS_TIMEOUT=5s. Deliveries may go to this machine. The log level must let the line "ready" through.
func start(tb testing.TB, dir string, settings ...string) *process {
	tb.Helper()
	p := &process{cmd: exec.Command(binary, "serve", "--dev", "--log.format=json"), dir: dir, ended: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tb.TempDir(),
		"KEYHOOK_SERVER_LISTEN=127.0.0.1:0", "KEYHOOK_BOOTSTRAP_TOKEN=" + operatorToken,
	}, settings...)
	logged, err := p.cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.end(syscall.SIGKILL) })
	ready := make(chan string, 1)
	go p.follow(logged, ready)
	select {
	case p.url = <-ready:
	case <-p.ended:
		tb.Fatalf("serve ended before it was ready:\n%s", p.said())
	case <-time.After(time.Minute):
		tb.Fatalf("serve is not ready after a minute:\n%s", p.said())
	}
	p.caller = newCaller(p.url, "Bearer "+operatorToken)
	return p
}

// follow keeps the log and tells the URL once. It ends with the process.
func (p *process) follow(logged io.Reader, ready chan<- string) {
	defer close(p.ended)
	lines := bufio.NewScanner(logged)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		if p.log = append(p.log, lines.Text()); len(p.log) > 2*keptLines {
			p.log = slices.Clone(p.log[keptLines:])
		}
		p.mu.Unlock()
		var line struct{ Msg, URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			ready <- line.URL
		}
	}
	_ = p.cmd.Wait() // the exit code says it
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

// forgetPeak makes peakMemory begin anew (proc(5), clear_refs).
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
