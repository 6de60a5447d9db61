package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func unlogged(o *server.Options) { o.Logger = slog.New(slog.DiscardHandler) }

// status makes a GET over the network and returns its status.
func (f *testServer) status(ctx context.Context, path string, header ...string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+path, nil)
	if err != nil {
		return 0, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := servertest.Client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// TestRevocationUnderLoad has eight connections use a key without a pause, and revokes the key meanwhile. No request that begins
// after the response to the revocation may succeed, neither here nor at a proxy.
func TestRevocationUnderLoad(t *testing.T) {
	t.Parallel()
	f := start(t, unlogged)
	owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	key, credential := storagetest.Key(t, f.Store, owner, access.EventsRead)
	const (
		connections = 8
		enoughAfter = 10_000
		enoughTime  = 2 * time.Second // on a slow machine, or with the race detector
	)
	var (
		revoked              atomic.Bool
		before, after, wrong atomic.Int64
		warm, workers        sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ends atomic.Int64 // when to stop, in Unix nanoseconds; not known before the key is revoked
	warm.Add(connections)
	for n := range connections {
		path := []string{"/api/v1/authz/forward/events:read/", "/api/v1/events/"}[n%2]
		workers.Go(func() {
			warmed := sync.OnceFunc(warm.Done)
			defer warmed()
			for passed := 0; ; {
				late := revoked.Load()
				if late && (after.Load() >= enoughAfter || time.Now().UnixNano() > ends.Load()) {
					return
				}
				switch status, err := f.status(ctx, path, "Authorization", servertest.APIKey(credential)); {
				case err != nil:
					t.Errorf("%s: %v", path, err)
					return
				case late && status == http.StatusUnauthorized:
					after.Add(1)
				case !late && status == http.StatusOK:
					before.Add(1)
				case late || status != http.StatusUnauthorized:
					wrong.Add(1)
				}
				if passed++; passed == 50 {
					warmed()
				}
			}
		})
	}
	warm.Wait()
	f.Do(t, "DELETE /api/v1/api-keys/"+key.ID+"/", servertest.Bearer(token), "").Want(t, http.StatusNoContent, "")
	ends.Store(time.Now().Add(enoughTime).UnixNano())
	revoked.Store(true)
	workers.Wait()
	if wrong.Load() != 0 || before.Load() < 50*connections/2 || after.Load() < 100 {
		t.Errorf("%d passed before, %d were refused after, %d got a wrong response", before.Load(), after.Load(), wrong.Load())
	}
	t.Logf("%d passed before, %d were refused after", before.Load(), after.Load())
}

// counting is a store that counts the lookups of keys.
type counting struct {
	server.Store
	lookups *atomic.Int64
}

func (s counting) PrincipalByKey(ctx context.Context, d access.Digest) (access.Principal, error) {
	s.lookups.Add(1)
	return s.Store.PrincipalByKey(ctx, d)
}

func TestStrangersSeldomReachTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lookups atomic.Int64
		f := build(t, unlogged, func(o *server.Options) { o.Store = counting{o.Store, &lookups} })
		handler := f.Server
		from := func(path, as string) int {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr, r.Header["Authorization"] = "198.51.100.7:1", []string{as}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code
		}
		owner, _ := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		_, good := storagetest.Key(t, f.Store, owner, access.EventsRead)
		if status := from("/api/v1/whoami/", servertest.APIKey(good)); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		lookups.Store(0)
		refused := map[int]int{}
		for n := range 10_000 {
			refused[from([]string{"/api/v1/whoami/", "/api/v1/authz/forward/"}[n%2], servertest.APIKey(access.Mint("svc")))]++
		}
		if lookups.Load() != 520 || refused[401] != 20 || refused[429] != 9_980 {
			t.Errorf("%d lookups, responses %v", lookups.Load(), refused)
		}
		if status := from("/api/v1/authz/forward/", servertest.APIKey(good)); status != http.StatusOK {
			t.Errorf("a key that was valid before: status %d", status)
		}
		time.Sleep(3 * time.Second)
		if status := from("/api/v1/authz/forward/", servertest.APIKey(access.Mint("svc"))); status != http.StatusUnauthorized || lookups.Load() != 522 {
			t.Errorf("after three seconds: status %d, %d lookups", status, lookups.Load())
		}
	})
}

// BenchmarkBesideStrangers compares how long valid keys wait alone and beside 10,000 unknown ones a second from one address. All
// of them share the machine, and so do the clients.
func BenchmarkBesideStrangers(b *testing.B) {
	f := start(b, unlogged, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	owner, _ := storagetest.Organization(b, f.Store, "acme", "enterprise", access.RoleOwner)
	_, credential := storagetest.Key(b, f.Store, owner, access.EventsRead)
	const path, rate = "/api/v1/authz/forward/", 10_000
	wait := func(n int) []time.Duration { // at a low rate
		waited := make([]time.Duration, 0, n)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range n {
			<-tick.C
			began := time.Now()
			if status, err := f.status(b.Context(), path, "Authorization", servertest.APIKey(credential), "X-Forwarded-For", "198.51.100.1"); err != nil || status != http.StatusOK {
				b.Fatalf("status %d, error %v", status, err)
			}
			waited = append(waited, time.Since(began))
		}
		return waited
	}
	var alone, beside []time.Duration
	var unknownKeys atomic.Int64
	var flood time.Duration
	for b.Loop() {
		alone = append(alone, wait(1000)...)
		ctx, stop := context.WithCancel(b.Context())
		var all sync.WaitGroup
		began := time.Now()
		for range 8 {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if ahead := time.Duration(n)*8*time.Second/rate - time.Since(began); ahead > 0 {
						timer := time.NewTimer(ahead)
						select {
						case <-timer.C:
						case <-ctx.Done():
						}
					}
					if status, err := f.status(ctx, path, "Authorization", "ApiKey svc_"+strings.Repeat("a", 36), "X-Forwarded-For", "198.51.100.7"); err == nil {
						unknownKeys.Add(1)
						if status != http.StatusTooManyRequests && status != http.StatusUnauthorized {
							b.Errorf("a bad key got %d", status)
						}
					}
				}
			})
		}
		beside = append(beside, wait(1000)...)
		stop()
		all.Wait()
		flood += time.Since(began)
	}
	p99 := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)*99/100].Microseconds())
	}
	b.ReportMetric(p99(alone), "µs-p99-alone")
	b.ReportMetric(p99(beside), "µs-p99-beside")
	b.ReportMetric(p99(beside)/p99(alone), "ratio")
	b.ReportMetric(float64(unknownKeys.Load())/flood.Seconds(), "unknown-keys/s")
}
