package directory_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// rotate asks for the successor of a key in the name of by.
func (x platform) rotate(t *testing.T, by access.Principal, id string, grace time.Duration) (access.RotatedKey, access.Credential, error) {
	t.Helper()
	credential := access.Mint("svc")
	rotated, err := x.Directory.RotateKey(t.Context(), by, by.Actor("192.0.2.1", "req"), id, credential, grace)
	return rotated, credential, err
}

// rotated is rotate for what must succeed.
func (x platform) rotated(t *testing.T, by access.Principal, id string, grace time.Duration) (access.RotatedKey, access.Credential) {
	t.Helper()
	made, credential, err := x.rotate(t, by, id, grace)
	if err != nil {
		t.Fatal(err)
	}
	return made, credential
}

func TestRotateKey(t *testing.T) {
	t.Parallel()
	t.Run("keeps name, scope, end and rate window, and tells of both keys in one line of the log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		end := time.Now().Add(time.Hour).UnixMilli()
		first := must[access.Key](t)(x.Directory.CreateKey(t.Context(), owner, owner.Actor("", ""), access.NewKey{
			Credential: access.Mint("svc"), Name: "ci", Scope: access.NewScope(access.EventsRead, access.EventsWrite), ExpiresAt: &end,
			Metadata: `{"customer":17}`,
		}))
		made, credential := x.rotated(t, owner, first.ID, time.Minute)
		want := access.RotatedKey{Key: access.Key{
			Issued: access.Issued{
				RowID: made.RowID, ID: made.ID, Organization: owner.Home.RowID, OrganizationID: owner.Home.ID, Name: "ci",
				CreatedAt: made.CreatedAt, ExpiresAt: &end,
			},
			CreatedBy: owner.User.ID, Scope: first.Scope, KeyPrefix: credential.Display(), Window: first.Window, Replaces: &first.ID,
			Metadata: first.Metadata, OrganizationName: owner.Home.Name, CreatorName: owner.User.Name,
		}}
		if d := cmp.Diff(want, made); d != "" || made.ID == first.ID || made.RowID == first.RowID {
			t.Errorf("made (-want +got):\n%s", d)
		}
		second, _ := x.rotated(t, owner, made.ID, 0)
		if second.Window != first.Window || *second.ExpiresAt != end || *second.Replaces != made.ID {
			t.Errorf("the third of the line is %+v", second)
		}
		old := must[access.Key](t)(x.Directory.Key(t.Context(), owner.Home.RowID, first.ID))
		if old.RotatedTo == nil || *old.RotatedTo != made.ID || old.Replaces != nil || old.RevokedAt != nil {
			t.Errorf("the first is %+v", old)
		}
		text := time.UnixMilli(end).UTC().Format("2006-01-02T15:04:05.000Z")
		x.expectLog(t, owner.Home.RowID,
			told{"api_key_rotated", "api_key " + made.ID, map[string]any{
				"name": "ci", "new_key_id": second.ID, "grace_seconds": 0.0, "scope": "events:read events:write", "scope_not_granted": "", "expires_at": text,
			}},
			told{"api_key_rotated", "api_key " + first.ID, map[string]any{
				"name": "ci", "new_key_id": made.ID, "grace_seconds": 60.0, "scope": "events:read events:write", "scope_not_granted": "", "expires_at": text,
			}},
			told{"api_key_created", "api_key " + first.ID, map[string]any{
				"name": "ci", "scope": "events:read events:write", "scope_not_granted": "", "expires_at": text,
			}})
	})
	t.Run("ends the old key with the grace, to the millisecond, and never later than it would have ended", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			key := func(end *int64) (access.Key, access.Digest) {
				credential := access.Mint("svc")
				made := must[access.Key](t)(x.Directory.CreateKey(t.Context(), x.Operator, x.By, access.NewKey{
					Credential: credential, Name: "ci", Scope: access.NewScope(access.EventsRead), ExpiresAt: end,
				}))
				return made, credential.Digest()
			}
			begin := time.Now()
			forever, a := key(nil)
			long, b := key(new(begin.Add(time.Hour).UnixMilli()))
			short, c := key(new(begin.Add(5 * time.Second).UnixMilli()))
			next := map[string]access.Credential{}
			for _, id := range []string{forever.ID, long.ID, short.ID} {
				must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), a)) // into the cache
				_, next[id] = x.rotated(t, x.Operator, id, 10*time.Second)
			}
			ends := map[access.Digest]time.Duration{a: 10 * time.Second, b: 10 * time.Second, c: 5 * time.Second}
			for _, now := range []time.Duration{5*time.Second - time.Millisecond, 5 * time.Second, 10*time.Second - time.Millisecond, 10 * time.Second} {
				time.Sleep(now - time.Since(begin))
				for d, end := range ends {
					_, err := x.Directory.PrincipalByKey(t.Context(), d)
					if now < end && err != nil {
						t.Errorf("%s before its end: %v", end-now, err)
					} else if now >= end {
						storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_expired")
					}
				}
			}
			for id, alive := range map[string]bool{forever.ID: true, long.ID: true, short.ID: false} {
				_, err := x.Directory.PrincipalByKey(t.Context(), next[id].Digest())
				if (err == nil) != alive {
					t.Errorf("the successor is alive: %t (%v)", err == nil, err)
				}
			}
		})
	})
	t.Run("revokes the old key at once where there is no grace", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		key, credential := storagetest.Key(t, x.Store, x.Operator, access.EventsRead)
		must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest())) // into the cache
		made, next := x.rotated(t, x.Operator, key.ID, 0)
		_, err := x.Directory.PrincipalByKey(t.Context(), credential.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_revoked")
		if p := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), next.Digest())); p.Key.ID != made.ID || p.Permissions.String() != access.EventsRead {
			t.Errorf("the new key is %+v", p)
		}
	})
}

func TestRotationAuthority(t *testing.T) {
	t.Parallel()

	t.Run("belongs to whoever rotates, and grants what both the key and that user may do", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{
			Name: "keeper", Permissions: access.NewScope(access.APIKeysWrite, access.EventsRead, access.AuditRead),
		}))
		keeper, _ := storagetest.Member(t, x.Store, owner.Home, "keeper", "keeper")
		key, _ := storagetest.Key(t, x.Store, owner, access.EventsRead, access.EventsWrite)
		made, next := x.rotated(t, keeper, key.ID, 0)
		if made.CreatedBy != keeper.User.ID || made.Scope.String() != access.EventsRead || made.NotGranted.String() != access.EventsWrite {
			t.Errorf("made %+v", made)
		}
		// Its creator now decides over it, and not the one of before.
		must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, owner.User.ID, access.UserChange{IsActive: new(false)}))
		if p := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), next.Digest())); p.User.ID != keeper.User.ID {
			t.Errorf("it acts as %s", p.User.Email)
		}
	})
	t.Run("by a key grants no more than that key's own scope", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		by := x.byKey(t, x.Operator, access.APIKeysWrite, access.EventsRead)
		key, _ := storagetest.Key(t, x.Store, x.Operator, access.EventsRead, access.PlatformWrite)
		made, _ := x.rotated(t, by, key.ID, 0)
		if made.Scope.String() != access.EventsRead || made.NotGranted.String() != access.PlatformWrite {
			t.Errorf("made %+v", made)
		}
		other, credential := storagetest.Key(t, x.Store, x.Operator, access.PlatformWrite)
		_, _, err := x.rotate(t, by, other.ID, 0)
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
		must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest())) // what is refused leaves it as it was
	})
	t.Run("of a key by itself keeps what it may do now", func(t *testing.T) {
		t.Parallel()
		for _, grace := range []time.Duration{0, time.Hour} {
			x := newPlatform(t)
			owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
			self := x.byKey(t, owner, access.APIKeysRead, access.APIKeysWrite)
			made, next := x.rotated(t, self, self.Key.ID, grace)
			if made.CreatedBy != owner.User.ID || !made.Scope.Equal(self.Key.Scope) || !made.NotGranted.Empty() {
				t.Errorf("made %+v", made)
			}
			heir := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), next.Digest()))
			x.rotated(t, heir, made.ID, grace)
		}
	})
	t.Run("goes by the role of now", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		key, _ := storagetest.Key(t, x.Store, owner, access.EventsRead, access.EventsWrite)
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, owner.Home.ID, owner.User.ID, access.RoleMember))
		if made, _ := x.rotated(t, owner, key.ID, 0); made.Scope.String() != access.EventsRead {
			t.Errorf("granted %q", made.Scope)
		}
	})
}

func TestRefusedRotation(t *testing.T) {
	t.Parallel()

	t.Run("is refused in this order: not there, credential, plan, member, state, scope", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		self := x.byKey(t, owner, access.APIKeysWrite)
		gone, _ := storagetest.Key(t, x.Store, owner, access.EventsRead)
		actor := owner.Actor("", "")
		for _, id := range []string{gone.ID, self.Key.ID} {
			if err := x.Directory.RevokeKey(t.Context(), actor, owner.Home.RowID, id); err != nil {
				t.Fatal(err)
			}
		}
		plan := func(name string) {
			must[access.Organization](t)(x.Directory.UpdateOrganization(t.Context(), x.By, owner.Home.ID, access.OrganizationChange{Plan: &name}))
		}
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		stranger := other.In(owner.Home) // it may not act elsewhere
		plan("free")
		_, _, err := x.rotate(t, self, "key_none", 0)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		_, _, err = x.rotate(t, x.Operator, gone.ID, 0) // of another organization
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		_, _, err = x.rotate(t, self, gone.ID, 0)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_revoked")
		_, _, err = x.rotate(t, stranger, gone.ID, 0)
		storagetest.ExpectFault(t, err, fault.Forbidden, "plan_capability_required")
		plan("growth")
		_, _, err = x.rotate(t, stranger, gone.ID, 0)
		storagetest.ExpectFault(t, err, fault.Conflict, "not_a_member")
		member, _ := storagetest.Member(t, x.Store, owner.Home, "reader", access.RoleMember)
		wide, _ := storagetest.Key(t, x.Store, owner, access.EventsWrite)
		heir, _ := x.rotated(t, owner, wide.ID, time.Hour)
		for id, code := range map[string]string{gone.ID: "key_not_active", wide.ID: "already_rotated"} {
			_, _, err = x.rotate(t, member, id, 0)
			storagetest.ExpectFault(t, err, fault.Conflict, code)
		}
		_, _, err = x.rotate(t, member, heir.ID, 0)
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
	})
	t.Run("of a key that has expired is refused", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			end := time.Now().Add(time.Minute).UnixMilli()
			key := must[access.Key](t)(x.Directory.CreateKey(t.Context(), x.Operator, x.By, access.NewKey{
				Credential: access.Mint("svc"), Name: "ci", Scope: access.NewScope(access.EventsRead), ExpiresAt: &end,
			}))
			time.Sleep(time.Minute)
			_, _, err := x.rotate(t, x.Operator, key.ID, time.Hour)
			storagetest.ExpectFault(t, err, fault.Conflict, "key_not_active")
		})
	})
}

func TestConcurrentRotation(t *testing.T) {
	t.Parallel()

	t.Run("happens once, from however many sides and with whatever grace", func(t *testing.T) {
		t.Parallel()
		for _, grace := range []time.Duration{0, time.Hour} {
			x := newPlatform(t)
			key, _ := storagetest.Key(t, x.Store, x.Operator, access.EventsRead)
			var mu sync.Mutex
			codes := map[string]int{}
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					_, err := x.Directory.RotateKey(t.Context(), x.Operator, x.By, key.ID, access.Mint("svc"), grace)
					f, _ := fault.As(err)
					mu.Lock()
					defer mu.Unlock()
					if f == nil {
						f = &fault.Error{}
					}
					codes[f.Code]++
				})
			}
			wg.Wait()
			if d := cmp.Diff(map[string]int{"": 1, "already_rotated": 19}, codes); d != "" {
				t.Errorf("with a grace of %s (-want +got):\n%s", grace, d)
			}
			if all := must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), x.Operator.Home.RowID, access.KeyFilter{Limit: 10})).Rows; len(all) != 2 {
				t.Errorf("%d keys", len(all))
			}
		}
	})
	t.Run("a key and its successor note their own last use, at most once a minute", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			old := x.byKey(t, x.Operator, access.EventsRead)
			begin := time.Now().UnixMilli()
			x.Directory.Used(old, access.KeyUse{Allowed: 1})
			made, next := x.rotated(t, x.Operator, old.Key.ID, time.Hour)
			heir := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), next.Digest()))
			used := func(id string) any {
				if at := must[access.Key](t)(x.Directory.Key(t.Context(), x.Operator.Home.RowID, id)).LastUsedAt; at != nil {
					return *at - begin
				}
				return nil
			}
			time.Sleep(15 * time.Second)
			if used(old.Key.ID) != int64(0) || used(made.ID) != nil {
				t.Errorf("used at %v and %v", used(old.Key.ID), used(made.ID))
			}
			written := map[any]bool{}
			for range 240 {
				time.Sleep(time.Second)
				x.Directory.Used(heir, access.KeyUse{Allowed: 1})
				written[used(made.ID)] = true
			}
			if n := len(written) - 1; n < 4 || n > 5 || used(old.Key.ID) != int64(0) {
				t.Errorf("written %d times in four minutes; the old one at %v", n, used(old.Key.ID))
			}
		})
	})
}
