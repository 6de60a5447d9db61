package directory_test

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// customer is an organization without members.
func (x platform) customer(t *testing.T, name string) access.Organization {
	t.Helper()
	return must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: name, Plan: "growth", ExternalID: new(name)}))
}

// account returns the service account of an organization as its only member.
func (x platform) account(t *testing.T, o access.Organization) access.Member {
	t.Helper()
	members := must[[]access.Member](t)(x.Directory.Members(t.Context(), o.ID, 0, 10))
	if len(members) != 1 || !members[0].IsService || members[0].Role != access.RoleOwner || members[0].Email != "" {
		t.Fatalf("members are %+v", members)
	}
	return members[0]
}

// createOf creates a key of a named user.
func (x platform) createOf(t *testing.T, by access.Principal, user string, scope ...string) (access.Key, error) {
	t.Helper()
	return x.Directory.CreateKey(t.Context(), by, by.Actor("", "req"), access.NewKey{
		Credential: access.Mint("svc"), Name: "theirs", User: user, Scope: access.NewScope(scope...),
	})
}

func TestServiceAccount(t *testing.T) {
	t.Parallel()

	t.Run("gets the keys of a caller who is no member, and the log names the caller", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		acme := x.customer(t, "acme")
		key, credential := storagetest.Key(t, x.Store, x.Operator.In(acme), access.EventsWrite, access.PlatformRead)
		account := x.account(t, acme)
		if key.CreatedBy != account.UserID || key.Scope.String() != access.EventsWrite {
			t.Errorf("created %+v", key)
		}
		p := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest()))
		if p.User.ID != account.UserID || !p.User.IsService() || p.Home.ID != acme.ID {
			t.Errorf("the key acts as %+v", p.User)
		}
		page := must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), acme.RowID, access.AuditFilter{Limit: 10, Type: access.KeyCreated}))
		if e := page.Rows[0]; e.Actor.ID != x.Operator.User.ID {
			t.Errorf("the log names %+v", e.Actor)
		}
		again, _ := storagetest.Key(t, x.Store, x.Operator.In(acme), access.EventsWrite)
		if again.CreatedBy != x.account(t, acme).UserID {
			t.Errorf("the second key belongs to %s", again.CreatedBy)
		}
		if other := x.customer(t, "other"); len(must[[]access.Member](t)(x.Directory.Members(t.Context(), other.ID, 0, 10))) != 0 {
			t.Error("an organization without keys has a service account")
		}
	})
	t.Run("grants no more than the caller has", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		acme := x.customer(t, "acme")
		narrow := x.byKey(t, x.Operator, access.APIKeysWrite, access.PlatformActAs, access.EventsRead)
		key := must[access.Key](t)(x.createOf(t, narrow.In(acme), "", access.EventsRead, access.EventsWrite))
		if key.Scope.String() != access.EventsRead {
			t.Errorf("granted %q", key.Scope)
		}
		_, err := x.createOf(t, narrow.In(acme), "", access.EventsWrite)
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
	})
	t.Run("is not made by a refused creation", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		acme := x.customer(t, "acme")
		_, err := x.createOf(t, x.Operator.In(acme), "", access.PlatformRead)
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
		if members := must[[]access.Member](t)(x.Directory.Members(t.Context(), acme.ID, 0, 10)); len(members) != 0 {
			t.Errorf("members are %+v", members)
		}
	})
	t.Run("does not get the keys of members, also not of members from elsewhere", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, owner.Home.ID, x.Operator.User.ID, access.RoleMember))
		for _, by := range []access.Principal{owner, x.Operator.In(owner.Home)} {
			if key := must[access.Key](t)(x.createOf(t, by, "", access.EventsRead)); key.CreatedBy != by.User.ID {
				t.Errorf("the key of %s belongs to %s", by.User.Name, key.CreatedBy)
			}
		}
	})
	t.Run("keeps its key in a rotation by a member, with what the member has", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		theirs := must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, owner.Home.ID, x.Operator.User.ID, access.RoleMember))
		if err := x.Directory.RemoveMember(t.Context(), x.By, owner.Home.ID, theirs.UserID); err != nil {
			t.Fatal(err)
		}
		key, _ := storagetest.Key(t, x.Store, x.Operator.In(owner.Home), access.EventsRead, access.EventsWrite)
		reader, _ := storagetest.Member(t, x.Store, owner.Home, "reader", access.RoleMember)
		made, _ := x.rotated(t, reader, key.ID, 0)
		if made.CreatedBy != key.CreatedBy || made.Scope.String() != access.EventsRead {
			t.Errorf("rotated into %+v", made)
		}
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		_, _, err := x.rotate(t, other.In(owner.Home), made.ID, 0) // it may not act elsewhere any more
		storagetest.ExpectFault(t, err, fault.Conflict, "not_a_member")
		again, _ := x.rotated(t, x.Operator.In(owner.Home), made.ID, 0)
		if again.CreatedBy != key.CreatedBy {
			t.Errorf("rotated into %+v", again)
		}
	})
	t.Run("takes over a key of a member that a caller from elsewhere rotates", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		key, _ := storagetest.Key(t, x.Store, owner, access.EventsRead)
		made, _ := x.rotated(t, x.Operator.In(owner.Home), key.ID, 0)
		user := must[access.User](t)(x.Directory.User(t.Context(), made.CreatedBy))
		if !user.IsService() || *user.ServiceOf != owner.Home.RowID {
			t.Errorf("rotated into a key of %+v", user)
		}
	})
}

func TestServiceAccountStays(t *testing.T) {
	t.Parallel()

	t.Run("while it has live keys, and comes back when it is needed", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		acme := x.customer(t, "acme")
		key, credential := storagetest.Key(t, x.Store, x.Operator.In(acme), access.EventsWrite)
		account := x.account(t, acme)
		storagetest.ExpectFault(t, x.Directory.RemoveMember(t.Context(), x.By, acme.ID, account.UserID), fault.Conflict, "in_use")
		must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest()))
		if err := x.Directory.RevokeKey(t.Context(), x.By, acme.RowID, key.ID); err != nil {
			t.Fatal(err)
		}
		if err := x.Directory.RemoveMember(t.Context(), x.By, acme.ID, account.UserID); err != nil {
			t.Fatal(err)
		}
		again, _ := storagetest.Key(t, x.Store, x.Operator.In(acme), access.EventsWrite)
		if again.CreatedBy != account.UserID || x.account(t, acme).UserID != account.UserID {
			t.Errorf("the key belongs to %s", again.CreatedBy)
		}
	})
	t.Run("what it is: nobody signs in as it, and its membership does not change", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		acme, other := x.customer(t, "acme"), x.customer(t, "other")
		storagetest.Key(t, x.Store, x.Operator.In(acme), access.EventsWrite)
		id := x.account(t, acme).UserID
		_, err := x.Directory.CreateToken(t.Context(), x.By, id, acme.ID, access.Mint(access.TokenPrefix), "", nil)
		storagetest.ExpectFault(t, err, fault.Invalid, "service_account")
		for _, c := range []access.UserChange{{Email: new("a@example.com")}, {ExternalID: new("sub")}} {
			_, err := x.Directory.UpdateUser(t.Context(), x.By, id, c)
			storagetest.ExpectFault(t, err, fault.Invalid, "service_account")
		}
		_, err = x.Directory.PutUser(t.Context(), x.By, id, access.UserChange{Email: new("a@example.com")})
		storagetest.ExpectFault(t, err, fault.Invalid, "service_account")
		_, err = x.Directory.SetMember(t.Context(), x.By, acme.ID, id, access.RoleMember)
		storagetest.ExpectFault(t, err, fault.Conflict, "service_account")
		_, err = x.Directory.SetMember(t.Context(), x.By, other.ID, id, access.RoleOwner)
		storagetest.ExpectFault(t, err, fault.Conflict, "service_account")
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, acme.ID, id, access.RoleOwner))
	})
	t.Run("refused when it is inactive", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		acme := x.customer(t, "acme")
		_, credential := storagetest.Key(t, x.Store, x.Operator.In(acme), access.EventsWrite)
		must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, x.account(t, acme).UserID, access.UserChange{IsActive: new(false)}))
		_, err := x.Directory.PrincipalByKey(t.Context(), credential.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "creator_inactive")
		_, err = x.createOf(t, x.Operator.In(acme), "", access.EventsWrite)
		storagetest.ExpectFault(t, err, fault.Conflict, "user_inactive")
	})
	t.Run("until its organization is deleted", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		acme := x.customer(t, "acme")
		key, _ := storagetest.Key(t, x.Store, x.Operator.In(acme), access.EventsWrite)
		id := x.account(t, acme).UserID
		storagetest.ExpectFault(t, x.DeleteOrganization(t.Context(), x.By, acme.ID), fault.Conflict, "in_use")
		if err := x.Directory.RunStatement(t.Context(), "DELETE FROM api_keys WHERE public_id = ?", key.ID); err != nil {
			t.Fatal(err)
		}
		if err := x.DeleteOrganization(t.Context(), x.By, acme.ID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.User(t.Context(), id)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
	})
}

func TestKeyOfANamedUser(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	reader, _ := storagetest.Member(t, x.Store, owner.Home, "reader", access.RoleMember)
	must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, reader.User.ID, access.UserChange{ExternalID: new("reader-1")}))
	other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
	elsewhere := x.Operator.In(owner.Home)
	service, _ := storagetest.Key(t, x.Store, elsewhere, access.EventsRead)
	foreign, _ := storagetest.Key(t, x.Store, x.Operator.In(other.Home), access.EventsRead)
	system := must[access.Principal](t)(x.Directory.PrincipalOfSystem(t.Context()))

	for name, tt := range map[string]struct {
		by          access.Principal
		user, owner string
		scope       string
	}{
		"belongs to the member, with what the member has": {elsewhere, reader.User.ID, reader.User.ID, access.EventsRead},
		"is named by the external id":                     {elsewhere, "reader-1", reader.User.ID, access.EventsRead},
		"may be the service account":                      {elsewhere, service.CreatedBy, service.CreatedBy, access.EventsRead + " " + access.EventsWrite},
		"may be one's own, without platform:act_as":       {owner, owner.User.ID, owner.User.ID, access.EventsRead + " " + access.EventsWrite},
	} {
		t.Run(name, func(t *testing.T) {
			key := must[access.Key](t)(x.createOf(t, tt.by, tt.user, access.EventsRead, access.EventsWrite, access.PlatformRead))
			if key.CreatedBy != tt.owner || key.Scope.String() != tt.scope {
				t.Errorf("created %+v", key)
			}
		})
	}
	for name, tt := range map[string]struct {
		by     access.Principal
		user   string
		kind   fault.Kind
		code   string
		fields []string
	}{
		"is refused without platform:act_as":                   {owner, reader.User.ID, fault.Forbidden, "permission_denied", nil},
		"is refused without it whether the user exists or not": {owner, "nobody", fault.Forbidden, "permission_denied", nil},
		"is refused for somebody who does not exist":           {elsewhere, "nobody", fault.Invalid, "validation_failed", []string{"user_id unknown_user"}},
		"is refused for a user of another organization":        {elsewhere, other.User.ID, fault.Invalid, "validation_failed", []string{"user_id not_a_member"}},
		"is refused for another's service account":             {elsewhere, foreign.CreatedBy, fault.Invalid, "validation_failed", []string{"user_id not_a_member"}},
		"is refused for the built-in user":                     {elsewhere, system.User.ID, fault.Invalid, "validation_failed", []string{"user_id unknown_user"}},
		"is refused for oneself without a membership":          {elsewhere, x.Operator.User.ID, fault.Conflict, "not_a_member", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := x.createOf(t, tt.by, tt.user, access.EventsRead)
			storagetest.ExpectFault(t, err, tt.kind, tt.code, tt.fields...)
		})
	}
	t.Run("ends with the member", func(t *testing.T) {
		credential := access.Mint("svc")
		must[access.Key](t)(x.Directory.CreateKey(t.Context(), elsewhere, x.By, access.NewKey{
			Credential: credential, Name: "x", User: "reader-1", Scope: access.NewScope(access.EventsRead), ExpiresAt: new(time.Now().Add(time.Hour).UnixMilli()),
		}))
		if err := x.Directory.RemoveMember(t.Context(), x.By, owner.Home.ID, reader.User.ID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.PrincipalByKey(t.Context(), credential.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "creator_inactive")
	})
}
