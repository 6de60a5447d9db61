package directory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// newSystem returns the built-in operator of a new store.
func newSystem(t *testing.T) (platform, access.Principal) {
	t.Helper()
	x := newPlatform(t)
	return x, must[access.Principal](t)(x.Directory.PrincipalOfSystem(t.Context()))
}

func TestSystem(t *testing.T) {
	t.Parallel()
	t.Run("acts in the first organization with every permission, later ones included", func(t *testing.T) {
		t.Parallel()
		x, system := newSystem(t)
		if system.Organization.ID != x.Operator.Home.ID || system.Home.ID != x.Operator.Home.ID || system.Plan.Name != "enterprise" {
			t.Errorf("acts in %+v on %+v", system.Organization, system.Plan)
		}
		must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: "orders:read"}))
		storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		again := must[access.Principal](t)(x.Directory.PrincipalOfSystem(t.Context()))
		if again.Organization.ID != x.Operator.Home.ID || !again.Can("orders:read") || !again.Can(access.PlatformActAs) || system.Can("orders:read") {
			t.Errorf("before %v, now %v in %s", system.Permissions.Keys(), again.Permissions.Keys(), again.Organization.Name)
		}
	})

	t.Run("is the actor \"system\" of the audit log, and has an id to be looked up by", func(t *testing.T) {
		t.Parallel()
		x, system := newSystem(t)
		want := access.Actor{Type: "system", ID: system.User.ID, Name: "system", Organization: system.Home.RowID, RequestID: "req"}
		want.Authority = access.Authority{User: system.User.RowID, Home: system.Home.RowID}
		if d := cmp.Diff(want, system.Actor("", "req")); d != "" {
			t.Errorf("actor (-want +got):\n%s", d)
		}
		if u := must[access.User](t)(x.Directory.User(t.Context(), system.User.ID)); !u.BuiltIn || u.Name != "system" {
			t.Errorf("read %+v", u)
		}
	})

	t.Run("creates keys in its organization, and they act as it, narrowed to their scope", func(t *testing.T) {
		t.Parallel()
		x, system := newSystem(t)
		key, credential := storagetest.Key(t, x.Store, system, access.EventsWrite, access.PlatformRead)
		p := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest()))
		if p.Home.ID != system.Home.ID || p.User.ID != system.User.ID || key.CreatedBy != system.User.ID {
			t.Errorf("the key acts as %s in %s", p.User.Name, p.Home.Name)
		}
		if d := cmp.Diff([]string{access.EventsWrite, access.PlatformRead}, p.Permissions.Keys()); d != "" {
			t.Errorf("permissions (-want +got):\n%s", d)
		}
		if a := p.Actor("", ""); a.Type != "api_key" || a.ID != key.ID {
			t.Errorf("with a key, the actor is %+v", a)
		}
	})

	t.Run("creates keys of the service account in every other organization", func(t *testing.T) {
		t.Parallel()
		x, system := newSystem(t)
		acme := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "growth"}))
		_, credential := storagetest.Key(t, x.Store, system.In(acme), access.EventsWrite, access.PlatformRead)
		p := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest()))
		if p.Home.ID != acme.ID || !p.User.IsService() || p.Permissions.String() != access.EventsWrite {
			t.Errorf("the key acts as %s in %s with %s", p.User.Name, p.Home.Name, p.Permissions)
		}
	})

	t.Run("is in no list of users or members, and keeps nobody from the last operator's place", func(t *testing.T) {
		t.Parallel()
		x, system := newSystem(t)
		for _, u := range must[access.Page[access.ListedUser]](t)(x.Directory.UserPage(t.Context(), "", 0, 10)).Rows {
			if u.ID == system.User.ID {
				t.Error("the list of users shows it")
			}
		}
		if members := must[[]access.Member](t)(x.Directory.Members(t.Context(), system.Home.ID, 0, 10)); len(members) != 1 {
			t.Errorf("members are %+v", members)
		}
		storagetest.ExpectFault(t, x.Directory.RemoveMember(t.Context(), x.By, x.Operator.Home.ID, x.Operator.User.ID), fault.Conflict, "last_operator")
	})

	t.Run("stays as it is, and gets no token and no membership", func(t *testing.T) {
		t.Parallel()
		x, system := newSystem(t)
		id, org := system.User.ID, system.Home.ID
		_, err := x.Directory.UpdateUser(t.Context(), x.By, id, access.UserChange{IsActive: new(false)})
		storagetest.ExpectFault(t, err, fault.Conflict, "built_in")
		storagetest.ExpectFault(t, x.Directory.DeleteUser(t.Context(), x.By, id), fault.Conflict, "built_in")
		_, err = x.Directory.SetMember(t.Context(), x.By, org, id, access.RoleMember)
		storagetest.ExpectFault(t, err, fault.Conflict, "built_in")
		storagetest.ExpectFault(t, x.Directory.RemoveMember(t.Context(), x.By, org, id), fault.Conflict, "built_in")
		_, err = x.Directory.CreateToken(t.Context(), x.By, id, org, access.Mint(access.TokenPrefix), "mine", nil)
		storagetest.ExpectFault(t, err, fault.Conflict, "built_in")
	})
}
