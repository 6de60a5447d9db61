package server_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestRetryAfterTheStorageQuota waits for the next day, and an hour at most.
func TestRetryAfterTheStorageQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		f.Do(t, "POST /api/v1/plans/", servertest.Operator, `{"name":"full","webhooks":true,"api_rate_limit_per_minute":null,"max_stored_bytes_per_day":0}`).Want(t, 201, "")
		owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		f.Move(t, owner.Home.ID, "full")
		for _, before := range []time.Duration{12 * time.Hour, time.Hour, 30 * time.Minute, time.Second} {
			midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
			time.Sleep(time.Until(midnight.Add(-before)))
			got := f.Do(t, "POST /api/v1/events/", servertest.Bearer(token), `{"type":"a","data":{}}`).Want(t, 429, "storage_quota_exceeded")
			if want := fmt.Sprint(min(before, time.Hour).Seconds()); got.Header.Get("Retry-After") != want {
				t.Errorf("%s before midnight, Retry-After is %s, want %s", before, got.Header.Get("Retry-After"), want)
			}
		}
	})
}
