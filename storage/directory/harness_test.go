package directory_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// platform is a store of its own with its operator.
type platform struct{ storagetest.Platform }

func newPlatform(t *testing.T) platform {
	t.Helper()
	return platform{storagetest.NewPlatform(t)}
}

// told is an audit event as these tests look at it.
type told struct {
	Type, Target string
	Details      map[string]any
}

// log returns the audit events of an organization since the given one, newest first.
func (x platform) log(t *testing.T, organization int64) []told {
	t.Helper()
	page, err := x.History.AuditPage(t.Context(), organization, access.AuditFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	list := []told{}
	for _, e := range page.Rows {
		var details map[string]any
		if err := json.Unmarshal([]byte(e.Details), &details); err != nil {
			t.Fatal(err)
		}
		list = append(list, told{e.Type, e.TargetType + " " + e.TargetID, details})
	}
	return list
}

// expectLog expects the newest audit events of an organization, newest first.
func (x platform) expectLog(t *testing.T, organization int64, want ...told) {
	t.Helper()
	got := x.log(t, organization)
	if d := cmp.Diff(want, got[:min(len(got), len(want))]); d != "" {
		t.Errorf("audit log (-want +got):\n%s", d)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return storagetest.Must[T](t)
}
