package directory_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestNobodyGrantsMore has a narrow caller try every way to a credential, in any order. No credential or identity that
// results holds more than the caller, and without platform:act_as none holds anything in a foreign organization.
func TestNobodyGrantsMore(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	rapid.Check(t, func(r *rapid.T) {
		g := newGranter(t, r, x)
		r.Repeat(map[string]func(*rapid.T){
			"mint a token":    g.mintToken,
			"give a role":     g.giveRole,
			"change a role":   g.changeRole,
			"change identity": g.changeIdentity,
			"deactivate":      g.deactivate,
			"create a key":    g.createKey,
			"look":            g.check,
		})
		g.check(r)
	})
}

// granter is a narrow caller with the users, organizations and roles that it tries to abuse. They are new in each run.
type granter struct {
	platform
	ctx    context.Context
	caller access.Principal
	by     access.Actor
	held   access.Scope // by the caller, at first

	organizations []access.Organization // the first is the caller's own
	users         []string              // ids
	roles         []string              // names
	tokens        []access.Credential   // minted by the caller
	keys          []access.Credential   // created by the caller
	subjects      []string              // that the caller gave to users
}

var everyPermission = []string{
	access.APIKeysRead, access.APIKeysWrite, access.WebhooksWrite, access.EventsRead, access.EventsWrite, access.AuditRead,
	access.PlatformRead, access.PlatformWrite, access.PlatformActAs,
}

func newGranter(t *testing.T, r *rapid.T, x platform) *granter {
	g := &granter{platform: x, ctx: t.Context()}
	name := newName()
	g.held = access.NewScope(append(rapid.SliceOf(rapid.SampledFrom(everyPermission)).Draw(r, "held"), access.PlatformWrite)...)
	for role, permissions := range map[string]access.Scope{
		name + "-caller": g.held, name + "-empty": {}, name + "-other": access.NewScope(access.EventsRead, access.WebhooksWrite),
	} {
		must[access.Role](t)(x.Directory.CreateRole(g.ctx, x.By, access.Role{Name: role, Permissions: permissions}))
	}
	g.roles = []string{name + "-caller", name + "-empty", name + "-other", access.RoleOperator}
	for range 2 {
		g.organizations = append(g.organizations, must[access.Organization](t)(x.Directory.CreateOrganization(g.ctx, x.By, access.Organization{Name: name, Plan: "enterprise"})))
	}
	own, foreign := g.organizations[0], g.organizations[1]
	if rapid.Bool().Draw(r, "by key") { // of a user who has every permission
		operator, _ := storagetest.Member(t, x.Store, own, name+"-caller", access.RoleOperator)
		_, key := storagetest.Key(t, x.Store, operator, g.held.Keys()...)
		g.caller = must[access.Principal](t)(x.Directory.PrincipalByKey(g.ctx, key.Digest()))
	} else {
		g.caller, _ = storagetest.Member(t, x.Store, own, name+"-caller", g.roles[0])
	}
	g.by = g.caller.Actor("192.0.2.1", "req")
	// The caller may know a user in the foreign organization who has no permission there.
	powerless, token := storagetest.Member(t, x.Store, foreign, name+"-empty", name+"-empty")
	other, _ := storagetest.Member(t, x.Store, foreign, name+"-other", name+"-other")
	operator, _ := storagetest.Member(t, x.Store, own, name+"-operator", access.RoleOperator)
	g.tokens, g.users = []access.Credential{token}, []string{g.caller.User.ID, powerless.User.ID, other.User.ID, operator.User.ID}
	return g
}

// newName returns a name that no other run has taken.
func newName() string { return "r" + strings.ToLower(rand.Text()) }

// allowed reports whether a call went through. Every refusal must be a fault.
func allowed(r *rapid.T, err error) bool {
	if _, isFault := fault.As(err); err != nil && !isFault {
		r.Fatal(err)
	}
	return err == nil
}

func (g *granter) organization(r *rapid.T) string {
	return rapid.SampledFrom(g.organizations).Draw(r, "organization").ID
}

func (g *granter) user(r *rapid.T) string { return rapid.SampledFrom(g.users).Draw(r, "user") }

func (g *granter) mintToken(r *rapid.T) {
	token := access.Mint(access.TokenPrefix)
	_, err := g.Directory.CreateToken(g.ctx, g.by, g.user(r), g.organization(r), token, "minted", nil)
	if allowed(r, err) {
		g.tokens = append(g.tokens, token)
	}
}

func (g *granter) giveRole(r *rapid.T) {
	_, err := g.Directory.SetMember(g.ctx, g.by, g.organization(r), g.user(r), rapid.SampledFrom(g.roles).Draw(r, "role"))
	allowed(r, err)
}

func (g *granter) changeRole(r *rapid.T) {
	wanted := access.NewScope(rapid.SliceOf(rapid.SampledFrom(everyPermission)).Draw(r, "permissions")...)
	if rapid.Bool().Draw(r, "within") {
		wanted = wanted.Intersect(g.held)
	}
	if rapid.Bool().Draw(r, "new") {
		name := newName()
		if _, err := g.Directory.CreateRole(g.ctx, g.by, access.Role{Name: name, Permissions: wanted}); allowed(r, err) {
			g.roles = append(g.roles, name)
		}
		return
	}
	_, err := g.Directory.UpdateRole(g.ctx, g.by, rapid.SampledFrom(g.roles).Draw(r, "role"), access.RoleChange{Permissions: &wanted})
	allowed(r, err)
}

func (g *granter) changeIdentity(r *rapid.T) {
	subject := newName()
	_, err := g.Directory.UpdateUser(g.ctx, g.by, g.user(r), access.UserChange{ExternalID: &subject, IsActive: new(true)})
	if allowed(r, err) {
		g.subjects = append(g.subjects, subject)
	}
}

func (g *granter) deactivate(r *rapid.T) {
	_, err := g.Directory.UpdateUser(g.ctx, g.by, g.user(r), access.UserChange{IsActive: new(false)})
	allowed(r, err)
}

func (g *granter) createKey(r *rapid.T) {
	key := access.Mint("svc")
	_, err := g.Directory.CreateKey(g.ctx, g.caller, g.by, access.NewKey{Credential: key, Name: "created", Scope: access.NewScope(everyPermission...)})
	if allowed(r, err) {
		g.keys = append(g.keys, key)
	}
}

// check looks at what every credential and every identity of the caller's making can do now.
func (g *granter) check(r *rapid.T) {
	within := func(p access.Principal, err error) {
		if !allowed(r, err) {
			return
		}
		if extra := p.Permissions.Minus(g.held); !extra.Empty() {
			r.Fatalf("%s holds %s in %s, beyond %s", p.User.Name, extra, p.Home.ID, g.held)
		}
		if p.Home.ID != g.organizations[0].ID && !p.Permissions.Empty() && !g.held.Has(access.PlatformActAs) {
			r.Fatalf("%s holds %s in the foreign organization", p.User.Name, p.Permissions)
		}
	}
	for _, token := range g.tokens {
		within(g.Directory.PrincipalByToken(g.ctx, token.Digest()))
	}
	for _, key := range g.keys {
		within(g.Directory.PrincipalByKey(g.ctx, key.Digest()))
	}
	for _, subject := range g.subjects {
		for _, o := range g.organizations {
			within(g.Directory.PrincipalByIdentity(g.ctx, access.Identity{Subject: subject, Organization: o.ID}, ""))
		}
	}
}

// TestGrantsAreCheckedAtTheirMoment takes from the caller what it had when its request began.
func TestGrantsAreCheckedAtTheirMoment(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		take func(x platform, caller access.Principal) error
		kind fault.Kind
		code string
	}{
		"its token": {func(x platform, caller access.Principal) error {
			return x.Directory.RevokeToken(t.Context(), x.By, caller.User.ID, caller.Token.ID)
		}, fault.Unauthenticated, "token_revoked"},
		"its role": {func(x platform, caller access.Principal) error {
			_, err := x.Directory.SetMember(t.Context(), x.By, caller.Home.ID, caller.User.ID, access.RoleMember)
			return err
		}, fault.Forbidden, "permission_denied"},
		"its membership": {func(x platform, caller access.Principal) error {
			return x.Directory.RemoveMember(t.Context(), x.By, caller.Home.ID, caller.User.ID)
		}, fault.Forbidden, "permission_denied"},
		"its user": {func(x platform, caller access.Principal) error {
			_, err := x.Directory.UpdateUser(t.Context(), x.By, caller.User.ID, access.UserChange{IsActive: new(false)})
			return err
		}, fault.Forbidden, "permission_denied"},
	} {
		t.Run("not after it has lost "+name, func(t *testing.T) {
			t.Parallel()
			x := newPlatform(t)
			caller, _ := storagetest.Member(t, x.Store, x.Operator.Home, "second", access.RoleOperator)
			by := caller.Actor("192.0.2.1", "req")
			grant := func() error {
				_, err := x.Directory.CreateToken(t.Context(), by, x.Operator.User.ID, x.Operator.Home.ID, access.Mint(access.TokenPrefix), "", nil)
				return err
			}
			if err := grant(); err != nil {
				t.Fatal(err)
			}
			if err := tt.take(x, caller); err != nil {
				t.Fatal(err)
			}
			storagetest.ExpectFault(t, grant(), tt.kind, tt.code)
		})
	}
}

// TestANarrowCredentialMakesNoWideKeyElsewhere has a user with a narrow role at home and a wide one in another
// organization. A credential of the home organization can make and rotate keys there, but none that holds more than it does.
func TestANarrowCredentialMakesNoWideKeyElsewhere(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	held := access.NewScope(access.PlatformActAs, access.APIKeysWrite, access.EventsWrite)
	must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "support", Permissions: held}))
	caller, _ := storagetest.Member(t, x.Store, x.Operator.Home, "helper", "support")
	elsewhere, _ := storagetest.Organization(t, x.Store, "elsewhere", "growth", access.RoleOwner)
	must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, elsewhere.Home.ID, caller.User.ID, access.RoleOperator))
	wide, _ := storagetest.Key(t, x.Store, elsewhere, access.EventsWrite, access.WebhooksWrite)

	caller = caller.In(elsewhere.Home)
	by := caller.Actor("192.0.2.1", "req")
	create := func(scope ...string) (access.Key, error) {
		return x.Directory.CreateKey(t.Context(), caller, by, access.NewKey{Credential: access.Mint("svc"), Name: "created", Scope: access.NewScope(scope...)})
	}
	t.Run("a new key holds only the part that the credential holds", func(t *testing.T) {
		key := must[access.Key](t)(create(access.EventsWrite, access.PlatformWrite, access.AuditRead))
		if want := access.NewScope(access.EventsWrite); !key.Scope.Equal(want) {
			t.Errorf("the key holds %s, want %s", key.Scope, want)
		}
	})
	t.Run("a key of other permissions is refused", func(t *testing.T) {
		_, err := create(access.PlatformWrite)
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
	})
	t.Run("a rotated key holds only the part that the credential holds", func(t *testing.T) {
		rotated := must[access.RotatedKey](t)(x.Directory.RotateKey(t.Context(), caller, by, wide.ID, access.Mint("svc"), 0))
		if want := access.NewScope(access.EventsWrite); !rotated.Scope.Equal(want) {
			t.Errorf("the key holds %s, want %s", rotated.Scope, want)
		}
	})
}

// TestACredentialOfAClosedOrganizationCreatesNoKey begins requests of a credential before its organization is closed, and finishes
// them afterwards. They act in another organization, which stays open.
func TestACredentialOfAClosedOrganizationCreatesNoKey(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	caller, token := storagetest.Organization(t, x.Store, "agency", "enterprise", access.RoleOperator)
	elsewhere, _ := storagetest.Organization(t, x.Store, "elsewhere", "growth", access.RoleOwner)
	old, _ := storagetest.Key(t, x.Store, elsewhere, access.EventsWrite)
	for range 500 { // the removal of the organization's data revokes so many keys first
		storagetest.Key(t, x.Store, caller, access.EventsWrite)
	}
	_, key := storagetest.Key(t, x.Store, caller, access.PlatformActAs, access.APIKeysWrite, access.EventsWrite)
	cookie := access.MintSession()
	session := must[access.Principal](t)(x.Directory.PrincipalToSignIn(t.Context(), access.Identity{Subject: "u-1", Email: caller.User.Email}))
	must[access.Session](t)(x.Directory.CreateIdentitySession(t.Context(), session, access.Identity{}, x.By, cookie))

	callers := []struct {
		code string
		access.Principal
	}{
		{"key_revoked", must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), key.Digest()))},
		{"token_revoked", must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), token.Digest()))},
		{"invalid_key", must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), cookie.Digest()))},
	}
	must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, caller.Home.ID))
	for _, c := range callers {
		_, err := x.createOf(t, c.In(elsewhere.Home), "", access.EventsWrite)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, c.code)
	}
	for _, c := range callers {
		_, err := x.Directory.RotateKey(t.Context(), c.In(elsewhere.Home), c.Actor("", "req"), old.ID, access.Mint("svc"), 0)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, c.code)
	}
}
