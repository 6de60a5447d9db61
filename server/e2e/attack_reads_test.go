package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// logged starts a process in which the attacker's subscriptions have a log of this many attempts each. It returns the paths
// of their logs.
func logged(b *testing.B, attempts int) (p *process, attacker *organization, logs []string) {
	b.Helper()
	const subscriptions = 10 // as few as Grow takes
	dir := b.TempDir()
	p = start(b, dir)
	attacker = p.organization(b, "attacker")
	for range subscriptions {
		id := attacker.subscribe(b, closedPort(b), "grown")
		logs = append(logs, "/api/v1/webhooks/subscriptions/"+id+"/deliveries/")
	}
	p.end(terminate)
	storagetest.Grow(b, filepath.Join(dir, "keyhook.db"), storagetest.Size{History: subscriptions * attempts})
	attacker.base = "" // of the process that has ended
	p = start(b, dir)
	attacker.base = p.url
	return p, attacker, logs
}

// unfound is a filter that no attempt of the log passes, so that all of it is read.
const unfound = "?event_type=none.such&limit=200"

// BenchmarkAttackLongReads: one customer reads a log of 200,000 attempts from two connections, by a filter that nothing
// passes. A reader that always has a snapshot open keeps the write-ahead log from restarting.
func BenchmarkAttackLongReads(b *testing.B) {
	p, attacker, logs := logged(b, 200_000)
	v := p.victim(b)
	var seen outcomes
	attack{during: 60 * time.Second, act: func(ctx context.Context) {
		var all sync.WaitGroup
		all.Go(func() {
			repeat(ctx, 2, func(ctx context.Context) {
				if a, err := attacker.call(ctx, "GET", logs[0]+unfound, nil); err == nil {
					seen.add(fmt.Sprintf("%d %s", a.status, a.code()))
				}
			})
		})
		all.Go(func() { // a busy publisher, who fills the log of changes
			repeat(ctx, 4, func(ctx context.Context) {
				_ = v.try(ctx, "POST", "/api/v1/events/", event("nobody.wants", object{"text": text1K}), nil) // the figures show a failure
			})
		})
		all.Wait()
	}}.measure(b, p, v)
	b.Logf("answers to the attacker: %v", seen.count)
	b.ReportMetric(float64(p.size(b, "-wal"))/1e6, "wal-afterwards-MB")
}

var text1K = fmt.Sprintf("%01000d", 0)

// BenchmarkAttackReaders: one key with webhooks:read reads logs and statistics from 16 connections. Another customer reads
// its own, and replays.
func BenchmarkAttackReaders(b *testing.B) {
	p, attacker, logs := logged(b, 100_000)
	v := p.victim(b)
	sub := v.subscribe(b, v.receiver.url, "victim.reads")
	reading := newCaller(p.url, "")
	_, reading.authorization = attacker.key(b, "webhooks:read")
	for _, read := range []struct {
		name, method, path string
		body               any
	}{
		{"log", "GET", "/api/v1/webhooks/subscriptions/" + sub + "/deliveries/", nil},
		{"stats", "GET", "/api/v1/webhooks/stats/", nil},
		{"audit", "GET", "/api/v1/audit-events/", nil},
		{"events", "GET", "/api/v1/events/", nil},
		{"replay", "POST", "/api/v1/webhooks/subscriptions/" + sub + "/replay/", object{"since": time.Now().Add(-time.Hour), "dry_run": true}},
	} {
		b.Run(read.name, func(b *testing.B) {
			var own times
			attack{during: 10 * time.Second, lead: time.Second, act: func(ctx context.Context) {
				var all sync.WaitGroup
				all.Go(func() {
					repeat(ctx, 16, func(ctx context.Context) {
						_, _ = reading.call(ctx, "GET", logs[int(time.Now().UnixMicro())%len(logs)]+unfound, nil) // whatever it answers
					})
				})
				all.Go(func() {
					repeat(ctx, 1, func(ctx context.Context) { own.call(ctx, v.caller, read.method, read.path, read.body) })
				})
				all.Wait()
			}}.measure(b, p, v)
			own.report(b, "own-read")
		})
	}
}

// times are how long calls took, and what they answered.
type times struct {
	mu   sync.Mutex
	took latencies
	seen outcomes
	bad  int // other than 2xx
}

func (t *times) call(ctx context.Context, c caller, method, path string, body any) {
	begin := time.Now()
	a, err := c.call(ctx, method, path, body)
	took := time.Since(begin)
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, took)
	if err != nil {
		t.seen.add("no answer")
	} else {
		t.seen.add(fmt.Sprintf("%d %s", a.status, a.code()))
	}
	if err != nil || a.status >= http.StatusMultipleChoices {
		t.bad++
	}
}

// report is called when nothing more is called.
func (t *times) report(b *testing.B, name string) {
	t.took.sort()
	b.ReportMetric(ms(t.took.part(0.5)), name+"-p50-ms")
	b.ReportMetric(ms(t.took.part(0.99)), name+"-p99-ms")
	b.ReportMetric(float64(t.bad), name+"-errors")
	b.Logf("%s: %v", name, t.seen.count)
}
