package server_test

import (
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestRetryAfterTheStorageQuota(t *testing.T) {
	t.Parallel()
	f := build(t)
	f.Do(t, "POST /api/v1/plans/", servertest.Operator, `{"name":"full","webhooks":true,"api_rate_limit_per_minute":null,"max_stored_bytes_per_day":0}`).Want(t, 201, "")
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.Move(t, owner.Home.ID, "full")
	got := f.Do(t, "POST /api/v1/events/", servertest.Bearer(token), `{"type":"a","data":{}}`).Want(t, 429, "storage_quota_exceeded")
	if after := got.Header.Get("Retry-After"); after != "3600" {
		t.Errorf("Retry-After is %s", after)
	}
}
