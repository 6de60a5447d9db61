package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestLeaving closes a customer with many pending deliveries and erases its owner, and kills the server meanwhile, again and
// again. Nothing is sent after the answer, a neighbour can publish all the time, and at the end no file has a name.
func TestLeaving(t *testing.T) {
	t.Parallel()
	const name = "Globex Corporation"
	pending := map[bool]int{false: 100_000, true: 10_000}[underRace]
	dir := t.TempDir()
	path := filepath.Join(dir, "keyhook.db")
	p := start(t, dir)
	leaving, stays := p.account(t, name, "enterprise"), p.account(t, "neighbour", "enterprise")
	to := receive(t, http.StatusOK, 0)
	sub := leaving.subscribe(t, to.url+"globex", "bulk")
	leaving.must(t, "PATCH", "/api/v1/webhooks/subscriptions/"+sub+"/", object{"rate_limit_per_second": 5}, nil)
	leaving.publish(t, "bulk")
	p.end(syscall.SIGTERM)
	now := time.Now().UnixMilli()
	numbers := fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", pending)
	change(t, path,
		numbers+fmt.Sprintf(`INSERT INTO events (id, organization_id, type, created_at, held, body)
			SELECT 1000000 + i, (SELECT organization_id FROM subscriptions LIMIT 1), 'bulk', %d, 0, CAST('{"type":"bulk","data":{"to":"%s"}}' AS BLOB) FROM n`, now, name),
		`INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
			SELECT e.id, s.id, 0, 0, 0, e.created_at FROM events e JOIN subscriptions s WHERE e.id > 1000000`)
	p = start(t, dir)
	at := func(c *organization) *organization {
		return &organization{newCaller(p.url, c.authorization), c.name, c.id}
	}

	slowest := new(atomic.Int64)
	publishing := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		neighbour := at(stays)
		go func() {
			defer close(done)
			for sleep(ctx, 5*time.Millisecond) {
				began := time.Now()
				if err := neighbour.try(ctx, "POST", "/api/v1/events/", event("a", object{}), nil); err == nil {
					slowest.Store(max(slowest.Load(), int64(time.Since(began))))
				}
			}
		}()
		return func() { cancel(); <-done }
	}

	var owner struct {
		Data []struct {
			ID string `json:"user_id"`
		}
	}
	p.must(t, "GET", "/api/v1/organizations/"+leaving.id+"/members/", nil, &owner)
	stop := publishing()
	began := time.Now()
	closePath, erasePath := "/api/v1/organizations/"+leaving.id+"/close/", "/api/v1/users/"+owner.Data[0].ID+"/erase/"
	var closed struct {
		Complete bool
		Pending  int `json:"pending_deliveries"`
	}
	p.must(t, "POST", closePath, nil, &closed)
	took := time.Since(began)
	p.must(t, "POST", erasePath, nil, nil)
	if closed.Pending < pending/2 || closed.Complete { // a few deliveries were sent before
		t.Errorf("the closure is %+v", closed)
	}
	time.Sleep(100 * time.Millisecond) // requests that had begun
	sent := to.requests()

	kills := 0
	for ; kills < cycles; kills++ {
		time.Sleep(200 * time.Millisecond)
		if count(t, path, "SELECT count(*) FROM organizations WHERE closed_at IS NOT NULL AND cleaned_at IS NULL") == 0 {
			break
		}
		stop()
		p.end(syscall.SIGKILL)
		p = start(t, dir)
		stop = publishing()
	}
	for _, path := range []string{closePath, erasePath} {
		for complete := false; !complete; time.Sleep(50 * time.Millisecond) {
			var got struct{ Complete bool }
			p.must(t, "POST", path, nil, &got)
			if complete = got.Complete; time.Since(began) > 5*time.Minute {
				t.Fatalf("POST %s is not complete after 5 minutes", path)
			}
		}
	}
	stop()
	t.Logf("closed in %s, complete after %s and %d kills; the slowest publication of the neighbour took %s",
		took, time.Since(began), kills, time.Duration(slowest.Load()))
	if n := to.requests(); n != sent {
		t.Errorf("%d requests were sent after the answer", n-sent)
	}
	if kills == 0 {
		t.Error("nothing was interrupted")
	}
	if a, err := at(leaving).call(t.Context(), "GET", "/api/v1/whoami/", nil); err != nil || a.status != http.StatusUnauthorized {
		t.Errorf("the token of the customer: %d, %v", a.status, err)
	}
	var backup struct{ File string }
	if a, err := p.call(t.Context(), "POST", "/api/v1/backups/", object{"keep": 1}); err != nil || json.Unmarshal(a.body, &backup) != nil {
		t.Fatalf("backup: %d, %v", a.status, err)
	}
	p.end(syscall.SIGTERM)
	for _, at := range []string{filepath.Join(dir, "backups", filepath.Base(backup.File)), path} {
		if at == path {
			change(t, path, "VACUUM")
		}
		content, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, trace := range []string{name, "Globex-Corporation@example.com", "/globex"} {
			if bytes.Contains(content, []byte(trace)) {
				t.Errorf("%s has %q", at, trace)
			}
		}
	}
}
