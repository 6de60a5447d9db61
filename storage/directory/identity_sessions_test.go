package directory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// traveler is a user who belongs to three organizations, in this order: an owner, a member, an operator.
type traveler struct {
	platform
	user               access.User
	first, second, ops access.Organization
}

func newTraveler(t *testing.T) traveler {
	t.Helper()
	x := traveler{platform: newPlatform(t)}
	ctx := t.Context()
	x.user = must[access.User](t)(x.Directory.CreateUser(ctx, x.By, access.User{Name: "Ida", ExternalID: new("idp|1"), IsActive: true}))
	for _, in := range []struct {
		o          *access.Organization
		name, role string
	}{{&x.first, "first", access.RoleOwner}, {&x.second, "second", access.RoleMember}, {&x.ops, "ops", access.RoleOperator}} {
		*in.o = must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: in.name, Plan: "growth", ExternalID: new("ext-" + in.name)}))
		must[access.Member](t)(x.Directory.SetMember(ctx, x.By, in.o.ID, x.user.ID, in.role))
	}
	return x
}

// signIn starts the session of an identity.
func (x traveler) signIn(t *testing.T, i access.Identity) (access.Principal, access.Digest) {
	t.Helper()
	c := access.MintSession()
	p := must[access.Principal](t)(x.Directory.PrincipalToSignIn(t.Context(), i))
	must[access.Session](t)(x.Directory.CreateIdentitySession(t.Context(), p, i, p.Actor("192.0.2.1", "req"), c))
	return must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), c.Digest())), c.Digest()
}

func TestSessionsOfIdentities(t *testing.T) {
	t.Parallel()
	me := access.Identity{Subject: "idp|1"}

	t.Run("act in the oldest organization, with all rights of the role, for twelve hours", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		p, _ := x.signIn(t, me)
		if p.Session.Kind != access.OIDCSession || p.Session.ExpiresAt-p.Session.CreatedAt != (12*time.Hour).Milliseconds() || p.Token != nil || p.Session.IsPortal() {
			t.Errorf("the session is %+v, the token %+v", p.Session, p.Token)
		}
		if p.User.ID != x.user.ID || p.Home.ID != x.first.ID || !p.Can(access.APIKeysWrite) || p.Can(access.PlatformRead) {
			t.Errorf("%s acts in %s with %s", p.User.Name, p.Home.Name, p.Permissions)
		}
		x.expectLog(t, x.first.RowID, told{access.SessionStarted, "session " + p.Session.ID, map[string]any{
			"kind": "oidc", "user_id": x.user.ID, "expires_at": time.UnixMilli(p.Session.ExpiresAt).UTC().Format("2006-01-02T15:04:05.000Z07:00"),
		}})
	})
	t.Run("act in the other organizations of the user, with the role that the user has there", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		p, _ := x.signIn(t, me)
		for range 2 { // read, then cached
			for _, named := range []string{x.second.ID, "ext-second"} {
				there := must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, named))
				if there.Home.ID != x.second.ID || there.Organization.ID != x.second.ID || there.Can(access.APIKeysWrite) || !there.Can(access.APIKeysRead) || there.Session != p.Session {
					t.Errorf("in %s, as %+v with %s", there.Home.Name, there.Session, there.Permissions)
				}
			}
			if there := must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, x.ops.ID)); !there.Can(access.PlatformActAs) || there.Home.ID != x.ops.ID {
				t.Errorf("in %s with %s", there.Home.Name, there.Permissions)
			}
			for _, named := range []string{x.Operator.Home.ID, x.first.ID, "", "nothing"} {
				if own := must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, named)); own.Home.ID != x.first.ID {
					t.Errorf("named %q: in %s", named, own.Home.Name)
				}
			}
		}
		found := must[[]access.Organization](t)(x.Directory.SessionOrganizations(t.Context(), p))
		if len(found) != 3 || found[0].ID != x.first.ID || found[1].ID != x.second.ID || found[2].ID != x.ops.ID {
			t.Errorf("the organizations are %+v", found)
		}
	})
	t.Run("can grant no more than the role in the organization to which they switched", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		p, _ := x.signIn(t, me)
		there := must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, x.second.ID))
		wide := access.NewKey{Credential: access.Mint("svc"), Scope: access.NewScope(access.APIKeysRead, access.APIKeysWrite)}
		made := must[access.Key](t)(x.Directory.CreateKey(t.Context(), there, there.Actor("", ""), wide))
		if !made.Scope.Equal(access.NewScope(access.APIKeysRead)) {
			t.Errorf("the key has %s", made.Scope)
		}
	})
	t.Run("stay in the organization that the issuer named", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		i := me
		i.Organization = "ext-second"
		p, _ := x.signIn(t, i)
		if p.Home.ID != x.second.ID || p.Session.MaySwitch {
			t.Errorf("in %s, as %+v", p.Home.Name, p.Session)
		}
		if there := must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, x.first.ID)); there.Home.ID != x.second.ID {
			t.Errorf("switched to %s", there.Home.Name)
		}
		if found := must[[]access.Organization](t)(x.Directory.SessionOrganizations(t.Context(), p)); len(found) != 0 {
			t.Errorf("the organizations are %+v", found)
		}
	})
	t.Run("of an operator act with the operator's rights everywhere", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, x.first.ID, x.user.ID, access.RoleOperator))
		p, _ := x.signIn(t, me)
		if there := must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, x.second.ID)); there.Home.ID != x.first.ID || !there.Can(access.PlatformActAs) {
			t.Errorf("in %s with %s", there.Home.Name, there.Permissions)
		}
	})
	t.Run("do not start for an unknown user, or in an organization of others", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		_, err := x.Directory.PrincipalToSignIn(t.Context(), access.Identity{Subject: "idp|2"})
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "unknown_user")
		_, err = x.Directory.PrincipalToSignIn(t.Context(), access.Identity{Subject: "idp|1", Organization: x.Operator.Home.ID})
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "not_a_member")
	})
	t.Run("are started by a verified e-mail address, which then belongs to the subject", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		u := must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: "eve@example.com", Name: "Eve", IsActive: true}))
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, x.first.ID, u.ID, access.RoleMember))
		if p, _ := x.signIn(t, access.Identity{Subject: "idp|9", Email: "Eve@example.com"}); p.User.ID != u.ID || p.User.ExternalID == nil {
			t.Errorf("the user is %+v", p.User)
		}
	})
}

func TestSessionsOfIdentitiesEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, x traveler) error{
		"when the user is deactivated": func(t *testing.T, x traveler) error {
			return second(x.Directory.UpdateUser(t.Context(), x.By, x.user.ID, access.UserChange{IsActive: new(false)}))
		},
		"when the user is removed from the organization of the session": func(t *testing.T, x traveler) error {
			return x.Directory.RemoveMember(t.Context(), x.By, x.first.ID, x.user.ID)
		},
		"when that organization is closed": func(t *testing.T, x traveler) error {
			return second(x.CloseOrganization(t.Context(), x.By, x.first.ID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTraveler(t)
			p, d := x.signIn(t, access.Identity{Subject: "idp|1"})
			if err := end(t, x); err != nil {
				t.Fatal(err)
			}
			_, err := x.Directory.PrincipalBySession(t.Context(), d)
			if fault.KindOf(err) != fault.Unauthenticated {
				t.Errorf("error %v", err)
			}
			_, err = x.Directory.CreateToken(t.Context(), p.Actor("", ""), x.user.ID, x.first.ID, access.Mint(access.TokenPrefix), "n", nil)
			if err == nil {
				t.Error("a request that was under way creates a token")
			}
		})
	}
	t.Run("when it is ended while it acts elsewhere, which its own organization's audit log tells", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		p, _ := x.signIn(t, access.Identity{Subject: "idp|1"})
		there := must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, x.second.ID))
		if err := x.Directory.EndSession(t.Context(), there, there.Actor("", "")); err != nil {
			t.Fatal(err)
		}
		x.expectLog(t, x.first.RowID, told{access.SessionEnded, "session " + p.Session.ID, map[string]any{"kind": "oidc", "user_id": x.user.ID}})
		for _, line := range x.log(t, x.second.RowID) {
			if line.Type == access.SessionEnded {
				t.Errorf("the log of the other organization has %+v", line)
			}
		}
	})
	t.Run("in one organization when the user is removed from it", func(t *testing.T) {
		t.Parallel()
		x := newTraveler(t)
		p, _ := x.signIn(t, access.Identity{Subject: "idp|1"})
		in := func() string {
			return must[access.Principal](t)(x.Directory.SwitchOrganization(t.Context(), p, x.second.ID)).Home.ID
		}
		if in() != x.second.ID {
			t.Fatal("the session does not switch")
		}
		if err := x.Directory.RemoveMember(t.Context(), x.By, x.second.ID, x.user.ID); err != nil {
			t.Fatal(err)
		}
		if in() != x.first.ID {
			t.Error("the session still switches")
		}
		must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.ops.ID))
		var left []string
		for _, o := range must[[]access.Organization](t)(x.Directory.SessionOrganizations(t.Context(), p)) {
			left = append(left, o.Name)
		}
		if d := cmp.Diff([]string{"first"}, left); d != "" {
			t.Errorf("organizations (-want +got):\n%s", d)
		}
	})
	t.Run("after twelve hours", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newTraveler(t)
			_, d := x.signIn(t, access.Identity{Subject: "idp|1"})
			time.Sleep(12*time.Hour - time.Second)
			must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
			time.Sleep(time.Second)
			_, err := x.Directory.PrincipalBySession(t.Context(), d)
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
		})
	})
}

// TestAClosedOrganizationDoesNotCount asks for a user of two organizations after one of them was closed.
func TestAClosedOrganizationDoesNotCount(t *testing.T) {
	t.Parallel()
	x := newTraveler(t)
	i := access.Identity{Subject: "idp|1"}
	if err := x.Directory.RemoveMember(t.Context(), x.By, x.ops.ID, x.user.ID); err != nil {
		t.Fatal(err)
	}
	must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.first.ID))
	if p := must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), i, "")); p.Home.ID != x.second.ID {
		t.Errorf("the user acts in %s", p.Home.Name)
	}
	if p, _ := x.signIn(t, i); p.Home.ID != x.second.ID {
		t.Errorf("the user signs in to %s", p.Home.Name)
	}
}
