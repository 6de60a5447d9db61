package principal_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// colleagues are two people who both belong to three organizations, with a role of their own in each. Each has a session that may
// switch. Their keys in the caches differ in one part at a time.
type colleagues struct {
	platform
	organizations []access.Organization
	people        []access.User
	sessions      []access.Credential
}

// Roles of the first and the second person in the three organizations.
var rolesOfColleagues = [][]string{
	{access.RoleOwner, access.RoleOwner, access.RoleMember},
	{access.RoleMember, access.RoleMember, access.RoleOwner},
}

func newColleagues(t *testing.T) colleagues {
	t.Helper()
	x := colleagues{platform: newPlatform(t)}
	ctx := t.Context()
	for _, name := range []string{"first", "second", "third"} {
		x.organizations = append(x.organizations,
			must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: name, Plan: "growth", ExternalID: new("ext-" + name)})))
	}
	for i, name := range []string{"ada", "bob"} {
		user := must[access.User](t)(x.Directory.CreateUser(ctx, x.By, access.User{Name: name, ExternalID: new(name), IsActive: true}))
		for j, o := range x.organizations {
			must[access.Member](t)(x.Directory.SetMember(ctx, x.By, o.ID, user.ID, rolesOfColleagues[i][j]))
		}
		x.people, x.sessions = append(x.people, user), append(x.sessions, access.MintSession())
		identity := access.Identity{Subject: name}
		p := must[access.Principal](t)(x.Directory.PrincipalToSignIn(ctx, identity))
		must[access.Session](t)(x.Directory.CreateIdentitySession(ctx, p, identity, p.Actor("", ""), x.sessions[i]))
	}
	return x
}

// switched returns the principal of a session in an organization, as a request has it.
func (x colleagues) switched(t *testing.T, session int, named string) (access.Principal, error) {
	own, err := x.Directory.PrincipalBySession(t.Context(), x.sessions[session].Digest())
	if err != nil {
		return own, err
	}
	return x.Directory.SwitchOrganization(t.Context(), own, named)
}

// TestColleaguesAreNotConfused asks for each person in each organization, first read and then from the cache.
func TestColleaguesAreNotConfused(t *testing.T) {
	t.Parallel()
	x := newColleagues(t)
	expect := func(t *testing.T, p access.Principal, who, where int) {
		t.Helper()
		isOwner := rolesOfColleagues[who][where] == access.RoleOwner
		if p.User.ID != x.people[who].ID || p.Organization.ID != x.organizations[where].ID || p.Home.ID != x.organizations[where].ID || p.Can(access.APIKeysWrite) != isOwner {
			t.Errorf("%s in %s is %s in %s with %s", x.people[who].Name, x.organizations[where].Name, p.User.Name, p.Home.Name, p.Permissions)
		}
	}
	for range 2 {
		for who, user := range x.people {
			for where, o := range x.organizations {
				for _, named := range []string{o.ID, *o.ExternalID} {
					expect(t, must[access.Principal](t)(x.switched(t, who, named)), who, where)
					expect(t, must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: user.Name}, named)), who, where)
					expect(t, must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: user.Name, Organization: named}, "")), who, where)
				}
			}
		}
	}
}

// TestTwoSessionsOfAPerson switches two sessions of one person to one organization.
func TestTwoSessionsOfAPerson(t *testing.T) {
	t.Parallel()
	x := newColleagues(t)
	me, again := access.Identity{Subject: "ada"}, access.MintSession()
	p := must[access.Principal](t)(x.Directory.PrincipalToSignIn(t.Context(), me))
	must[access.Session](t)(x.Directory.CreateIdentitySession(t.Context(), p, me, p.Actor("", ""), again))
	x.sessions[1] = again
	for range 2 {
		for i, session := range x.sessions {
			own := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), session.Digest()))
			if there := must[access.Principal](t)(x.switched(t, i, "ext-third")); there.Session.ID != own.Session.ID || there.Home.Name != "third" {
				t.Errorf("session %s acts as %s in %s", own.Session.ID, there.Session.ID, there.Home.Name)
			}
		}
	}
}

// TestARemovedMemberDoesNotSwitch removes one of two people from an organization to which the sessions of both have switched.
func TestARemovedMemberDoesNotSwitch(t *testing.T) {
	t.Parallel()
	x := newColleagues(t)
	second := x.organizations[1]
	where := func(session int) string {
		return must[access.Principal](t)(x.switched(t, session, second.ID)).Home.Name
	}
	if where(0) != "second" || where(1) != "second" {
		t.Fatal("the sessions do not switch")
	}
	if err := x.Directory.RemoveMember(t.Context(), x.By, second.ID, x.people[0].ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if where(0) != "first" || where(1) != "second" {
			t.Errorf("the removed one is in %s, the other in %s", where(0), where(1))
		}
	}
	must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, x.people[1].ID, access.UserChange{IsActive: new(false)}))
	if p, err := x.switched(t, 1, second.ID); err == nil {
		t.Errorf("a deactivated user acts in %s", p.Home.Name)
	}
}

// TestChangesHoldAtOnceForEveryCredential is TestChangesHoldAtOnce for the other caches.
func TestChangesHoldAtOnceForEveryCredential(t *testing.T) {
	t.Parallel()
	me := access.Identity{Subject: "ada"}
	hasKeys := func(p access.Principal, err error) bool { return err == nil && p.Plan.APIKeys }
	downgrade := func(t *testing.T, x colleagues) error {
		_, err := x.Directory.UpdatePlan(t.Context(), x.By, "growth", access.PlanChange{APIKeys: new(false)})
		return err
	}
	upgrade := func(t *testing.T, x colleagues) error {
		_, err := x.Directory.UpdatePlan(t.Context(), x.By, "growth", access.PlanChange{APIKeys: new(true)})
		return err
	}
	for name, tt := range map[string]struct {
		ask      func(t *testing.T, x colleagues) func() (access.Principal, error)
		before   func(access.Principal, error) bool
		do, undo func(*testing.T, colleagues) error
	}{
		"an access token": {func(t *testing.T, x colleagues) func() (access.Principal, error) {
			_, token := storagetest.Member(t, x.Store, x.organizations[0], "eve", access.RoleOwner)
			return func() (access.Principal, error) { return x.Directory.PrincipalByToken(t.Context(), token.Digest()) }
		}, hasKeys, downgrade, upgrade},
		"an identity": {func(t *testing.T, x colleagues) func() (access.Principal, error) {
			return func() (access.Principal, error) { return x.Directory.PrincipalByIdentity(t.Context(), me, "ext-first") }
		}, hasKeys, downgrade, upgrade},
		"a session": {func(t *testing.T, x colleagues) func() (access.Principal, error) {
			return func() (access.Principal, error) {
				return x.Directory.PrincipalBySession(t.Context(), x.sessions[0].Digest())
			}
		}, hasKeys, downgrade, upgrade},
		"a switched session of a user who is removed": {func(t *testing.T, x colleagues) func() (access.Principal, error) {
			return func() (access.Principal, error) { return x.switched(t, 0, "ext-second") }
		}, func(p access.Principal, err error) bool { return err == nil && p.Home.Name == "second" }, func(t *testing.T, x colleagues) error {
			return x.Directory.RemoveMember(t.Context(), x.By, "ext-second", x.people[0].ID)
		}, func(t *testing.T, x colleagues) error {
			_, err := x.Directory.SetMember(t.Context(), x.By, "ext-second", x.people[0].ID, access.RoleOwner)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newColleagues(t)
			ask := tt.ask(t, x)
			for range 8 {
				if late := underLoad(t, x.platform, ask, tt.before, func() error { return tt.do(t, x) }); late > 0 {
					t.Fatalf("%d requests that began after the change saw what was before", late)
				}
				if err := tt.undo(t, x); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestThePermissionsBehindAWrite are those of the person in the organization, and of the credential.
func TestThePermissionsBehindAWrite(t *testing.T) {
	t.Parallel()
	x := newColleagues(t)
	expect := func(name string, a access.Authority, want access.Scope) {
		t.Helper()
		var got access.Scope
		err := x.Write(t.Context(), sqlite.Work{}, func(tx *sqlite.Tx) (err error) {
			got, err = principal.PermissionsOf(tx, a)
			return err
		})
		if err != nil || got.String() != want.String() {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	for i, person := range x.people {
		for _, o := range x.organizations {
			p := must[access.Principal](t)(x.switched(t, i, o.ID))
			expect(person.Name+" in "+o.Name, access.Authority{User: p.User.RowID, Home: p.Organization.RowID}, p.Permissions)
		}
		own := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), x.sessions[i].Digest()))
		expect(person.Name+" by session", own.Authority(), own.Permissions)
	}
	owner := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), x.sessions[0].Digest()))
	key, _ := storagetest.Key(t, x.Store, owner, access.EventsRead)
	expect("a key", access.Authority{User: owner.User.RowID, Home: owner.Home.RowID, Key: key.RowID}, access.NewScope(access.EventsRead))
	expect("nobody", access.Authority{}, access.Scope{})
	err := x.Write(t.Context(), sqlite.Work{}, func(tx *sqlite.Tx) error {
		_, err := principal.PermissionsOf(tx, access.Authority{User: owner.User.RowID, Home: owner.Home.RowID, Session: "ses_ended"})
		return err
	})
	if fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("a session that has ended: %v", err)
	}
}

// TestASessionOfAClockThatWasAhead would last too long.
func TestASessionOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newColleagues(t)
		for i, ahead := range []time.Duration{clock.Tolerance, clock.Tolerance + time.Millisecond} {
			storagetest.Exec(t, x.Store, "UPDATE sessions SET created_at = ? WHERE user_id = ?", time.Now().Add(ahead).UnixMilli(), x.people[i].RowID)
			_, err := x.Directory.PrincipalBySession(t.Context(), x.sessions[i].Digest())
			if isRefused := fault.KindOf(err) == fault.Unauthenticated; isRefused != (i == 1) || err != nil && i == 0 {
				t.Errorf("%s ahead: %v", ahead, err)
			}
		}
	})
}
