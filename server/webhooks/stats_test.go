package webhooks_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

type statsTally struct {
	Succeeded, Failed int
	Durations         []int
	Estimates         *struct{ P50, P95, P99 float64 } `json:"duration_ms"`
}

type statsSeries struct {
	Since, Until time.Time
	Step         int
	Bounds       []int `json:"duration_bounds_ms"`
	Totals       statsTally
	Data         []struct {
		At time.Time
		statsTally
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	quiet, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "never.happens")
	f.Attempted(t, owner, sub, 4)

	get := func(t *testing.T, query string) (s statsSeries) {
		t.Helper()
		testResponse := f.Do(t, "GET /api/v1/webhooks/stats/"+query, as, "").Want(t, 200, "")
		if err := json.Unmarshal([]byte(testResponse.Text), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}

	t.Run("are a series without gaps until now", func(t *testing.T) {
		s := get(t, "")
		if len(s.Data) < 60 || len(s.Data) > 61 || s.Step != 60 || !s.Until.After(time.Now().Add(-time.Minute)) {
			t.Fatalf("%d points of %d s until %s", len(s.Data), s.Step, s.Until)
		}
		sum := 0
		for i, p := range s.Data {
			if want := s.Since.Add(time.Duration(i) * time.Minute); !p.At.Equal(want) {
				t.Fatalf("point %d is at %s, want %s", i, p.At, want)
			}
			if n := p.Succeeded + p.Failed; (n == 0) != (p.Estimates == nil) || len(p.Durations) != len(s.Bounds)+1 {
				t.Errorf("point %d: %+v", i, p)
			}
			sum += p.Succeeded
		}
		if sum != 2 || s.Totals.Succeeded != 2 || s.Totals.Failed != 2 {
			t.Errorf("%d succeeded, totals %+v", sum, s.Totals)
		}
		if d := cmp.Diff([]int{0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}, s.Totals.Durations); d != "" {
			t.Errorf("durations of four that took 12 ms (-want +got):\n%s", d)
		}
		if e := s.Totals.Estimates; e.P50 <= 10 || e.P50 > e.P95 || e.P95 > e.P99 || e.P99 > 25 {
			t.Errorf("estimates %+v", e)
		}
	})

	t.Run("can be limited to one subscription", func(t *testing.T) {
		if s := get(t, "?subscription_id="+sub.ID); s.Totals.Failed != 2 {
			t.Errorf("totals %+v", s.Totals)
		}
		if s := get(t, "?subscription_id="+quiet.ID); s.Totals.Failed+s.Totals.Succeeded != 0 || len(s.Data) < 60 {
			t.Errorf("totals %+v in %d points", s.Totals, len(s.Data))
		}
	})

	t.Run("cover the period in whole steps", func(t *testing.T) {
		for query, want := range map[string]struct {
			since, until string
			step, points int
		}{
			"?since=2026-01-01T10:00:30Z&until=2026-01-01T10:02:01Z":             {"2026-01-01T10:00:00Z", "2026-01-01T10:03:00Z", 60, 3},
			"?since=2026-01-01T10:07:00Z&until=2026-01-01T10:08:00Z&step=300":    {"2026-01-01T10:05:00Z", "2026-01-01T10:10:00Z", 300, 1},
			"?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z":             {"2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", 300, 288},
			"?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z&step=60":     {"2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", 60, 1440},
			"?since=2026-01-01T12:00:00Z&until=2026-01-03T00:00:00Z&step=86400":  {"2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z", 86400, 2},
			"?since=2023-01-01T00:00:00Z&until=2026-01-01T00:00:00%2B00:00":      {"2023-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 86400, 1096},
			"?since=2099-01-01T00:00:00Z&until=2099-01-01T00:01:00Z&step=060":    {"2099-01-01T00:00:00Z", "2099-01-01T00:01:00Z", 60, 1},
			"?since=1970-01-01T00:00:00Z&until=1970-01-01T00:01:00Z&step=3600":   {"1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z", 3600, 1},
			"?since=2026-01-01T00:00:00Z&until=2026-01-01T00:00:00.001Z&step=60": {"2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", 60, 1},
		} {
			s := get(t, query)
			if s.Since.Format(time.RFC3339) != want.since || s.Until.Format(time.RFC3339) != want.until || s.Step != want.step || len(s.Data) != want.points {
				t.Errorf("%s: %s to %s, %d s, %d points; want %+v", query, s.Since, s.Until, s.Step, len(s.Data), want)
			}
		}
	})

	t.Run("refuse an invalid period, and name the parameter", func(t *testing.T) {
		for query, field := range map[string]string{
			"?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "until",
			"?since=2026-01-01T00:00:00Z&until=2026-01-01T00:00:00Z": "until",
			"?since=yesterday":                    "since",
			"?since=2026-01-01T00:00:00Z&until=x": "until",
			"?until=0":                            "until",
			"?step=0":                             "step",
			"?step=90":                            "step",
			"?step=-60":                           "step",
			"?step=1e3":                           "step",
			"?step=":                              "step",
			"?step=99999999999999999999":          "step",
			"?step=172800":                        "step",
			"?since=2026-01-01T00:00:00Z&until=2026-02-01T00:00:00Z&step=60": "step",
			"?since=1970-01-01T00:00:00Z&until=2026-01-01T00:00:00Z":         "since",
			"?subscription_id=a%20b":                                         "subscription_id",
			"?cursor=x":                                                      "cursor",
			"?bucket=60":                                                     "bucket",
		} {
			a := f.Do(t, "GET /api/v1/webhooks/stats/"+query, as, "")
			if fields := a.Fields(); a.StatusCode != 400 || len(fields) != 1 || fields[0][:len(field)] != field {
				t.Errorf("%s: %d, %v", query, a.StatusCode, fields)
			}
		}
	})

	t.Run("do not include other organizations", func(t *testing.T) {
		f.Do(t, "GET /api/v1/webhooks/stats/?subscription_id="+sub.ID, servertest.Bearer(other), "").Want(t, 404, "not_found")
		testResponse := f.Do(t, "GET /api/v1/webhooks/stats/", servertest.Bearer(other), "").Want(t, 200, "")
		var s statsSeries
		if err := json.Unmarshal([]byte(testResponse.Text), &s); err != nil || s.Totals.Succeeded != 0 {
			t.Errorf("%v, totals %+v", err, s.Totals)
		}
	})
}

func TestStatsOfAllOrganizations(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	var subs []string
	var as string
	for _, name := range []string{"acme", "beta"} {
		owner, token := storagetest.Organization(t, f.Store, name, "growth", access.RoleOwner)
		sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
		f.Attempted(t, owner, sub, 2+len(subs))
		subs, as = append(subs, sub.ID), servertest.Bearer(token)
	}
	got := f.Do(t, "GET /api/v1/webhooks/stats/?organization=all", servertest.Operator, "").Want(t, 200, "")
	var s statsSeries
	if err := json.Unmarshal([]byte(got.Text), &s); err != nil || s.Totals.Succeeded != 3 || s.Totals.Failed != 2 || len(s.Data) < 60 {
		t.Errorf("%v, totals %+v in %d points", err, s.Totals, len(s.Data))
	}
	f.Do(t, "GET /api/v1/webhooks/stats/?organization=all", as, "").Want(t, 403, "permission_denied")
	f.Do(t, "GET /api/v1/webhooks/stats/?organization=all&subscription_id="+subs[0], servertest.Operator, "").Want(t, 400, "invalid_parameter")
}
