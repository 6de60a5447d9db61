package e2e

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// cycles is how often a test kills a process. The race detector makes everything ten times as slow, and it finds what runs
// concurrently rather than what a kill interrupts.
var cycles = map[bool]int{false: 5, true: 2}[underRace]

// TestFilesTaken removes or replaces the files of a running server. The server stops at once and says why, it acknowledges
// no event afterwards, and it leaves the new files alone.
func TestFilesTaken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		take func(path string) error
		busy bool
		says string
		next int // the exit code of the next start; 0: it starts
	}{
		{"removed", func(path string) error {
			return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		}, true, "keyhook.db was removed beneath the running process", 4},
		{"removed while nothing happens", func(path string) error { return os.Remove(path) }, false, "keyhook.db was removed", 4},
		{"replaced", func(path string) error {
			return errors.Join(os.WriteFile(path+".other", []byte("another file"), 0o600), os.Rename(path+".other", path))
		}, true, "keyhook.db was replaced beneath the running process", 4},
		{"without the write-ahead log", func(path string) error { return os.Remove(path + "-wal") }, true, "keyhook.db-wal was removed", 0},
		{"without the lock", func(path string) error { return os.Remove(path + ".lock") }, true, "keyhook.db.lock was removed", 0},
		{"moved with its directory", func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".moved") }, true, "was removed", 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "keyhook.db")
			p := start(t, dir)
			var published publishing
			if tt.busy {
				published.begin(t, p)
			}
			for p.size(t, "") <= 4096 { // until a checkpoint: a start without the log refuses a file that has no tables yet
				sleep(t.Context(), 20*time.Millisecond)
			}
			if err := tt.take(path); err != nil {
				t.Fatal(err)
			}
			taken := published.mark()
			left := contents(t, dir)
			code := p.wait(t)
			took := time.Since(taken)
			published.all.Wait()
			if code != 74 || took > 20*time.Second {
				t.Errorf("exit code %d after %s", code, took)
			}
			if published.late > 0 {
				t.Errorf("%d events were accepted that began after the file was gone", published.late)
			}
			said := p.said()
			if !strings.Contains(said, `"level":"ERROR","msg":"stopping at once`) || strings.Count(said, "keyhook: ") != 1 || !strings.Contains(said, tt.says) {
				t.Errorf("it said:\n%s", said)
			}
			if after := contents(t, dir); !maps.Equal(left, after) && tt.next != 0 {
				t.Errorf("the files were %v and are %v", left, after)
			}
			t.Logf("%d accepted, ended after %s: %s", published.accepted, took, said[max(0, strings.LastIndex(said, "keyhook: ")):])
			if tt.next == 0 {
				start(t, dir)
				return
			}
			if code, said := finish(t, keyhook(t, t.TempDir(), "serve", "--listen=127.0.0.1:0", "--storage.path="+path)); code != tt.next {
				t.Errorf("the next start: exit code %d: %s", code, said)
			}
		})
	}
}

// publishing counts the events that a server accepts.
type publishing struct {
	all sync.WaitGroup // of the publishers

	mu       sync.Mutex
	accepted int
	marked   time.Time
	late     int // events that were accepted and whose requests began after the mark
}

// begin publishes from four connections until the server is gone, and returns once 50 events are accepted.
func (n *publishing) begin(t *testing.T, p *process) {
	t.Helper()
	enough := make(chan struct{})
	publish := func() bool {
		began := time.Now()
		a, err := p.call(context.WithoutCancel(t.Context()), "POST", "/api/v1/events/", event("a", object{}))
		n.mu.Lock()
		defer n.mu.Unlock()
		if err == nil && a.status == http.StatusAccepted {
			if n.accepted++; n.accepted == 50 {
				close(enough)
			}
			if !n.marked.IsZero() && began.After(n.marked) {
				n.late++
			}
		}
		return err == nil
	}
	for range 4 {
		n.all.Go(func() {
			for publish() {
			}
		})
	}
	await(t, enough)
}

// mark remembers and returns the time from which on no event may be accepted.
func (n *publishing) mark() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.marked = time.Now()
	return n.marked
}

// TestFlushFails makes the kernel refuse to flush. The process ends before it acknowledges another event, and the next one
// checks the file.
func TestFlushFails(t *testing.T) {
	t.Parallel()
	strace := tool(t, "strace")
	dir := t.TempDir()
	p := start(t, dir)
	for range 20 {
		p.publish(t, "a")
	}
	inject := exec.Command(strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "calls"), "-p", strconv.Itoa(p.cmd.Process.Pid),
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO")
	if err := inject.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inject.Wait() }) // it ends with the process that it watches
	accepted := 0
	for deadline := time.Now().Add(patience); ; {
		a, err := p.call(t.Context(), "POST", "/api/v1/events/", event("a", object{}))
		if err != nil || a.status != http.StatusAccepted {
			break
		}
		if accepted++; time.Now().After(deadline) {
			require(t, "to be allowed to trace other processes")
		}
	}
	if code := p.wait(t); code != 74 || !strings.Contains(p.said(), "stopping at once") {
		t.Errorf("exit code %d after %d more events:\n%s", code, accepted, p.said())
	}
	next := start(t, dir)
	if !strings.Contains(next.said(), "was not closed by its last owner; it was checked and is sound") {
		t.Errorf("the next start says\n%s", next.said())
	}
	var list struct{ Data []struct{ ID string } }
	next.must(t, "GET", "/api/v1/events/?limit=200", nil, &list)
	if len(list.Data) < min(20+accepted, 200) {
		t.Errorf("%d events of %d are there", len(list.Data), 20+accepted)
	}
}
