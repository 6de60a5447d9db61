package directory_test

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestIdentities(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	ctx := t.Context()
	user := func(name string, externalID *string, active bool) access.User {
		return must[access.User](t)(x.Directory.CreateUser(ctx, x.By, access.User{Email: name + "@example.com", Name: name, ExternalID: externalID, IsActive: active}))
	}
	org := func(name string, externalID *string) access.Organization {
		return must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: name, Plan: "growth", ExternalID: externalID}))
	}
	join := func(o access.Organization, u access.User, role string) {
		must[access.Member](t)(x.Directory.SetMember(ctx, x.By, o.ID, u.ID, role))
	}
	one, two, other := org("one", new("ext-one")), org("two", nil), org("other", new("ext-other"))
	impostor := org("impostor", new(one.ID)) // its external id is the id of another
	single, double, plain := user("single", new("s-1"), true), user("double", new("d-1"), true), user("plain", nil, true)
	user("nowhere", new("n-1"), true)
	join(one, user("unbound", nil, true), access.RoleMember)
	asleep := user("asleep", new("a-1"), false)
	join(one, single, access.RoleOwner)
	join(one, double, access.RoleMember)
	join(two, double, access.RoleOwner)
	join(two, plain, access.RoleMember)
	join(one, asleep, access.RoleOwner)
	join(impostor, double, access.RoleMember)

	for name, tt := range map[string]struct {
		identity access.Identity
		named    string
		user, in string // who acts where
		kind     fault.Kind
		code     string
	}{
		"by the subject":                           {access.Identity{Subject: "s-1"}, "", single.ID, one.ID, 0, ""},
		"by the subject, whatever the address":     {access.Identity{Subject: "s-1", Email: plain.Email}, "", single.ID, one.ID, 0, ""},
		"by the address":                           {access.Identity{Subject: "p-1", Email: "PLAIN@example.com"}, "", plain.ID, two.ID, 0, ""},
		"not by the address of another subject":    {access.Identity{Subject: "p-2", Email: single.Email}, "", "", "", fault.Unauthenticated, "subject_mismatch"},
		"not by an address that nobody has":        {access.Identity{Subject: "p-2", Email: "no@example.com"}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not as the first operator by the address": {access.Identity{Subject: "p-2", Email: "Admin@localhost"}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not as the built-in user by its word":     {access.Identity{Subject: "p-2", Email: "system"}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not by a subject that nobody has":         {access.Identity{Subject: "p-2"}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not by a subject of another case":         {access.Identity{Subject: "S-1"}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not by an address as the subject":         {access.Identity{Subject: plain.Email}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not by the id of a user":                  {access.Identity{Subject: single.ID}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not by an id that the address would bind": {access.Identity{Subject: other.ID, Email: "unbound@example.com"}, "", "", "", fault.Unauthenticated, "unknown_user"},
		"not for one who is inactive":              {access.Identity{Subject: "a-1"}, "", "", "", fault.Unauthenticated, "user_inactive"},
		"not for one who is nowhere a member":      {access.Identity{Subject: "n-1"}, "", "", "", fault.Unauthenticated, "not_a_member"},
		"in the organization that is claimed":      {access.Identity{Subject: "d-1", Organization: two.ID}, "", double.ID, two.ID, 0, ""},
		"in the one claimed by its external id":    {access.Identity{Subject: "d-1", Organization: "ext-one"}, "", double.ID, one.ID, 0, ""},
		"in the one whose id is claimed, first":    {access.Identity{Subject: "d-1", Organization: one.ID}, "", double.ID, one.ID, 0, ""},
		"in the one claimed, whatever is named":    {access.Identity{Subject: "d-1", Organization: two.ID}, one.ID, double.ID, two.ID, 0, ""},
		"not in one claimed that is another's":     {access.Identity{Subject: "d-1", Organization: other.ID}, "", "", "", fault.Unauthenticated, "not_a_member"},
		"not in one claimed that does not exist":   {access.Identity{Subject: "d-1", Organization: "nothing"}, one.ID, "", "", fault.Unauthenticated, "not_a_member"},
		"not in one claimed although it has a one": {access.Identity{Subject: "s-1", Organization: "ext-other"}, "", "", "", fault.Unauthenticated, "not_a_member"},
		"in the only one, whatever is named":       {access.Identity{Subject: "s-1"}, other.ID, single.ID, one.ID, 0, ""},
		"in the one named, of several":             {access.Identity{Subject: "d-1"}, two.ID, double.ID, two.ID, 0, ""},
		"in the oldest, if another's is named":     {access.Identity{Subject: "d-1"}, other.ID, double.ID, one.ID, 0, ""},
		"in one named by its external id":          {access.Identity{Subject: "d-1"}, "ext-one", double.ID, one.ID, 0, ""},
		"also if it is named by its external id":   {access.Identity{Subject: "d-1"}, "ext-other", double.ID, one.ID, 0, ""},
		"not without a name, of several":           {access.Identity{Subject: "d-1"}, "", "", "", fault.Malformed, "organization_required"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // read, and cached
				p, err := x.Directory.PrincipalByIdentity(ctx, tt.identity, tt.named)
				if tt.code != "" {
					storagetest.ExpectFault(t, err, tt.kind, tt.code)
					continue
				}
				if err != nil || p.User.ID != tt.user || p.Organization.ID != tt.in || p.Home.ID != tt.in || p.Key != nil || p.Token != nil || p.Session != nil {
					t.Fatalf("%v, %+v", err, p)
				}
				role, err := x.Directory.Members(ctx, tt.in, 0, 10)
				if err != nil || len(role) == 0 || p.Permissions.Empty() {
					t.Errorf("%v: %s", err, p.Permissions)
				}
			}
		})
	}
}

// TestIdentitiesAreExact changes the facts that connect an identity to a user. The next lookup returns the new result.
func TestIdentitiesAreExact(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	ctx := t.Context()
	owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	second := must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: "second", Plan: "growth"}))
	i := access.Identity{Subject: "u-1", Email: owner.User.Email}
	ask := func() string {
		p, err := x.Directory.PrincipalByIdentity(ctx, i, "")
		if f, ok := fault.As(err); ok {
			return f.Code
		}
		if err != nil {
			t.Fatal(err)
		}
		role, _, _ := strings.Cut(p.Permissions.String(), " ")
		return p.User.Name + " " + role
	}
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"at first, by the address", func() error { return nil }, owner.User.Name + " api_keys:read"},
		{"which has bound the user, and loses the binding again", func() error {
			u, err := x.Directory.User(ctx, owner.User.ID)
			if err != nil || u.ExternalID == nil || *u.ExternalID != "u-1" {
				t.Errorf("%v: the user's external id is %v", err, u.ExternalID)
			}
			_, err = x.Directory.UpdateUser(ctx, x.By, owner.User.ID, access.UserChange{ExternalID: new("")})
			return err
		}, owner.User.Name + " api_keys:read"},
		{"another user gets the subject", func() error {
			if _, err := x.Directory.UpdateUser(ctx, x.By, owner.User.ID, access.UserChange{ExternalID: new("")}); err != nil {
				return err
			}
			u, err := x.Directory.CreateUser(ctx, x.By, access.User{Email: "other@example.com", Name: "other", ExternalID: new("u-1"), IsActive: true})
			if err != nil {
				return err
			}
			_, err = x.Directory.SetMember(ctx, x.By, second.ID, u.ID, access.RoleMember)
			i.Organization = ""
			return err
		}, "other api_keys:read"},
		{"which loses it again", func() error {
			users, err := x.Directory.UserPage(ctx, "", 0, 1)
			if err != nil {
				return err
			}
			_, err = x.Directory.UpdateUser(ctx, x.By, users.Rows[0].ID, access.UserChange{ExternalID: new("")})
			return err
		}, owner.User.Name + " api_keys:read"},
		{"the role has less", func() error {
			if _, err := x.Directory.CreateRole(ctx, x.By, access.Role{Name: "clerk", Permissions: access.NewScope(access.EventsRead)}); err != nil {
				return err
			}
			_, err := x.Directory.SetMember(ctx, x.By, owner.Home.ID, owner.User.ID, "clerk")
			return err
		}, owner.User.Name + " events:read"},
		{"a second membership", func() error {
			_, err := x.Directory.SetMember(ctx, x.By, second.ID, owner.User.ID, "clerk")
			return err
		}, "organization_required"},
		{"which ends", func() error { return x.Directory.RemoveMember(ctx, x.By, second.ID, owner.User.ID) }, owner.User.Name + " events:read"},
		{"the user has another subject", func() error {
			_, err := x.Directory.UpdateUser(ctx, x.By, owner.User.ID, access.UserChange{ExternalID: new("u-2")})
			return err
		}, "subject_mismatch"},
		{"the user has this subject", func() error {
			_, err := x.Directory.UpdateUser(ctx, x.By, owner.User.ID, access.UserChange{ExternalID: new("u-1")})
			return err
		}, owner.User.Name + " events:read"},
		{"the user is dismissed", func() error {
			_, err := x.Directory.UpdateUser(ctx, x.By, owner.User.ID, access.UserChange{IsActive: new(false)})
			return err
		}, "user_inactive"},
		{"the user comes back, and leaves the organization", func() error {
			if _, err := x.Directory.UpdateUser(ctx, x.By, owner.User.ID, access.UserChange{IsActive: new(true)}); err != nil {
				return err
			}
			return x.Directory.RemoveMember(ctx, x.By, owner.Home.ID, owner.User.ID)
		}, "not_a_member"},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for range 2 {
			if got := ask(); got != step.want {
				t.Errorf("%s: %s, want %s", step.name, got, step.want)
			}
		}
	}
}

// TestFirstSignInBindsTheSubject has two subjects sign in with the e-mail address of one user.
func TestFirstSignInBindsTheSubject(t *testing.T) {
	t.Parallel()
	setUp := func(t *testing.T) (platform, access.Principal) {
		x := newPlatform(t)
		ada, _ := storagetest.Organization(t, x.Store, "ada", "growth", access.RoleOwner)
		return x, ada
	}
	sub := func(t *testing.T, x platform, u access.User) *string {
		return must[access.User](t)(x.Directory.User(t.Context(), u.ID)).ExternalID
	}

	t.Run("the first one is bound and audited, and every other one is refused", func(t *testing.T) {
		t.Parallel()
		x, ada := setUp(t)
		first := access.Identity{Subject: "first", Email: ada.User.Email}
		for range 2 {
			must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), first, ""))
		}
		if got := sub(t, x, ada.User); got == nil || *got != "first" {
			t.Errorf("the external id is %v", got)
		}
		events := must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), ada.Home.RowID, access.AuditFilter{Type: access.UserUpdated, Limit: 10})).Rows
		if len(events) != 1 || events[0].Actor.ID != ada.User.ID || events[0].TargetID != ada.User.ID || !strings.Contains(events[0].Details, `"external_id":"first"`) {
			t.Errorf("the audit log has %+v", events)
		}
		_, err := x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "second", Email: ada.User.Email}, "")
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "subject_mismatch")
		must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "first", Email: "new@example.com"}, ""))
	})

	t.Run("one of many at once wins", func(t *testing.T) {
		t.Parallel()
		x, ada := setUp(t)
		var signedIn atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				_, err := x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "s" + strconv.Itoa(i), Email: ada.User.Email}, "")
				if err == nil {
					signedIn.Add(1)
				} else if f, ok := fault.As(err); !ok || f.Code != "subject_mismatch" {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := signedIn.Load(); n != 1 {
			t.Errorf("%d subjects were taken for the user", n)
		}
	})

	t.Run("a sign-in that is refused binds nothing", func(t *testing.T) {
		t.Parallel()
		x, ada := setUp(t)
		_, err := x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "first", Email: ada.User.Email, Organization: "another"}, "")
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "not_a_member")
		if got := sub(t, x, ada.User); got != nil {
			t.Errorf("the external id is %s", *got)
		}
	})
}

// TestIdentitiesAreNotConfused asks for identities whose parts make the same text when they are joined.
func TestIdentitiesAreNotConfused(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, owner.User.ID, access.UserChange{ExternalID: new("u-12")}))
	for range 2 { // the second time from the cache
		must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "u-12"}, ""))
		for _, other := range []access.Identity{{Subject: "u-1", Email: "2"}, {Subject: "u-1", Organization: "2"}} {
			_, err := x.Directory.PrincipalByIdentity(t.Context(), other, "")
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "unknown_user")
		}
		_, err := x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "u-1"}, "2")
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "unknown_user")
	}
}
