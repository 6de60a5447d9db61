package platform_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestSystem(t *testing.T) {
	t.Parallel()
	late := ""
	f := servertest.Start(t, func(o *server.Options) {
		o.Deliveries = func(context.Context) (string, error) { return late, nil }
	})
	type described struct {
		Version, Commit string
		Date            string    `json:"commit_date"`
		Go              string    `json:"go_version"`
		SQLite          string    `json:"sqlite_version"`
		Started         time.Time `json:"started_at"`
		Now             time.Time
		Database        struct {
			Path        string
			Bytes       int64
			Log         int64   `json:"wal_bytes"`
			Free        *uint64 `json:"free_bytes"`
			Schema      int64   `json:"schema_version"`
			Commits     int64
			Synchronous string
		}
		Deliveries struct{ Warning *string }
		Clock      struct{ Trusted bool }
	}
	get := func(t *testing.T) (s described) {
		t.Helper()
		got := f.Do(t, "GET /api/v1/system/", servertest.Operator, "").Want(t, 200, "")
		if err := json.Unmarshal([]byte(got.Text), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Run("describes the process and the database", func(t *testing.T) {
		s := get(t)
		if s.Version == "" || s.Commit == "" || s.Date == "" || s.Go == "" || !strings.HasPrefix(s.SQLite, "3.") || s.Now.Before(s.Started) || time.Since(s.Started) > time.Minute {
			t.Errorf("%+v", s)
		}
		d := s.Database
		if d.Path != f.Store.Path() || d.Bytes == 0 || d.Log == 0 || d.Free == nil || d.Schema != 1 || d.Synchronous != "normal" || !s.Clock.Trusted {
			t.Errorf("%+v", s)
		}
		storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		if after := get(t).Database.Commits; after <= d.Commits {
			t.Errorf("%d commits, and %d after changes", d.Commits, after)
		}
	})
	t.Run("says why deliveries are not sent", func(t *testing.T) {
		if w := get(t).Deliveries.Warning; w != nil {
			t.Errorf("without a problem: %s", *w)
		}
		late = "deliveries are late"
		if w := get(t).Deliveries.Warning; w == nil || *w != late {
			t.Errorf("late: %v", w)
		}
		f.Do(t, "POST /api/v1/queue/hold/", servertest.Operator, "").Want(t, 200, "")
		if w := get(t).Deliveries.Warning; w == nil || *w == late {
			t.Errorf("held: %v", w)
		}
	})
}
