package e2e

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("count the work of the process, and need no credential on this machine", func(t *testing.T) {
		t.Parallel()
		up, down := receive(t, http.StatusOK, 0), receive(t, http.StatusServiceUnavailable, 0)
		p := start(t, t.TempDir())
		p.subscribe(t, up.url, "a")
		p.subscribe(t, down.url, "a")
		for range 6 {
			p.publish(t, "a")
		}
		want := []string{
			`keyhook_delivery_attempts_total{outcome="succeeded"} 6`, `keyhook_subscription_transitions_total{status="failing"} 1`,
			"keyhook_events_published_total 6", `keyhook_deliveries_ended_total{state="delivered"} 6`,
			`keyhook_deliveries_pending{state="healthy"} 0`, `keyhook_deliveries_pending{state="failing"} 6`,
			`keyhook_lanes{state="failing"} 1`, `keyhook_subscriptions{status="healthy"} 1`, `keyhook_subscriptions{status="failing"} 1`,
			`keyhook_subscriptions{status="disabled"} 0`, `keyhook_subscriptions_paused 0`, `keyhook_delivery_attempt_failures_total{class="timeout"} 0`,
			`keyhook_http_requests_total{method="POST",route="/api/v1/events/",status="202"} 6`,
		}
		anybody := newCaller(p.url, "") // one, because each has a connection of its own
		for deadline := time.Now().Add(patience); ; sleep(t.Context(), 10*time.Millisecond) {
			a, err := anybody.call(t.Context(), "GET", "/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			got := string(a.body)
			missing := func(line string) bool { return !strings.Contains(got, "\n"+line+"\n") }
			if !slices.ContainsFunc(want, missing) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %s, not all of %q are in\n%s", patience, want, got)
			}
		}
	})

	t.Run("are only at their own listener if metrics.listen is set", func(t *testing.T) {
		t.Parallel()
		p := start(t, t.TempDir(), "KEYHOOK_METRICS_LISTEN=127.0.0.1:0")
		if status, got := get(t, "http://"+p.metrics+"/metrics"); status != http.StatusOK || !strings.Contains(got, "keyhook_build_info") {
			t.Errorf("status %d: %s", status, got)
		}
		for _, url := range []string{p.url + "/metrics", p.url + "/metrics/", "http://" + p.metrics + "/api/v1/whoami/"} {
			if status, _ := get(t, url); status != http.StatusNotFound {
				t.Errorf("%s: status %d", url, status)
			}
		}
		if a, err := p.call(t.Context(), "GET", "/metrics", nil); err != nil || a.status != http.StatusNotFound {
			t.Errorf("as operator: status %d, error %v", a.status, err)
		}
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}
