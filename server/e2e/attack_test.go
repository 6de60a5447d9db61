package e2e

import (
	"context"
	"sync"
	"testing"
	"time"
)

// attack measures what the victim notices: alone, then while act runs. act begins lead before the measurement and must
// return when its context ends.
type attack struct {
	lead   time.Duration
	during time.Duration // of each measurement; 0: 20 s
	grace  time.Duration // for deliveries to arrive afterwards; 0: 15 s
	act    func(ctx context.Context)
}

// measure reports the victim's figures, the errors, the peak of memory and the largest write-ahead log.
func (a attack) measure(b *testing.B, p *process, v *victim) {
	b.Helper()
	if a.during == 0 {
		a.during = 20 * time.Second
	}
	if a.grace == 0 {
		a.grace = 15 * time.Second
	}
	v.publishFor(b.Context(), a.during/2, a.grace).report(b, "alone")
	p.forgetPeak(b)
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { a.act(ctx) })
	var wal int64
	running.Go(func() {
		for sleep(ctx, 20*time.Millisecond) {
			wal = max(wal, p.size(b, "-wal"))
		}
	})
	sleep(ctx, a.lead)
	beside := v.publishFor(ctx, a.during, a.grace)
	cancel()
	running.Wait()
	beside.report(b, "beside")
	b.ReportMetric(float64(beside.failed()), "errors")
	b.ReportMetric(float64(beside.missing), "missing")
	b.ReportMetric(float64(p.peakMemory())/1e6, "rss-MB")
	b.ReportMetric(float64(wal)/1e6, "wal-MB")
	b.ReportMetric(0, "ns/op")
	if !p.alive() {
		b.Errorf("the process has ended: %.2000s", p.said())
	}
}

// repeat runs act from n goroutines, again and again, until ctx ends.
func repeat(ctx context.Context, n int, act func(ctx context.Context)) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				act(ctx)
			}
		})
	}
	all.Wait()
}

// outcomes counts the responses by their text.
type outcomes struct {
	mu    sync.Mutex
	count map[string]int
}

func (t *outcomes) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int{}
	}
	t.count[what]++
}
