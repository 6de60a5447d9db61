package server_test

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// failingKey is a key that fails one of the checks.
type failingKey struct {
	id         string
	credential access.Credential
}

// failingKeys creates a key for each check that a stored key can fail. Each key also fails the later checks, as far as its
// organization can fail them. Each organization has one key of one creator, so that a key can fail each check alone.
func (f *testServer) failingKeys(t *testing.T) map[string]failingKey {
	t.Helper()
	f.Plan(t, "closed", false, false, "0") // neither keys nor requests
	f.Plan(t, "refusing", true, true, "0")
	keys := map[string]failingKey{}
	organization := func(name string, expiresAt *int64) access.Principal {
		t.Helper()
		p, _ := storagetest.Organization(t, f.Store, name, "growth", access.RoleOwner)
		k := access.NewKey{Credential: access.Mint("svc"), Name: "k", Scope: access.NewScope(access.EventsRead), ExpiresAt: expiresAt}
		key, err := f.Store.Directory.CreateKey(t.Context(), p, p.Actor("", ""), k)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = failingKey{key.ID, k.Credential}
		return p
	}
	past := new(time.Now().Add(-time.Second).UnixMilli())
	revoked, expired, inactive := organization("revoked", past), organization("expired", past), organization("inactive", nil)
	removed, downgraded, limited := organization("removed", nil), organization("downgraded", nil), organization("limited", nil)
	organization("foreign", nil)
	organization("powerless", nil)

	if err := f.Store.Directory.RevokeKey(t.Context(), revoked.Actor("", ""), revoked.Organization.RowID, keys["revoked"].id); err != nil {
		t.Fatal(err)
	}
	for _, p := range []access.Principal{revoked, expired, inactive} {
		f.Do(t, "PATCH /api/v1/users/"+p.User.ID+"/", servertest.Operator, `{"is_active":false}`).Want(t, 200, "")
	}
	f.Do(t, "DELETE /api/v1/organizations/"+removed.Organization.ID+"/members/"+removed.User.ID+"/", servertest.Operator, "").Want(t, 204, "")
	for _, p := range []access.Principal{revoked, expired, inactive, removed, downgraded} {
		f.Move(t, p.Organization.ID, "closed")
	}
	f.Move(t, limited.Organization.ID, "refusing")
	return keys
}
