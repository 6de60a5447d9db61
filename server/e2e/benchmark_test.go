package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// BenchmarkDelivery publishes b.N events over HTTP from 64 connections. The server has synchronous=full and one subscription,
// to a receiver in this process. The benchmark ends when each delivery is recorded.
func BenchmarkDelivery(b *testing.B) {
	receiver := silentReceiver(b)
	p := start(b, b.TempDir())
	p.subscribe(b, receiver, "a")
	p.deliver(b, "a")
}

// BenchmarkScale is BenchmarkDelivery with 1001 subscriptions on files with data. Each event goes to one subscription in turn.
// One file has millions of past deliveries, another has a million pending ones. Compare the rates with the empty file in the same
// run. Use -benchtime=20000x or similar, because each round fills its file again. That takes a minute or two.
func BenchmarkScale(b *testing.B) {
	for _, file := range []struct {
		name string
		size storagetest.Size
	}{
		{"empty", storagetest.Size{}},
		{"pending=1M", storagetest.Size{Closed: 400_000, Failing: 300_000, Later: 300_000}},
		{"history=5M", storagetest.Size{History: 5_000_000}},
		{"empty-again", storagetest.Size{}},
	} {
		b.Run(file.name, func(b *testing.B) {
			receiver, dir := silentReceiver(b), b.TempDir()
			p := start(b, dir)
			var types []string
			for row := 1; row <= 1001; row++ {
				eventType := fmt.Sprintf("n%d", row)
				p.subscribe(b, receiver, eventType)
				if storagetest.StaysHealthy(row) {
					types = append(types, eventType)
				}
			}
			p.end(syscall.SIGTERM)
			storagetest.Grow(b, filepath.Join(dir, "keyhook.db"), file.size)
			began := time.Now()
			p = start(b, dir)
			ready := time.Since(began)
			p.deliver(b, types...)
			b.ReportMetric(ready.Seconds(), "start-s")
		})
	}
}

// BenchmarkBackup publishes 250 events a second to a server with a file of about 150 MB. It does so for ten seconds without a
// backup, and for ten seconds with one backup after the other. It reports how long publishers waited: p50, p99 and maximum.
func BenchmarkBackup(b *testing.B) {
	dir := b.TempDir()
	p := start(b, dir)
	for row := range 40 {
		p.subscribe(b, "http://127.0.0.1:9/", fmt.Sprintf("n%d", row))
	}
	p.end(syscall.SIGTERM)
	storagetest.Grow(b, filepath.Join(dir, "keyhook.db"), storagetest.Size{History: 500_000})
	p = start(b, dir)
	for _, kind := range []string{"none", "by-command", "by-request", "none-again"} {
		b.Run(kind, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			var copies, largest int64
			running.Go(func() {
				for ctx.Err() == nil {
					switch kind {
					case "by-command":
						if code, said := finish(b, keyhook(b, dir, "backup", "--keep=1")); code != 0 {
							b.Errorf("exit code %d: %s", code, said)
						}
					case "by-request":
						p.must(b, "POST", "/api/v1/backups/", object{"keep": 1}, nil)
					default:
						return
					}
					copies++
				}
			})
			running.Go(func() {
				for ctx.Err() == nil {
					if info, err := os.Stat(filepath.Join(dir, "keyhook.db-wal")); err == nil {
						largest = max(largest, info.Size())
					}
					<-time.After(10 * time.Millisecond)
				}
			})
			begin := time.Now()
			waits := p.paced(b, 250, 10*time.Second)
			cancel()
			running.Wait()
			at := func(part float64) float64 {
				return float64(waits[int(part*float64(len(waits)-1))].Microseconds()) / 1000
			}
			b.ReportMetric(at(0.5), "ms-p50")
			b.ReportMetric(at(0.99), "ms-p99")
			b.ReportMetric(at(1), "ms-max")
			b.ReportMetric(float64(largest)/1e6, "MB-wal")
			b.ReportMetric(0, "ns/op")
			if copies > 0 {
				b.ReportMetric(time.Since(begin).Seconds()/float64(copies), "s-backup")
			}
		})
	}
	if info, err := os.Stat(filepath.Join(dir, "keyhook.db")); err == nil {
		b.Logf("a file of %d MB", info.Size()>>20)
	}
}

// paced publishes rate events a second, and does not wait for responses. It returns the latencies in ascending order. A latency
// counts from the planned time of the request.
func (p *process) paced(b *testing.B, rate int, during time.Duration) []time.Duration {
	b.Helper()
	var mu sync.Mutex
	var waits []time.Duration
	var all sync.WaitGroup
	begin := time.Now()
	for i := range rate * int(during.Seconds()) {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		<-time.After(time.Until(due))
		all.Go(func() {
			a, err := p.call(b.Context(), "POST", "/api/v1/events/", event("nobody", object{"text": strings.Repeat("x", 900)}))
			if err != nil || a.status != http.StatusAccepted {
				b.Errorf("status %d, error %v", a.status, err)
			}
			mu.Lock()
			waits = append(waits, time.Since(due))
			mu.Unlock()
		})
	}
	all.Wait()
	slices.Sort(waits)
	return waits
}

// silentReceiver answers 200 to everything and returns its URL.
func silentReceiver(b *testing.B) string {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	b.Cleanup(receiver.Close)
	return receiver.URL
}

// deliver publishes b.N events, of the types in turn, and waits until each is delivered and recorded.
func (p *process) deliver(b *testing.B, types ...string) {
	body := `{"data":{"text":"` + strings.Repeat("x", 900) + `"},"type":"`
	const publishers = 64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: publishers}}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				req, err := http.NewRequest("POST", p.url+"/api/v1/events/", strings.NewReader(body+types[n%int64(len(types))]+`"}`))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+operatorToken)
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusAccepted {
					b.Errorf("status %d", resp.StatusCode)
					return
				}
			}
		})
	}
	all.Wait()
	published := b.Elapsed()
	var stats struct{ Totals struct{ Succeeded int } }
	for stats.Totals.Succeeded < b.N {
		<-time.After(10 * time.Millisecond)
		p.must(b, "GET", "/api/v1/webhooks/stats/?step=86400", nil, &stats)
	}
	b.ReportMetric(float64(b.N)/published.Seconds(), "published/s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "recorded/s")
	b.ReportMetric(float64(p.status("VmRSS"))/1e6, "MB-resident")
}

// BenchmarkStart measures from exec to ready, on no file, and what an idle server holds resident.
func BenchmarkStart(b *testing.B) {
	var resident int64
	for b.Loop() {
		p := start(b, b.TempDir())
		resident = p.status("VmRSS")
		p.end(syscall.SIGTERM)
	}
	b.ReportMetric(float64(resident)/1e6, "MB-resident")
}
