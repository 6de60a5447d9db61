package principal_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestPrincipal(t *testing.T) {
	t.Parallel()
	t.Run("by a key is its creator, narrowed to the key's scope", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		key, credential := storagetest.Key(t, x.Store, owner, access.EventsRead, access.WebhooksRead)
		growth := must[access.Plan](t)(x.Directory.Plan(t.Context(), "growth"))
		home := must[access.Organization](t)(x.Directory.Organization(t.Context(), owner.Home.ID))
		key.OrganizationName, key.CreatorName = "", "" // the principal has the whole organization and the whole user
		want := access.Principal{
			User: must[access.User](t)(x.Directory.User(t.Context(), owner.User.ID)), Organization: home, Home: home, Plan: growth,
			Permissions: access.NewScope(access.EventsRead, access.WebhooksRead), Key: &key,
		}
		for _, when := range []string{"read", "cached"} {
			got := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest()))
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
		}
	})
	t.Run("by a token is its user, with all that its role grants", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		member, credential := storagetest.Organization(t, x.Store, "acme", "free", access.RoleMember)
		token := must[access.AccessToken](t)(x.Directory.Token(t.Context(), member.User.ID, member.Token.ID))
		role := must[access.Role](t)(x.Directory.Role(t.Context(), access.RoleMember))
		for _, when := range []string{"read", "cached"} {
			got := must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), credential.Digest()))
			if !got.Permissions.Equal(role.Permissions) || got.Key != nil || !cmp.Equal(*got.Token, token) || got.Home.Plan != "free" {
				t.Errorf("%s: %+v", when, got)
			}
		}
	})
	t.Run("a key is no token and a token no key, cached or not", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, token := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		_, key := storagetest.Key(t, x.Store, owner, access.EventsRead)
		for range 2 {
			_, err := x.Directory.PrincipalByToken(t.Context(), key.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
			_, err = x.Directory.PrincipalByKey(t.Context(), token.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
			must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), key.Digest()))
			must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), token.Digest()))
		}
	})
	t.Run("the plan without API keys is told, not judged", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		_, key := storagetest.Key(t, x.Store, owner, access.EventsRead)
		must[access.Organization](t)(x.Directory.UpdateOrganization(t.Context(), x.By, owner.Home.ID, access.OrganizationChange{Plan: new("free")}))
		if p := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), key.Digest())); p.Plan.APIKeys || p.Plan.Name != "free" || *p.Plan.RateLimitPerMinute != 60 {
			t.Errorf("%+v", p.Plan)
		}
	})
}

// TestOrderOfChecks breaks a credential in one way more with each step, from the last check to the first: the earlier
// check must win over all that come after it.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	type credential struct {
		x       platform
		owner   access.Principal
		expires int64
		id      string // of the key or the token
		digest  access.Digest
	}
	steps := []struct {
		name, key, token string
		breakIt          func(t *testing.T, c credential) error
	}{
		{"good", "", "", func(*testing.T, credential) error { return nil }},
		{"not a member any more", "creator_inactive", "user_inactive", func(t *testing.T, c credential) error {
			return c.x.Directory.RemoveMember(t.Context(), c.x.By, c.owner.Home.ID, c.owner.User.ID)
		}},
		{"not active either", "creator_inactive", "user_inactive", func(t *testing.T, c credential) error {
			_, err := c.x.Directory.UpdateUser(t.Context(), c.x.By, c.owner.User.ID, access.UserChange{IsActive: new(false)})
			return err
		}},
		{"expired too", "key_expired", "token_expired", func(_ *testing.T, c credential) error {
			time.Sleep(time.Until(time.UnixMilli(c.expires)))
			return nil
		}},
		{"revoked too", "key_revoked", "token_revoked", func(t *testing.T, c credential) error {
			if err := c.x.Directory.RevokeKey(t.Context(), c.x.By, c.owner.Home.RowID, c.id); fault.KindOf(err) != fault.NotFound {
				return err
			}
			return c.x.Directory.RevokeToken(t.Context(), c.x.By, c.owner.User.ID, c.id)
		}},
		{"unknown", "invalid_key", "invalid_key", nil},
	}
	for _, byKey := range []bool{true, false} {
		name := "of a token"
		if byKey {
			name = "of a key"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := newPlatform(t)
				owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
				minted := access.Mint("svc")
				c := credential{x: x, owner: owner, expires: time.Now().Add(time.Hour).UnixMilli(), digest: minted.Digest()}
				ask := func(d access.Digest) error {
					_, err := x.Directory.PrincipalByToken(t.Context(), d)
					return err
				}
				if byKey {
					ask = func(d access.Digest) error {
						_, err := x.Directory.PrincipalByKey(t.Context(), d)
						return err
					}
					c.id = must[access.Key](t)(x.Directory.CreateKey(t.Context(), owner, x.By, access.NewKey{
						Credential: minted, Name: "ci", Scope: access.NewScope(access.EventsRead), ExpiresAt: &c.expires,
					})).ID
				} else {
					c.id = must[access.AccessToken](t)(x.Directory.CreateToken(t.Context(), x.By, owner.User.ID, owner.Home.ID, minted, "", &c.expires)).ID
				}
				for _, step := range steps {
					digest, code := c.digest, step.token
					if byKey {
						code = step.key
					}
					if step.breakIt == nil {
						digest[31]++
					} else if err := step.breakIt(t, c); err != nil {
						t.Fatalf("%s: %v", step.name, err)
					}
					for range 2 {
						err := ask(digest)
						if code == "" && err == nil {
							continue
						}
						if f, ok := fault.As(err); !ok || f.Kind != fault.Unauthenticated || f.Code != code {
							t.Fatalf("%s: %v, want %q", step.name, err, code)
						}
					}
				}
			})
		})
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	t.Run("comes to the millisecond, in a cached principal too", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			end := time.Now().Add(time.Hour).UnixMilli()
			key, token := access.Mint("svc"), access.Mint(access.TokenPrefix)
			must[access.Key](t)(x.Directory.CreateKey(t.Context(), x.Operator, x.By, access.NewKey{
				Credential: key, Name: "ci", Scope: access.NewScope(access.EventsRead), ExpiresAt: &end,
			}))
			must[access.AccessToken](t)(x.Directory.CreateToken(t.Context(), x.By, x.Operator.User.ID, x.Operator.Home.ID, token, "", &end))
			time.Sleep(time.Until(time.UnixMilli(end - 1)))
			must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), key.Digest()))
			must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), token.Digest()))
			time.Sleep(time.Millisecond)
			_, err := x.Directory.PrincipalByKey(t.Context(), key.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_expired")
			_, err = x.Directory.PrincipalByToken(t.Context(), token.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_expired")
		})
	})
}

// TestChangesHoldAtOnce has requests come in all the time while something is changed: none that begins after the change
// has been answered may go by what was before.
func TestChangesHoldAtOnce(t *testing.T) {
	t.Parallel()
	type subject struct {
		x     platform
		owner access.Principal // by role "clerk", on plan "pro"
		key   access.Key
	}
	can := func(permission string) func(access.Principal, error) bool {
		return func(p access.Principal, err error) bool { return err == nil && p.Can(permission) }
	}
	accepted := func(_ access.Principal, err error) bool { return err == nil }
	for _, change := range []struct {
		name   string
		do     func(t *testing.T, s subject) error
		undo   func(t *testing.T, s subject) error // nil if there is no way back
		before func(access.Principal, error) bool  // what no request may see any more
	}{
		{"the key is revoked", func(t *testing.T, s subject) error {
			return s.x.Directory.RevokeKey(t.Context(), s.x.By, s.owner.Home.RowID, s.key.ID)
		}, nil, accepted},
		{"the creator is deactivated", func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdateUser(t.Context(), s.x.By, s.owner.User.ID, access.UserChange{IsActive: new(false)})
			return err
		}, func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdateUser(t.Context(), s.x.By, s.owner.User.ID, access.UserChange{IsActive: new(true)})
			return err
		}, accepted},
		{"the creator is removed", func(t *testing.T, s subject) error {
			return s.x.Directory.RemoveMember(t.Context(), s.x.By, s.owner.Home.ID, s.owner.User.ID)
		}, func(t *testing.T, s subject) error {
			_, err := s.x.Directory.SetMember(t.Context(), s.x.By, s.owner.Home.ID, s.owner.User.ID, "clerk")
			return err
		}, accepted},
		{"the creator gets a lesser role", func(t *testing.T, s subject) error {
			_, err := s.x.Directory.SetMember(t.Context(), s.x.By, s.owner.Home.ID, s.owner.User.ID, access.RoleMember)
			return err
		}, func(t *testing.T, s subject) error {
			_, err := s.x.Directory.SetMember(t.Context(), s.x.By, s.owner.Home.ID, s.owner.User.ID, "clerk")
			return err
		}, can(access.EventsWrite)},
		{"the role loses a permission", func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdateRole(t.Context(), s.x.By, "clerk", access.RoleChange{Permissions: new(access.NewScope(access.EventsRead))})
			return err
		}, func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdateRole(t.Context(), s.x.By, "clerk", access.RoleChange{Permissions: new(access.NewScope(access.EventsRead, access.EventsWrite))})
			return err
		}, can(access.EventsWrite)},
		{"the plan loses API keys", func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdatePlan(t.Context(), s.x.By, "pro", access.PlanChange{APIKeys: new(false)})
			return err
		}, func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdatePlan(t.Context(), s.x.By, "pro", access.PlanChange{APIKeys: new(true)})
			return err
		}, func(p access.Principal, err error) bool { return err == nil && p.Plan.APIKeys }},
		{"the plan gets a limit", func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdatePlan(t.Context(), s.x.By, "pro", access.PlanChange{RateLimitPerMinute: new(new(int64(0)))})
			return err
		}, func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdatePlan(t.Context(), s.x.By, "pro", access.PlanChange{RateLimitPerMinute: new((*int64)(nil))})
			return err
		}, func(p access.Principal, err error) bool { return err == nil && p.Plan.RateLimitPerMinute == nil }},
		{"the organization is downgraded", func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdateOrganization(t.Context(), s.x.By, s.owner.Home.ID, access.OrganizationChange{Plan: new("free")})
			return err
		}, func(t *testing.T, s subject) error {
			_, err := s.x.Directory.UpdateOrganization(t.Context(), s.x.By, s.owner.Home.ID, access.OrganizationChange{Plan: new("pro")})
			return err
		}, func(p access.Principal, err error) bool { return err == nil && p.Plan.APIKeys }},
	} {
		t.Run(change.name, func(t *testing.T) {
			t.Parallel()
			x := newPlatform(t)
			must[access.Plan](t)(x.Directory.CreatePlan(t.Context(), x.By, access.Plan{Name: "pro", APIKeys: true}))
			must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "clerk", Permissions: access.NewScope(access.EventsRead, access.EventsWrite)}))
			owner, _ := storagetest.Organization(t, x.Store, "acme", "pro", "clerk")
			for range 8 {
				key, credential := storagetest.Key(t, x.Store, owner, access.EventsRead, access.EventsWrite)
				s := subject{x, owner, key}
				if p, err := x.Directory.PrincipalByKey(t.Context(), credential.Digest()); !change.before(p, err) {
					t.Fatalf("not as expected before the change: %+v, %v", p, err)
				}
				ask := func() (access.Principal, error) { return x.Directory.PrincipalByKey(t.Context(), credential.Digest()) }
				late := underLoad(t, x, ask, change.before, func() error { return change.do(t, s) })
				if late > 0 {
					t.Fatalf("%d requests that began after the change saw what was before", late)
				}
				if change.undo != nil {
					if err := change.undo(t, s); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// underLoad makes a change while requests come in, and counts those that began after it had been answered and saw still
// what was before.
func underLoad(t *testing.T, x platform, ask func() (access.Principal, error), before func(access.Principal, error) bool, change func() error) int64 {
	t.Helper()
	var seen, late, asked atomic.Int64
	var done atomic.Bool
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				after := done.Load()
				p, err := ask()
				asked.Add(1)
				switch {
				case !before(p, err):
				case after:
					late.Add(1)
				default:
					seen.Add(1)
				}
			}
		})
	}
	// Until then others change things too: so the requests keep reading, and some read while the change is being made.
	wg.Go(func() {
		for !done.Load() {
			x.Directory.ForgetPrincipals()
			runtime.Gosched()
		}
	})
	wait := func(n int64) {
		for from := asked.Load(); asked.Load() < from+n; {
			runtime.Gosched()
		}
	}
	wait(20)
	err := change()
	done.Store(true)
	wait(20)
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if seen.Load() == 0 {
		t.Error("no request came before the change")
	}
	return late.Load()
}

func TestPermissionsFollowTheirList(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	allOfThen := access.NewScope()
	for _, p := range access.BuiltInPermissions() {
		allOfThen = access.NewScope(append(allOfThen.Keys(), p.Key)...)
	}
	owner, ownerToken := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	_, memberToken := storagetest.Member(t, x.Store, owner.Home, "member", access.RoleMember)
	_, narrow := storagetest.Key(t, x.Store, x.Operator, access.EventsRead)
	_, wide := storagetest.Key(t, x.Store, x.Operator, allOfThen.Keys()...)
	operatorToken, _ := access.Opaque(storagetest.OperatorToken)

	for _, key := range []string{"orders:read", "orders:write", "platform:bill"} {
		must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: key}))
	}
	_, later := storagetest.Key(t, x.Store, x.Operator, "orders:read", access.EventsRead)
	expect := func(t *testing.T, p access.Principal, err error, want access.Scope) {
		t.Helper()
		if err != nil || !p.Permissions.Equal(want) {
			t.Errorf("permissions are %q, want %q: %v", p.Permissions, want, err)
		}
	}
	t.Run("those who hold all present and future permissions hold the new ones from the next request on", func(t *testing.T) {
		p, err := x.Directory.PrincipalByToken(t.Context(), operatorToken.Digest())
		expect(t, p, err, access.NewScope(append(allOfThen.Keys(), "orders:read", "orders:write", "platform:bill")...))
		p, err = x.Directory.PrincipalByToken(t.Context(), ownerToken.Digest())
		for _, key := range []string{"orders:read", "orders:write"} {
			if err != nil || !p.Can(key) || p.Can("platform:bill") {
				t.Errorf("the owner holds %q: %v", p.Permissions, err)
			}
		}
		p, err = x.Directory.PrincipalByToken(t.Context(), memberToken.Digest())
		if err != nil || !p.Can("orders:read") || p.Can("orders:write") || p.Can("platform:bill") {
			t.Errorf("the member holds %q: %v", p.Permissions, err)
		}
	})
	t.Run("the keys of an operator hold them only within their scope", func(t *testing.T) {
		p, err := x.Directory.PrincipalByKey(t.Context(), narrow.Digest())
		expect(t, p, err, access.NewScope(access.EventsRead))
		p, err = x.Directory.PrincipalByKey(t.Context(), wide.Digest())
		expect(t, p, err, allOfThen)
		p, err = x.Directory.PrincipalByKey(t.Context(), later.Digest())
		expect(t, p, err, access.NewScope(access.EventsRead, "orders:read"))
	})
	t.Run("what is taken out of it is held by nobody", func(t *testing.T) {
		if err := x.Directory.DeletePermission(t.Context(), x.By, "orders:write"); err != nil {
			t.Fatal(err)
		}
		p, err := x.Directory.PrincipalByToken(t.Context(), ownerToken.Digest())
		if err != nil || p.Can("orders:write") {
			t.Errorf("the owner holds %q: %v", p.Permissions, err)
		}
	})
}

func TestAKeyFollowsItsCreator(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	member, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleMember)
	_, credential := storagetest.Key(t, x.Store, member, access.EventsRead, access.AuditRead)
	for _, step := range []struct{ name, role, want string }{
		{"more for the creator is no more for the key", access.RoleOperator, "audit:read events:read"},
		{"less for the creator is less for the key", "reader", "events:read"},
		{"nothing for the creator is nothing for the key, which is still a good one", "nobody", ""},
		{"what the creator gets back the key has again", access.RoleMember, "audit:read events:read"},
	} {
		t.Run(step.name, func(t *testing.T) {
			if _, err := x.Directory.Role(t.Context(), step.role); err != nil {
				var permissions access.Scope
				if step.role == "reader" {
					permissions = access.NewScope(access.EventsRead, access.EventsWrite)
				}
				must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: step.role, Permissions: permissions}))
			}
			must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, member.Home.ID, member.User.ID, step.role))
			if p := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest())); p.Permissions.String() != step.want {
				t.Errorf("the key holds %q, want %q", p.Permissions, step.want)
			}
		})
	}
}

func TestAFailureToReadIsNotARefusal(t *testing.T) {
	t.Parallel()
	t.Run("a database that is closed refuses no credential", func(t *testing.T) {
		t.Parallel()
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db")))
		_, key := storagetest.Key(t, store, storagetest.Operator(t, store), access.EventsRead)
		stop()
		for range 2 {
			_, err := store.Directory.PrincipalByKey(t.Context(), key.Digest())
			if kind := fault.KindOf(err); err == nil || kind == fault.Unauthenticated {
				t.Errorf("kind %d: %v", kind, err)
			}
		}
	})
	t.Run("a caller who has gone is refused nothing, and nothing is remembered of it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		_, key := storagetest.Key(t, x.Store, x.Operator, access.EventsRead)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := x.Directory.PrincipalByKey(gone, key.Digest())
		if err == nil || fault.KindOf(err) == fault.Unauthenticated {
			t.Errorf("error %v", err)
		}
		must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), key.Digest()))
	})
}

// TestThePrincipalCacheIsBounded reads more principals than a shard holds: of entries, or of permissions. All are good.
func TestThePrincipalCacheIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ keys, permissions, cached int }{
		{300, 0, 256},
		{60, 200, 19}, // a principal has 200 permissions, and its key has them too
	} {
		t.Run(fmt.Sprintf("%d keys with %d permissions", c.keys, c.permissions), func(t *testing.T) {
			t.Parallel()
			x := newPlatform(t)
			scope := []string{access.EventsRead}
			for i := range c.permissions {
				scope = append(scope, "orders:p"+strconv.Itoa(i))
				must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: scope[i+1]}))
			}
			credentials := []access.Credential{}
			for len(credentials) < c.keys {
				if c := access.Mint("svc"); c.Digest()[0] == 0 { // digests that begin alike fall into one shard
					credentials = append(credentials, c)
				}
			}
			var wg sync.WaitGroup
			for _, c := range credentials {
				wg.Go(func() {
					if _, err := x.Directory.CreateKey(t.Context(), x.Operator, x.By, access.NewKey{Credential: c, Name: "ci", Scope: access.NewScope(scope...)}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for range 2 {
				for _, c := range credentials {
					must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), c.Digest()))
				}
			}
			if n := x.Directory.CachedKeys(); n != c.cached {
				t.Errorf("%d keys are cached, and not %d", n, c.cached)
			}
		})
	}
}

// It counts allocations, which other tests would add to: so it is not parallel.
func TestACachedPrincipalCostsNoAllocation(t *testing.T) {
	x := newPlatform(t)
	end := time.Now().Add(time.Hour).UnixMilli()
	credential := access.Mint("svc")
	must[access.Key](t)(x.Directory.CreateKey(t.Context(), x.Operator, x.By, access.NewKey{
		Credential: credential, Name: "ci", Scope: access.NewScope(access.EventsRead), ExpiresAt: &end,
	}))
	ctx, digest := t.Context(), credential.Digest()
	if n := testing.AllocsPerRun(100, func() {
		p, err := x.Directory.PrincipalByKey(ctx, digest)
		if err != nil {
			t.Fatal(err)
		}
		x.Directory.Used(p, access.KeyUse{Allowed: 1})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPrincipalByKey(b *testing.B) {
	store := storagetest.Open(b)
	_, credential := storagetest.Key(b, store, storagetest.Operator(b, store), access.EventsRead)
	ctx, digest := b.Context(), credential.Digest()
	b.Run("cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := store.Directory.PrincipalByKey(ctx, digest); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached, from all processors", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := store.Directory.PrincipalByKey(ctx, digest); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("noted", func(b *testing.B) {
		p, err := store.Directory.PrincipalByKey(ctx, digest)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			store.Directory.Used(p, access.KeyUse{Allowed: 1})
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			store.Directory.ForgetPrincipals()
			if _, err := store.Directory.PrincipalByKey(ctx, digest); err != nil {
				b.Fatal(err)
			}
		}
	})
}
