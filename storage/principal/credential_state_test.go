package principal_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestCredentialState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newPlatform(t)
		owner, token := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		credential := access.Mint("svc")
		key := must[access.Key](t)(x.Directory.CreateKey(t.Context(), owner, x.By, access.NewKey{
			Credential: credential, Name: "ci", Scope: access.NewScope(access.EventsRead), ExpiresAt: new(time.Now().Add(time.Hour).UnixMilli()),
		}))
		// Each step adds a reason to refuse the key. The state names the first reason in the order of checks.
		for _, step := range []struct {
			name    string
			do      func() error
			failed  access.Check
			granted bool // whether the creator still has a role there
		}{
			{"good", func() error { return nil }, access.CheckPassed, true},
			{"of an organization without keys", func() error {
				_, err := x.Directory.UpdateOrganization(t.Context(), x.By, owner.Home.ID, access.OrganizationChange{Plan: new("free")})
				return err
			}, access.CheckPassed, true},
			{"of an inactive creator", func() error {
				_, err := x.Directory.UpdateUser(t.Context(), x.By, owner.User.ID, access.UserChange{IsActive: new(false)})
				return err
			}, access.CheckCreator, true},
			{"of one who has left", func() error { return x.Directory.RemoveMember(t.Context(), x.By, owner.Home.ID, owner.User.ID) }, access.CheckCreator, false},
			{"expired", func() error { time.Sleep(time.Hour); return nil }, access.CheckExpired, false},
			{"revoked", func() error { return x.Directory.RevokeKey(t.Context(), x.By, owner.Home.RowID, key.ID) }, access.CheckRevoked, false},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			shown := must[access.CredentialState](t)(x.Directory.KeyState(t.Context(), credential.Digest()))
			named := must[access.CredentialState](t)(x.Directory.KeyStateByID(t.Context(), key.ID))
			if diff := cmp.Diff(shown, named); diff != "" {
				t.Errorf("%s (-by digest +by id):\n%s", step.name, diff)
			}
			if got := shown.FailedCheck(time.Now().UnixMilli()); got != step.failed {
				t.Errorf("%s: failed at %s, want %s", step.name, got, step.failed)
			}
			if shown.Granted.Has(access.WebhooksWrite) != step.granted || shown.Permissions.Equal(key.Scope) != step.granted || (shown.Role == access.RoleOwner) != step.granted {
				t.Errorf("%s: role %q grants %s, effective %s", step.name, shown.Role, shown.Granted, shown.Permissions)
			}
		}
		_, err := x.Directory.KeyState(t.Context(), token.Digest())
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		_, err = x.Directory.KeyStateByID(t.Context(), owner.Token.ID)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
	})
}
