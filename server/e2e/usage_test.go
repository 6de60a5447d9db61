package e2e

import (
	"context"
	"encoding/csv"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestUsageOverKills makes 50,000 requests with one key, half of them as questions of a back end and of a proxy, and stops the server
// in every way meanwhile. A stop loses no count, and a kill at most those that were not written: nothing that was shown, and nothing twice.
func TestUsageOverKills(t *testing.T) {
	t.Parallel()
	all := map[bool]int64{false: 50_000, true: 8_000}[underRace]
	dir := t.TempDir()
	p := start(t, dir)
	customer := p.account(t, "usage", "enterprise") // its rate has no limit
	id, key := customer.key(t, "events:read")
	path := "/api/v1/usage/keys/?key_id=" + url.QueryEscape(id)

	// use makes n requests, and returns how many passed.
	use := func(n int64) int64 {
		var left, passed atomic.Int64
		left.Store(n)
		var workers sync.WaitGroup
		asKey := newCaller(p.url, key)
		verify := object{"key": strings.TrimPrefix(key, "ApiKey ")}
		for range 8 {
			workers.Go(func() {
				for i := left.Add(-1); i >= 0; i = left.Add(-1) {
					by, method, path, body := asKey, "GET", "/api/v1/whoami/", any(nil)
					switch i % 4 {
					case 0:
						by, method, path, body = p.caller, "POST", "/api/v1/auth/verify/", verify
					case 1:
						path = "/api/v1/authz/forward/events:read/"
					}
					if answer, err := by.call(context.Background(), method, path, body); err == nil && answer.status == 200 {
						passed.Add(1)
					}
				}
			})
		}
		workers.Wait()
		return passed.Load()
	}
	// shown is how many requests the usage has.
	shown := func() (sum int64) {
		t.Helper()
		var list struct{ Data []struct{ Allowed int64 } }
		operator := p.caller
		operator.organization = customer.id
		operator.must(t, "GET", path, nil, &list)
		for _, day := range list.Data {
			sum += day.Allowed
		}
		return sum
	}
	restart := func(by syscall.Signal) int64 {
		t.Helper()
		p.end(by)
		p = start(t, dir)
		return shown()
	}

	began := time.Now()
	first, written := use(all/10), int64(0)
	for end := time.Now().Add(patience); written < first && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		written = shown() // a new key is written within seconds
	}
	first += use(all * 3 / 10)
	killed := restart(syscall.SIGKILL)
	if written == 0 || killed < written || killed > first {
		t.Errorf("%d of %d requests are counted after a kill, and %d before it", killed, first, written)
	}
	second := use(all * 4 / 10)
	stopped := restart(syscall.SIGTERM)
	if stopped != killed+second {
		t.Errorf("%d requests are counted after a stop, want %d and %d", stopped, killed, second)
	}
	third := use(all * 2 / 10)
	killedAgain := restart(syscall.SIGKILL)
	if killedAgain < stopped || killedAgain > stopped+third {
		t.Errorf("%d of %d requests are counted after a kill, and %d before the last %d", killedAgain, stopped+third, stopped, third)
	}
	if first+second+third != all {
		t.Errorf("%d of %d requests passed", first+second+third, all)
	}
	code, said := finish(t, keyhook(t, dir, "usage", "keys", id, "--csv", "--organization", customer.id))
	rows, err := csv.NewReader(strings.NewReader(said)).ReadAll()
	if code != 0 || err != nil || len(rows) < 2 {
		t.Fatalf("exit code %d, %v: %s", code, err, said)
	}
	var asCSV int64
	for _, row := range rows[1:] {
		n, _ := strconv.ParseInt(row[5], 10, 64)
		asCSV += n
	}
	if asCSV != killedAgain {
		t.Errorf("the command shows %d requests", asCSV)
	}
	t.Logf("%d requests in %s; the kills lost %d of %d, and %d of %d", all, time.Since(began), first-killed, first, stopped+third-killedAgain, third)
}
