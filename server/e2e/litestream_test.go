package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// litestream replicates a database to a directory.
type litestream struct {
	program, database, replica string
	log                        bytes.Buffer
	running                    *exec.Cmd
}

func newLitestream(t *testing.T, database string) *litestream {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("KEYHOOK_LITESTREAM"), "litestream"))
	if err != nil {
		require(t, fmt.Sprintf("litestream: go install github.com/benbjohnson/litestream/cmd/litestream@v0.5.18, or name it in KEYHOOK_LITESTREAM (%v)", err))
	}
	return &litestream{program: path, database: database, replica: "file://" + filepath.Join(t.TempDir(), "replica")}
}

// replicate begins, or begins again.
func (l *litestream) replicate(t *testing.T) {
	t.Helper()
	l.running = exec.Command(l.program, "replicate", l.database, l.replica)
	l.running.Stdout, l.running.Stderr = &l.log, &l.log
	if err := l.running.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.running.Process.Kill() })
}

func (l *litestream) kill() {
	_ = l.running.Process.Kill()
	_ = l.running.Wait()
}

// restore restores the replica to a path, and returns the number of events in it; -1 if there is no replica yet, or if its
// last part is being written.
func (l *litestream) restore(t *testing.T, to string) int {
	t.Helper()
	_ = os.Remove(to)
	out, err := exec.Command(l.program, "restore", "-o", to, l.replica).CombinedOutput()
	if err != nil {
		return -1
	}
	found, events := examine(t, to, "type = 'a'") // audit events are not counted
	if found != "ok" {
		t.Errorf("the replica: %s\n%s", found, out)
	}
	return events
}

// await restores the replica until it has n events.
func (l *litestream) await(t *testing.T, to string, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; sleep(t.Context(), 200*time.Millisecond) {
		events := l.restore(t, to)
		if events >= n {
			return
		}
		if time.Now().After(deadline) {
			l.kill() // which completes its log
			t.Fatalf("%d events were published and the replica has %d:\n%s", n, events, &l.log)
		}
	}
}

// TestLitestream replicates a busy server, kills both, and restores the replica on another machine. Then it goes on with
// the first file.
func TestLitestream(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	replication := newLitestream(t, filepath.Join(dir, "keyhook.db"))
	p := start(t, dir)
	replication.replicate(t)
	var ids []string
	publish := func(n int) {
		for range n {
			ids = append(ids, p.publish(t, "a"))
		}
	}
	publish(300)
	copied := filepath.Join(elsewhere, "replica.db")
	replication.await(t, copied, 300)
	publish(20)
	replication.await(t, copied, 320)
	publish(30) // the replica may have some of them
	replication.kill()
	publish(30)
	p.end(syscall.SIGKILL)
	if n := replication.restore(t, copied); n < 320 || n > 350 {
		t.Errorf("the replica has %d events", n)
	}

	key, err := os.ReadFile(filepath.Join(dir, "keyhook.db.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "keyhook.db.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, elsewhere, []string{"restore", copied}, "held")
	p = start(t, elsewhere)
	for _, id := range ids[:320] {
		p.must(t, "GET", "/api/v1/events/"+id+"/", nil, nil)
	}
	p.end(syscall.SIGTERM)

	// The first machine goes on with its file, in which Litestream has left tables. It refuses a restore meanwhile. The replica gets what
	// was written while Litestream was away, although the write-ahead log has begun again since.
	p = start(t, dir)
	publish(1)
	sleep(t.Context(), 2500*time.Millisecond) // after a checkpoint, the next write goes to the beginning of the log
	publish(1)
	replication.replicate(t)
	replication.await(t, copied, len(ids))
	p.end(syscall.SIGTERM)
	if code, said := finish(t, keyhook(t, dir, "restore", copied)); code == 0 || !strings.Contains(said, "Litestream") {
		t.Errorf("beside Litestream: exit code %d: %s", code, said)
	}
	replication.kill()
}
