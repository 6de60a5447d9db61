package webhooks_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/storagetest"
)

type subscriptionSeries struct {
	Since, Until time.Time
	Step         int
	Data         []struct {
		ID                string `json:"subscription_id"`
		Succeeded, Failed []int
	}
}

// sums returns the ids of the series with the sums of succeeded and failed attempts.
func (s subscriptionSeries) sums() (ids []string, sums [][2]int) {
	for _, d := range s.Data {
		sum := [2]int{}
		for i := range d.Succeeded {
			sum[0] += d.Succeeded[i]
			sum[1] += d.Failed[i]
		}
		ids, sums = append(ids, d.ID), append(sums, sum)
	}
	return ids, sums
}

func TestSubscriptionStats(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	stranger, _ := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	busy, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
	quiet, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "never.happens")
	theirs, _ := storagetest.Subscription(t, f.Store, stranger, "https://example.com/", "user.created")
	f.Attempted(t, owner, busy, 4)
	f.Attempted(t, stranger, theirs, 2)
	f.Do(t, "DELETE /api/v1/webhooks/subscriptions/"+busy.ID+"/", as, "").Want(t, 204, "")
	const path = "GET /api/v1/webhooks/stats/subscriptions/?subscription_id="
	get := func(t *testing.T, query string) (s subscriptionSeries) {
		t.Helper()
		got := f.Do(t, path+query, as, "").Want(t, 200, "")
		if err := json.Unmarshal([]byte(got.Text), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}

	t.Run("are in the order of the request, once each, without those that do not exist or belong to others", func(t *testing.T) {
		s := get(t, strings.Join([]string{quiet.ID, theirs.ID, busy.ID, publicid.New(access.SubscriptionID), quiet.ID}, ","))
		ids, sums := s.sums()
		if d := cmp.Diff([]string{quiet.ID, busy.ID}, ids); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff([][2]int{{0, 0}, {2, 2}}, sums); d != "" {
			t.Errorf("sums of succeeded and failed (-want +got):\n%s", d)
		}
	})
	t.Run("have a number for each step of the period", func(t *testing.T) {
		for query, points := range map[string]int{
			"&since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z":           96,
			"&since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z&step=3600": 24,
			"&since=2026-01-01T00:00:00Z&until=2026-01-08T00:00:00Z":           28,
			"&since=2026-01-01T00:00:00Z&until=2026-03-01T00:00:00Z":           59,
		} {
			s := get(t, busy.ID+query)
			if n := len(s.Data[0].Succeeded); n != points || len(s.Data[0].Failed) != n || s.Until.Sub(s.Since) != time.Duration(n*s.Step)*time.Second {
				t.Errorf("%s: %d points of %d s, want %d", query, n, s.Step, points)
			}
		}
		if s := get(t, busy.ID); len(s.Data[0].Succeeded) < 60 || s.Data[0].Succeeded[len(s.Data[0].Succeeded)-1]+s.Data[0].Succeeded[len(s.Data[0].Succeeded)-2] != 2 {
			t.Errorf("the last hour: %+v", s)
		}
	})
	t.Run("refuse what is too much, and name the parameter", func(t *testing.T) {
		many := make([]string, 201)
		for i := range many {
			many[i] = publicid.New(access.SubscriptionID)
		}
		for query, field := range map[string]string{
			"":                      "subscription_id",
			"a%20b":                 "subscription_id",
			busy.ID + ",":           "subscription_id",
			strings.Join(many, ","): "subscription_id",
			strings.Join(many[:200], ",") + "&since=2026-01-01T00:00:00Z&until=2026-01-04T00:00:00Z": "since",
			busy.ID + "&since=2026-01-01T00:00:00Z&until=2026-06-01T00:00:00Z":                       "since",
			busy.ID + "&since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z&step=60":               "step",
		} {
			a := f.Do(t, path+query, as, "").Want(t, 400, "invalid_parameter")
			if fields := a.Fields(); len(fields) != 1 || fields[0] != field+": invalid_parameter" {
				t.Errorf("%s: %v", query, fields)
			}
		}
		if s := get(t, strings.Join(many[:200], ",")+"&since=2026-01-01T00:00:00Z&until=2026-01-03T00:00:00Z"); len(s.Data) != 0 {
			t.Errorf("unknown subscriptions: %+v", s.Data)
		}
	})
}
