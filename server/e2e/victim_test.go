package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// victim is a well-behaved customer: it publishes at a steady rate to its own healthy receiver.
type victim struct {
	*organization
	receiver *receiver
	sent     int
}

// victimRate is how many events a second the victim publishes.
const victimRate = 20

func (p *process) victim(tb testing.TB) *victim {
	tb.Helper()
	v := &victim{organization: p.organization(tb, "victim"), receiver: receive(tb, 204, 0)}
	v.subscribe(tb, v.receiver.url, "victim.tick")
	v.publishFor(tb.Context(), time.Second, 10*time.Second) // so that connections and caches are warm
	return v
}

// latencies are sorted.
type latencies []time.Duration

func (l latencies) sort() { slices.Sort(l) }

// part returns the latency that this part of all does not exceed; 0 if there are none.
func (l latencies) part(of float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[int(of*float64(len(l)-1))]
}

// figures are what the victim noticed.
type figures struct {
	published, delivered latencies // both from when the event was due to be published
	errors               map[string]int
	missing              int // events that were acknowledged and have not arrived
}

func (f figures) failed() (n int) {
	for _, count := range f.errors {
		n += count
	}
	return n
}

func (f figures) String() string {
	var failures []string
	for _, what := range slices.Sorted(maps.Keys(f.errors)) {
		failures = append(failures, fmt.Sprintf("%d × %s", f.errors[what], what))
	}
	return fmt.Sprintf("publish p50 %s p99 %s, delivery p50 %s p99 %s, %d missing, %d failed %s",
		f.published.part(0.5), f.published.part(0.99), f.delivered.part(0.5), f.delivered.part(0.99), f.missing, f.failed(), strings.Join(failures, ", "))
}

// publishFor publishes for a while, then waits until everything has arrived, but at most for grace. An event that has not
// arrived by then counts with the time that has passed.
func (v *victim) publishFor(ctx context.Context, during, grace time.Duration) figures {
	f := figures{errors: map[string]int{}}
	due := map[int]time.Time{} // of events that were acknowledged
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for i := range int(during * victimRate / time.Second) {
		v.sent++
		n, at := v.sent, begin.Add(time.Duration(i)*time.Second/victimRate)
		if !sleep(ctx, time.Until(at)) {
			break
		}
		all.Go(func() {
			a, err := v.call(ctx, "POST", "/api/v1/events/", event("victim.tick", object{"n": n}))
			mu.Lock()
			defer mu.Unlock()
			f.published = append(f.published, time.Since(at))
			switch {
			case err != nil:
				f.errors["no answer"]++
			case a.status != 202:
				f.errors[fmt.Sprintf("%d %s", a.status, a.code())]++
			default:
				due[n] = at
			}
		})
	}
	all.Wait()
	deadline := time.Now().Add(grace)
	for n, at := range due {
		for v.receiver.at(n).IsZero() && time.Now().Before(deadline) && sleep(ctx, 5*time.Millisecond) {
		}
		arrived := v.receiver.at(n)
		if arrived.IsZero() {
			arrived = time.Now()
			f.missing++
		}
		f.delivered = append(f.delivered, arrived.Sub(at))
	}
	f.published.sort()
	f.delivered.sort()
	return f
}

// sleep waits, and reports whether ctx lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (f figures) report(b *testing.B, when string) {
	b.ReportMetric(ms(f.published.part(0.5)), when+"-publish-p50-ms")
	b.ReportMetric(ms(f.published.part(0.99)), when+"-publish-p99-ms")
	b.ReportMetric(ms(f.delivered.part(0.5)), when+"-delivery-p50-ms")
	b.ReportMetric(ms(f.delivered.part(0.99)), when+"-delivery-p99-ms")
	b.Logf("%s: %s", when, f)
}
