package e2e

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestRestore takes a backup while a receiver is down, has everything delivered, and restores the backup. The deliveries
// that are pending in the backup are not sent again before an operator decides: released, they are sent; discarded, not.
func TestRestore(t *testing.T) {
	t.Parallel()
	receiver, dir := receive(t, http.StatusOK, 0), t.TempDir()
	receiver.down.Store(true)
	settings := []string{"KEYHOOK_WEBHOOKS_RETRY_BASE=300ms", "KEYHOOK_WEBHOOKS_RETRY_FACTOR=1", "KEYHOOK_WEBHOOKS_RETRY_MAX=300ms", "KEYHOOK_WEBHOOKS_MAX_ATTEMPTS=100", "KEYHOOK_WEBHOOKS_DISABLED_AFTER=1000"}
	p := start(t, dir, settings...)
	sub := p.subscribe(t, receiver.url, "a")
	const before = 10
	var events []string
	for range before {
		events = append(events, p.publish(t, "a"))
	}
	succeed(t, dir, []string{"backup", "before.db"}, "10 deliveries (10 pending)", "Keep keyhook.db.key in another place")
	if code, said := finish(t, keyhook(t, dir, "restore", "before.db")); code == 0 || !strings.Contains(said, strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("beside the server: exit code %d: %s", code, said)
	}
	receiver.down.Store(false)
	p.drained(t, sub)
	for _, decision := range []struct {
		args  []string
		says  string
		sent  int // of the deliveries that are pending in the backup
		state string
	}{
		{[]string{"release"}, "released               11\n", before, "delivered"},
		{[]string{"discard", "--yes"}, "dropped                10\n", 0, "dropped"},
	} {
		p.end(syscall.SIGTERM)
		succeed(t, dir, []string{"restore", "before.db"}, "held", "10 deliveries (10 pending)", "renamed to keyhook.db.replaced-")
		earlier := receiver.requests()
		p = start(t, dir, settings...)
		p.publish(t, "a")
		succeed(t, dir, p.queue("show"), "held                   true\n", "restored from before.db", "pending_deliveries     11\n", receiver.host())
		p.end(syscall.SIGKILL)
		p = start(t, dir, settings...)
		sleep(t.Context(), time.Second) // several times as long as any of them has to wait
		if n := receiver.requests() - earlier; n != 0 {
			t.Errorf("%d requests while the queue was held", n)
		}
		succeed(t, dir, p.queue(decision.args...), decision.says)
		p.drained(t, sub)
		if n := receiver.requests() - earlier; n != decision.sent+1 {
			t.Errorf("%d requests after %v", n, decision.args)
		}
		if got := p.states(t, events); got[decision.state] != before {
			t.Errorf("after %v: %v", decision.args, got)
		}
	}
}

// queue returns the arguments of a queue command for this server.
func (p *process) queue(args ...string) []string {
	return append([]string{"queue", "--url=" + p.url, "--token=" + operatorToken}, args...)
}

// states counts the states of the only delivery of each event.
func (p *process) states(t *testing.T, events []string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, id := range events {
		var event struct{ Deliveries []struct{ State string } }
		p.must(t, "GET", "/api/v1/events/"+id+"/", nil, &event)
		count[event.Deliveries[0].State]++
	}
	return count
}

// examine opens a database that nobody writes to, and returns the result of SQLite's check and the number of events
// that a condition selects.
func examine(t *testing.T, path, condition string) (found string, events int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := errors.Join(db.QueryRow("PRAGMA quick_check").Scan(&found), db.QueryRow("SELECT count(*) FROM events WHERE "+condition).Scan(&events)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return found, events
}

// killedAfter starts a command in dir and kills it after some time, at most 20 ms and within. It reports whether the
// command had not ended before.
func killedAfter(t *testing.T, dir string, within time.Duration, args ...string) bool {
	t.Helper()
	cmd := keyhook(t, dir, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sleep(t.Context(), 20*time.Millisecond+rand.N(within))
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()         // the state of the process says it
	return !cmd.ProcessState.Exited()
}

// grownDatabase makes a database with 30 subscriptions and 40,000 delivered events.
func grownDatabase(t *testing.T, dir string) {
	t.Helper()
	p := start(t, dir)
	for range 30 {
		p.subscribe(t, "http://127.0.0.1:9/", "n")
	}
	p.end(syscall.SIGTERM)
	storagetest.Grow(t, filepath.Join(dir, "keyhook.db"), storagetest.Size{History: 40_000})
}

// TestKilledBackup kills backups beside a server that writes. A file with the name of a copy is always whole.
func TestKilledBackup(t *testing.T) {
	t.Parallel()
	dir, copies := t.TempDir(), t.TempDir()
	grownDatabase(t, dir)
	p := start(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publisher sync.WaitGroup
	publisher.Go(func() {
		repeat(ctx, 1, func(ctx context.Context) {
			_, _ = p.call(ctx, "POST", "/api/v1/events/", event("a", object{})) // whatever the answer is
		})
	})
	to := filepath.Join(copies, "copy.db")
	killed := 0
	for range cycles {
		if killedAfter(t, dir, 200*time.Millisecond, "backup", "--force", to) { // most of that time it writes
			killed++
		}
		if _, err := os.Stat(to); err == nil {
			if found, events := examine(t, to, "true"); found != "ok" || events < 4000 {
				t.Errorf("a copy has its name and is not whole: %s, %d events", found, events)
			}
		}
	}
	cancel()
	publisher.Wait()
	succeed(t, dir, []string{"backup", "--force", to})
	if left, err := os.ReadDir(copies); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
	t.Logf("%d of %d backups were killed", killed, cycles)
}

// TestKilledRestore kills restores. There is a whole database at every moment.
func TestKilledRestore(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "copy.db")
	grownDatabase(t, dir)
	p := start(t, dir)
	succeed(t, dir, []string{"backup", to})
	_, old := examine(t, to, "true")
	p.publish(t, "a")
	p.end(syscall.SIGKILL)
	killed := 0
	for range cycles {
		if killedAfter(t, dir, 400*time.Millisecond, "restore", to) {
			killed++
		}
		if found, events := examine(t, filepath.Join(dir, "keyhook.db"), "true"); found != "ok" || events != old && events != old+1 {
			t.Errorf("the database is not whole: %s, %d events", found, events)
		}
	}
	succeed(t, dir, []string{"restore", to}, "held")
	if left, _ := filepath.Glob(filepath.Join(dir, "*.restoring*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Logf("%d of %d restores were killed", killed, cycles)
}
