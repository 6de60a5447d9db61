package metrics_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/keyhook/keyhook/server/metrics"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a source for tests.
type store struct {
	backlog func(context.Context) (webhook.Backlog, error)
	sizes   func() (int64, int64, error)
}

func (s store) Backlog(ctx context.Context) (webhook.Backlog, error) { return s.backlog(ctx) }
func (s store) Sizes() (database, log int64, err error)              { return s.sizes() }

func (s store) SubscriptionCounts() webhook.SubscriptionCounts {
	return webhook.SubscriptionCounts{Healthy: 90, Failing: 8, Disabled: 7, Paused: 3}
}

func (s store) Free() (bytes uint64, ok bool) { return 8192, true }

// withoutFree is a store on a disk whose free bytes nobody knows.
type withoutFree struct{ store }

func (withoutFree) Free() (bytes uint64, ok bool) { return 0, false }

func (s store) Clock() clock.State {
	return clock.State{Seen: 3000, Doubt: &clock.Doubt{Expected: 7_203_000}}
}

func (s store) Degraded() map[string]bool {
	return map[string]bool{"disk_full": true, "damaged": false}
}

// waiting is a store with a backlog.
func waiting(b webhook.Backlog) store {
	return store{
		func(context.Context) (webhook.Backlog, error) { return b, nil },
		func() (int64, int64, error) { return 4096, 1024, nil },
	}
}

// scrape returns the values of our own series by name and labels, without the buckets of histograms.
func scrape(t *testing.T, m http.Handler) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("status %d, %v", w.Code, w.Header())
	}
	series := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "keyhook_") && !strings.Contains(name, "_bucket{") {
			series[name] = value
		}
	}
	return series
}

// shows checks some series.
func shows(t *testing.T, got, want map[string]string) {
	t.Helper()
	some := map[string]string{}
	for name := range want {
		if value, ok := got[name]; ok {
			some[name] = value
		}
	}
	if d := cmp.Diff(want, some); d != "" {
		t.Errorf("series (-want +got):\n%s", d)
	}
}

// used returns metrics in which every metric has a value.
func used() *metrics.Metrics {
	m := metrics.New()
	m.Read(waiting(webhook.Backlog{Healthy: webhook.Waiting{Lanes: 1, Deliveries: 2}}))
	m.Observe(http.MethodGet, "/a/", http.StatusUnauthorized, "invalid_key", time.Millisecond)
	m.Committed(3, time.Millisecond)
	m.Ended(webhook.Result{Succeeded: true}, webhook.Settled{State: webhook.Delivered})
	return m
}

func TestNames(t *testing.T) {
	t.Parallel()

	t.Run("follow the conventions", func(t *testing.T) {
		t.Parallel()
		problems, err := testutil.GatherAndLint(used().Gatherer())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})

	t.Run("are these, besides those of the Go runtime and the process", func(t *testing.T) {
		t.Parallel()
		families, err := used().Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		var runtime, process bool
		for _, f := range families {
			switch name := f.GetName(); {
			case strings.HasPrefix(name, "keyhook_"):
				names = append(names, strings.TrimPrefix(name, "keyhook_"))
			case name == "go_goroutines":
				runtime = true
			case name == "process_resident_memory_bytes":
				process = true
			case !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_"):
				t.Errorf("%s is none of ours", name)
			}
		}
		if !runtime || !process {
			t.Errorf("of the Go runtime: %v, of the process: %v", runtime, process)
		}
		want := []string{
			"alerts_total", "authentication_failures_total", "build_info", "clock_jump_seconds", "degraded", "deliveries_ended_total", "deliveries_oldest_due_age_seconds",
			"deliveries_pending", "delivery_attempt_duration_seconds", "delivery_attempt_failures_total", "delivery_attempts_total",
			"events_published_total", "http_connections", "http_connections_refused_total", "http_rate_limited_total", "http_request_duration_seconds", "http_requests_total",
			"http_throttled_total", "lanes", "queue_held", "scrape_errors_total", "storage_commit_duration_seconds", "storage_commit_writes",
			"storage_database_bytes", "storage_free_bytes", "storage_wal_bytes", "subscription_transitions_total", "subscriptions", "subscriptions_paused",
		}
		if d := cmp.Diff(want, names); d != "" {
			t.Errorf("names (-want +got):\n%s", d)
		}
	})
}

func TestBuild(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^keyhook_build_info\{goversion="go1[^"]+",revision="[^"]+",version="[^"]+"\}$`)
	for name, value := range scrape(t, metrics.New()) {
		if form.MatchString(name) && value == "1" {
			return
		}
	}
	t.Error("there is no build_info")
}

func TestDeliveries(t *testing.T) {
	t.Parallel()

	t.Run("begin at zero, so that the first failure is an increase", func(t *testing.T) {
		t.Parallel()
		shows(t, scrape(t, metrics.New()), map[string]string{
			`keyhook_delivery_attempts_total{outcome="succeeded"}`:            "0",
			`keyhook_delivery_attempts_total{outcome="failed"}`:               "0",
			`keyhook_delivery_attempts_total{outcome="interrupted"}`:          "0",
			`keyhook_delivery_attempt_failures_total{class="dns_error"}`:      "0",
			`keyhook_deliveries_ended_total{state="exhausted"}`:               "0",
			`keyhook_subscription_transitions_total{status="disabled"}`:       "0",
			`keyhook_events_published_total`:                                  "0",
			`keyhook_delivery_attempt_duration_seconds_sum{outcome="failed"}`: "0",
		})
	})

	t.Run("count by outcome, class and state", func(t *testing.T) {
		t.Parallel()
		m := metrics.New()
		m.Published(3)
		m.Interrupted(2)
		m.HealthChanged(webhook.Failing)
		m.Ended(webhook.Result{Succeeded: true, DurationMS: 250}, webhook.Settled{State: webhook.Delivered})
		for _, class := range append(webhook.FailureClasses(), webhook.HTTPStatus, "made up", webhook.TimeoutError) {
			m.Ended(webhook.Result{Failure: webhook.Failure{Class: class, Text: "x"}, DurationMS: 1500}, webhook.Settled{State: webhook.Pending})
		}
		late := webhook.Failure{Class: webhook.TimeoutError, Text: "x"}
		m.Ended(webhook.Result{Failure: late, Number: 5}, webhook.Settled{State: webhook.Exhausted})
		m.Ended(webhook.Result{Succeeded: true, Trigger: webhook.ByTest}, webhook.Settled{State: webhook.Delivered})
		m.Ended(webhook.Result{Failure: late, Trigger: webhook.ByTest}, webhook.Settled{State: webhook.Exhausted})
		got := scrape(t, m)
		shows(t, got, map[string]string{
			`keyhook_events_published_total`:                                       "3",
			`keyhook_delivery_attempts_total{outcome="succeeded"}`:                 "2",
			`keyhook_delivery_attempts_total{outcome="failed"}`:                    "12",
			`keyhook_delivery_attempts_total{outcome="interrupted"}`:               "2",
			`keyhook_delivery_attempt_failures_total{class="dns_error"}`:           "1",
			`keyhook_delivery_attempt_failures_total{class="connect_error"}`:       "1",
			`keyhook_delivery_attempt_failures_total{class="tls_error"}`:           "1",
			`keyhook_delivery_attempt_failures_total{class="timeout"}`:             "4",
			`keyhook_delivery_attempt_failures_total{class="blocked_address"}`:     "1",
			`keyhook_delivery_attempt_failures_total{class="http_status"}`:         "2",
			`keyhook_delivery_attempt_failures_total{class="protocol_error"}`:      "1",
			`keyhook_delivery_attempt_failures_total{class="other"}`:               "1",
			`keyhook_delivery_attempt_duration_seconds_sum{outcome="succeeded"}`:   "0.25",
			`keyhook_delivery_attempt_duration_seconds_sum{outcome="failed"}`:      "15",
			`keyhook_delivery_attempt_duration_seconds_count{outcome="succeeded"}`: "2",
			`keyhook_deliveries_ended_total{state="delivered"}`:                    "1",
			`keyhook_deliveries_ended_total{state="exhausted"}`:                    "1",
			`keyhook_subscription_transitions_total{status="failing"}`:             "1",
			`keyhook_subscription_transitions_total{status="healthy"}`:             "0",
		})
		if strings.Contains(strings.Join(keys(got), "\n"), "made up") {
			t.Error("an error's text became a label")
		}
	})
}

func keys(m map[string]string) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	return names
}

func TestRequests(t *testing.T) {
	t.Parallel()

	t.Run("are counted from the first one, also by many goroutines", func(t *testing.T) {
		t.Parallel()
		m := metrics.New()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for _, status := range []int{201, 404, 0, 99, 419, 599, 600, 1 << 40, -1} {
					m.Observe(http.MethodPost, "/a/{id}/", status, "", time.Second)
				}
			})
		}
		wg.Wait()
		shows(t, scrape(t, m), map[string]string{
			`keyhook_http_requests_total{method="POST",route="/a/{id}/",status="201"}`:    "64",
			`keyhook_http_requests_total{method="POST",route="/a/{id}/",status="404"}`:    "64",
			`keyhook_http_requests_total{method="POST",route="/a/{id}/",status="other"}`:  "448",
			`keyhook_http_request_duration_seconds_count{method="POST",route="/a/{id}/"}`: "576",
			`keyhook_http_request_duration_seconds_sum{method="POST",route="/a/{id}/"}`:   "576",
		})
	})

	t.Run("that are refused are counted by reason, whatever the status", func(t *testing.T) {
		t.Parallel()
		m := metrics.New()
		ended := func(status int, code string) { m.Observe(http.MethodGet, "/a/", status, code, 0) }
		ended(429, "rate_limited")
		ended(403, "rate_limited")
		ended(429, "too_many_failures")
		ended(401, "key_revoked")
		ended(401, "key_revoked")
		ended(404, "not_found")
		shows(t, scrape(t, m), map[string]string{
			`keyhook_http_rate_limited_total`:                                    "2",
			`keyhook_http_throttled_total`:                                       "1",
			`keyhook_authentication_failures_total{code="key_revoked"}`:          "2",
			`keyhook_http_requests_total{method="GET",route="/a/",status="404"}`: "1",
		})
	})
}

func TestCommits(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Committed(1, time.Millisecond)
	m.Committed(99, 3*time.Millisecond)
	shows(t, scrape(t, m), map[string]string{
		`keyhook_storage_commit_writes_sum`:             "100",
		`keyhook_storage_commit_writes_count`:           "2",
		`keyhook_storage_commit_duration_seconds_sum`:   "0.004",
		`keyhook_storage_commit_duration_seconds_count`: "2",
	})
}

func TestSample(t *testing.T) {
	t.Parallel()

	t.Run("is read at each scrape", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := metrics.New()
			b := webhook.Backlog{
				Healthy: webhook.Waiting{Lanes: 1, Deliveries: 2}, Failing: webhook.Waiting{Lanes: 3, Deliveries: 4},
				Closed: webhook.Waiting{Lanes: 5, Deliveries: 6}, OldestDue: time.Now().Add(-90 * time.Second).UnixMilli(),
			}
			m.Read(store{
				func(context.Context) (webhook.Backlog, error) { return b, nil },
				func() (int64, int64, error) { return 4096, 1024, nil },
			})
			shows(t, scrape(t, m), map[string]string{
				`keyhook_deliveries_pending{state="healthy"}`: "2", `keyhook_lanes{state="healthy"}`: "1",
				`keyhook_deliveries_pending{state="failing"}`: "4", `keyhook_lanes{state="failing"}`: "3",
				`keyhook_deliveries_pending{state="closed"}`: "6", `keyhook_lanes{state="closed"}`: "5",
				`keyhook_subscriptions{status="healthy"}`: "90", `keyhook_subscriptions{status="failing"}`: "8",
				`keyhook_subscriptions{status="disabled"}`: "7", `keyhook_subscriptions_paused`: "3",
				`keyhook_deliveries_oldest_due_age_seconds`: "90", `keyhook_queue_held`: "0",
				`keyhook_storage_database_bytes`: "4096", `keyhook_storage_wal_bytes`: "1024", `keyhook_scrape_errors_total`: "0",
				`keyhook_storage_free_bytes`: "8192", `keyhook_degraded{reason="disk_full"}`: "1", `keyhook_degraded{reason="damaged"}`: "0",
				`keyhook_clock_jump_seconds`: "-7200",
			})
			time.Sleep(30 * time.Second)
			b.Healthy.Deliveries, b.Held = 7, true
			shows(t, scrape(t, m), map[string]string{
				`keyhook_deliveries_pending{state="healthy"}`: "7", `keyhook_deliveries_oldest_due_age_seconds`: "120", `keyhook_queue_held`: "1",
			})
			for name, due := range map[string]int64{"due in the future": time.Now().Add(time.Hour).UnixMilli(), "none due": 0} {
				b.OldestDue = due
				if got := scrape(t, m)[`keyhook_deliveries_oldest_due_age_seconds`]; got != "0" {
					t.Errorf("%s: %s", name, got)
				}
			}
		})
	})

	t.Run("remembers the backlog if reading it is slow", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m, looks := metrics.New(), 0
			m.Read(store{
				func(context.Context) (webhook.Backlog, error) {
					time.Sleep(time.Second)
					looks++
					return webhook.Backlog{}, nil
				},
				func() (int64, int64, error) { return 1, 1, nil },
			})
			for range 60 {
				scrape(t, m)
				time.Sleep(5 * time.Second)
			}
			if looks != 3 {
				t.Errorf("%d looks of a second in five minutes, want 3", looks)
			}
		})
	})
}

func TestSampleWithoutDatabase(t *testing.T) {
	t.Parallel()

	t.Run("leaves out what it cannot read, and counts the error", func(t *testing.T) {
		t.Parallel()
		m := used()
		var broken atomic.Bool
		fail := func() error {
			if broken.Load() {
				return errors.New("disk I/O error")
			}
			return nil
		}
		m.Read(store{
			func(context.Context) (webhook.Backlog, error) { return webhook.Backlog{}, fail() },
			func() (int64, int64, error) { return 1, 1, fail() },
		})
		const pending = `keyhook_deliveries_pending{state="healthy"}`
		for i, tt := range []struct {
			broken bool
			errors string
		}{{true, "2"}, {true, "4"}, {false, "4"}} {
			broken.Store(tt.broken)
			got := scrape(t, m)
			if got[`keyhook_scrape_errors_total`] != tt.errors || got[`keyhook_delivery_attempts_total{outcome="succeeded"}`] != "1" {
				t.Errorf("scrape %d: %v", i, got)
			}
			for _, name := range []string{pending, `keyhook_storage_wal_bytes`, `keyhook_deliveries_oldest_due_age_seconds`} {
				if _, shown := got[name]; shown == tt.broken {
					t.Errorf("scrape %d: %s is shown: %v", i, name, shown)
				}
			}
		}
		m = metrics.New()
		m.Read(withoutFree{waiting(webhook.Backlog{})})
		got := scrape(t, m)
		if value, shown := got[`keyhook_storage_free_bytes`]; shown || got[`keyhook_storage_wal_bytes`] != "1024" {
			t.Errorf("free bytes that nobody knows are %q, in %v", value, got)
		}
	})

	t.Run("waits two seconds at most, and many scrapes share one read", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := used()
			var reads atomic.Int64
			m.Read(store{
				func(ctx context.Context) (webhook.Backlog, error) {
					reads.Add(1)
					<-ctx.Done()
					return webhook.Backlog{}, ctx.Err()
				},
				func() (int64, int64, error) { return 1, 1, nil },
			})
			began := time.Now()
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if got := scrape(t, m); got[`keyhook_scrape_errors_total`] != "1" || got[`keyhook_storage_wal_bytes`] != "1" {
						t.Errorf("%v", got)
					}
				})
			}
			wg.Wait()
			if took := time.Since(began); took != 2*time.Second || reads.Load() != 1 {
				t.Errorf("%d reads in %s", reads.Load(), took)
			}
		})
	})
}
