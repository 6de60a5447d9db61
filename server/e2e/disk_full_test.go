package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
)

// TestDiskFull fills the disk of a running server. The server refuses new events, still answers everything else, and heals
// by itself once there is room. Nothing that it accepted is lost.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := mountTemporary(t, "size=100m")
	receiver := receive(t, http.StatusOK, 0)
	p := start(t, dir)
	sub := p.subscribe(t, receiver.url, "a")
	backend := p.caller
	_, backend.authorization = p.key(t, "events:write events:read")
	leaked := map[string]string{}
	for range 30 {
		id, authorization := p.key(t, "events:read")
		leaked[id] = authorization
	}
	audience := receive(t, http.StatusOK, 0)
	for i := range 150 { // each revocation is an event that all of these want
		p.must(t, "POST", "/api/v1/webhooks/subscriptions/", object{"url": fmt.Sprintf("%s/%d", audience.url, i), "audit_events": true}, nil)
	}
	accepted := map[string]bool{}
	publish := func() answer {
		a, err := backend.call(t.Context(), "POST", "/api/v1/events/", event("a", object{"text": strings.Repeat("x", 4000)}))
		if err != nil {
			t.Fatal(err)
		}
		var made struct{ ID string }
		if err := json.Unmarshal(a.body, &made); err != nil {
			t.Fatal(err)
		}
		if a.status == http.StatusAccepted {
			accepted[made.ID] = true
		}
		return a
	}
	for range 20 {
		publish()
	}
	ballast := fill(t, dir)
	const room = 100 << 20 / 4000 // events that the whole disk could hold
	refused := 0
	for refused < 50 {
		switch a := publish(); {
		case a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
			refused++
		case a.status != http.StatusAccepted:
			t.Fatalf("status %d, %v", a.status, a.header)
		}
		if len(accepted) > room {
			t.Fatalf("the disk does not fill: %d events were accepted, %d refused", len(accepted), refused)
		}
	}
	saysFull(t, p)
	worksWhileFull(t, p, sub, backend.authorization)
	rightsAreWithdrawn(t, p, leaked)
	if a := publish(); a.status != http.StatusServiceUnavailable {
		t.Errorf("an event got status %d while the reserve is in use", a.status)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	began, ready := time.Now(), 0
	for ; ready != http.StatusOK; sleep(t.Context(), 100*time.Millisecond) {
		if ready, _ = get(t, p.url+"/readyz"); time.Since(began) > patience {
			t.Fatalf("it does not heal within %s", patience)
		}
	}
	t.Logf("%d refused, healed in %s", refused, time.Since(began))
	if a := publish(); a.status != http.StatusAccepted {
		t.Errorf("healed, and the status is %d", a.status)
	}
	if info, err := os.Stat(filepath.Join(dir, "keyhook.db.reserve")); err != nil || info.Size() != storage.DefaultReserve {
		t.Errorf("the reserve was not made again: %v", err)
	}
	p.drained(t, sub)
	receiver.compare(t, accepted, p.attempts(t, sub))
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// fill fills the disk of dir with one file, and returns its path.
func fill(t *testing.T, dir string) string {
	t.Helper()
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := ballast.Close(); err != nil {
		t.Fatal(err)
	}
	return ballast.Name()
}

// saysFull checks that a server tells its observers about the full disk.
func saysFull(t *testing.T, p *process) {
	t.Helper()
	if status, body := get(t, p.url+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"storage":{"ok":false,"problem":"the disk is full`) {
		t.Errorf("/readyz: status %d, %s", status, body)
	}
	if status, body := get(t, p.url+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: status %d, %s", status, body)
	}
	if _, body := get(t, p.url+"/metrics"); !strings.Contains(body, "\nkeyhook_degraded{reason=\"disk_full\"} 1\n") {
		t.Errorf("/metrics:\n%s", body)
	}
}

// worksWhileFull checks the requests that need no room.
func worksWhileFull(t *testing.T, p *process, subscription, authorization string) {
	t.Helper()
	p.must(t, "GET", "/api/v1/whoami/", nil, nil)
	var verified struct{ Valid bool }
	p.must(t, "POST", "/api/v1/auth/verify/", object{"key": strings.TrimPrefix(authorization, "ApiKey ")}, &verified)
	if !verified.Valid {
		t.Error("the key is not valid while the disk is full")
	}
	p.must(t, "GET", "/api/v1/webhooks/subscriptions/"+subscription+"/deliveries/", nil, nil)
}

// rightsAreWithdrawn revokes keys on the full disk, each in a commit of its own, and checks that each is refused at once. Half of them
// are revoked by somebody who found them.
func rightsAreWithdrawn(t *testing.T, p *process, keys map[string]string) {
	t.Helper()
	finder := p.caller
	finder.authorization = ""
	byFinder := false
	for id, authorization := range keys {
		var a answer
		var err error
		if byFinder = !byFinder; byFinder {
			a, err = finder.call(t.Context(), "POST", "/api/v1/auth/leaked/", object{"key": strings.TrimPrefix(authorization, "ApiKey ")})
		} else {
			a, err = p.caller.call(t.Context(), "DELETE", "/api/v1/api-keys/"+id+"/", nil)
		}
		if err != nil || a.status != http.StatusNoContent {
			t.Fatalf("a key cannot be revoked while the disk is full: status %d %s, error %v", a.status, a.body, err)
		}
		holder := p.caller
		holder.authorization = authorization
		if a, err := holder.call(t.Context(), "GET", "/api/v1/whoami/", nil); err != nil || a.code() != "key_revoked" {
			t.Errorf("a revoked key got status %d %s, error %v", a.status, a.code(), err)
		}
	}
}

// TestRestartWhileTheReserveIsInUse kills a server that has used its reserve, and starts it on what another process has left of the room.
// Events must not take that, because the next leaked key needs it.
func TestRestartWhileTheReserveIsInUse(t *testing.T) {
	t.Parallel()
	dir := mountTemporary(t, "size=16m")
	p := start(t, dir)
	first, _ := p.key(t, "events:read")
	second, _ := p.key(t, "events:read")
	p.end(syscall.SIGTERM) // leaves no log, which the next start would fold into the database
	p = start(t, dir)
	publish := func() int {
		a, err := p.caller.call(t.Context(), "POST", "/api/v1/events/", event("a", object{"text": strings.Repeat("x", 4000)}))
		if err != nil {
			t.Fatal(err)
		}
		return a.status
	}
	revoke := func(key string) {
		if a, err := p.caller.call(t.Context(), "DELETE", "/api/v1/api-keys/"+key+"/", nil); err != nil || a.status != http.StatusNoContent {
			t.Fatalf("a key cannot be revoked: status %d %s, error %v", a.status, a.body, err)
		}
	}
	ballast := fill(t, dir)
	for publish() != http.StatusServiceUnavailable {
	}
	revoke(first)
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, storage.DefaultReserve*3/4), 0o600); err != nil {
		t.Fatal(err)
	}
	p.end(syscall.SIGKILL)
	p = start(t, dir)
	saysFull(t, p)
	for range 200 {
		if status := publish(); status != http.StatusServiceUnavailable {
			t.Fatalf("an event got status %d", status)
		}
	}
	revoke(second)
	if err := errors.Join(os.Remove(ballast), os.Remove(other)); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); publish() != http.StatusAccepted; sleep(t.Context(), 100*time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("it does not heal within %s", patience)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "keyhook.db.reserve")); err != nil || info.Size() != storage.DefaultReserve {
		t.Errorf("the reserve was not made again: %v", err)
	}
}

// TestWithdrawalsOverCheckpoints fills the disk while the log is long. The events that still find room there must not take the reserve
// when they are copied into the database, because keys are revoked for longer than a second.
func TestWithdrawalsOverCheckpoints(t *testing.T) {
	t.Parallel()
	dir := mountTemporary(t, "size=40m")
	p := start(t, dir)
	var keys []string
	for range 5 {
		id, _ := p.key(t, "events:read")
		keys = append(keys, id)
	}
	publish := func() int {
		a, err := p.caller.call(t.Context(), "POST", "/api/v1/events/", event("a", object{"text": strings.Repeat("x", 100_000)}))
		if err != nil {
			t.Fatal(err)
		}
		return a.status
	}
	release := readFrom(t, filepath.Join(dir, "keyhook.db"))
	for p.size(t, "-wal") < 8<<20 {
		publish()
	}
	release()
	for long := int64(0); p.size(t, "-wal") != long; publish() { // until the log has begun again, and its file stays long
		long = p.size(t, "-wal")
		sleep(t.Context(), 1200*time.Millisecond) // a checkpoint, perhaps before the last write
	}
	release = readFrom(t, filepath.Join(dir, "keyhook.db"))
	fill(t, dir)
	accepted := 0
	for publish() == http.StatusAccepted {
		accepted++
	}
	release()
	if accepted < 60 { // 6 MB, more than the reserve
		t.Fatalf("%d events found room in the log", accepted)
	}
	for i, key := range keys {
		if a, err := p.caller.call(t.Context(), "DELETE", "/api/v1/api-keys/"+key+"/", nil); err != nil || a.status != http.StatusNoContent {
			t.Fatalf("key %d cannot be revoked: status %d %s, error %v", i, a.status, a.body, err)
		}
		sleep(t.Context(), 1200*time.Millisecond)
	}
	saysFull(t, p)
}

// TestStartOnFullDisk starts a server that was stopped, on a disk that is full beside the reserve. One customer revokes more keys than the
// reserve has room for at once. What a killed backup has left on the disk does not prevent the next one.
func TestStartOnFullDisk(t *testing.T) {
	t.Parallel()
	dir := mountTemporary(t, "size=110m")
	p := start(t, dir)
	var keys []string
	for range 200 {
		key, _ := p.key(t, "events:read")
		keys = append(keys, key)
	}
	p.end(syscall.SIGTERM)
	ballast := fill(t, dir)
	p = start(t, dir)
	waits := 0
	for began := time.Now(); len(keys) > 0; {
		a, err := p.caller.call(t.Context(), "DELETE", "/api/v1/api-keys/"+keys[0]+"/", nil)
		switch {
		case err == nil && a.status == http.StatusNoContent:
			keys = keys[1:]
		case err != nil || time.Since(began) > patience || a.header.Get("Retry-After") == "":
			t.Fatalf("%d keys cannot be revoked: status %d %s, error %v", len(keys), a.status, a.body, err)
		default:
			waits++
			sleep(t.Context(), 100*time.Millisecond)
		}
	}
	t.Logf("%d revocations had to wait", waits)
	saysFull(t, p)
	noError(t, os.Remove(ballast))
	p.end(syscall.SIGTERM)
	beside := func(leftover string, args ...string) {
		noError(t, os.WriteFile(filepath.Join(dir, "keyhook.db"+leftover), make([]byte, 60<<20), 0o600))
		if code, said := onDatabase(t, dir, args...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
	}
	beside(disk.Partial, "backup", filepath.Join(dir, "copy.db"))
	beside(disk.Restoring, "restore", filepath.Join(dir, "copy.db"))
}

// TestFirstStartOnFullDisk starts on a full disk, and again once the disk has room.
func TestFirstStartOnFullDisk(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, size string }{{"too few bytes", "size=300k"}, {"too few files", "size=8m,nr_inodes=3"}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := mountTemporary(t, tt.size)
			code, said := onDatabase(t, dir, "serve")
			if code != 8 || !strings.Contains(said, "full") && !strings.Contains(said, "no space left") || !strings.Contains(said, dir) {
				t.Errorf("exit code %d: %s", code, said)
			}
			if out, err := exec.Command("mount", "-o", "remount,size=8m,nr_inodes=100", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if code := start(t, dir).end(syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if tt.name == "too few bytes" {
				fullAgain(t, dir)
			}
		})
	}
}

// fullAgain fills the disk of a stopped server that has no reserve, except for one page, into which the index of SQLite's write-ahead
// log does not fit.
func fullAgain(t *testing.T, dir string) {
	t.Helper()
	noError(t, os.Remove(filepath.Join(dir, "keyhook.db.reserve")))
	free, _, known := disk.Free(dir)
	if !known {
		t.Fatal("it is not known how much is free")
	}
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, free-4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"serve":  {8, "the disk of storage.path is full"},
		"rekey":  {8, "the disk of storage.path is full"},
		"backup": {1, "there is no free space in " + dir},
	} {
		if code, said := onDatabase(t, dir, args); code != want.code || !strings.Contains(said, want.says) || code == 8 && !strings.Contains(said, "; make room there") {
			t.Errorf("%s: exit code %d: %s", args, code, said)
		}
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	if code := start(t, dir).end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
