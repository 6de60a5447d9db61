package directory_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// byKey returns the principal of a new key of p.
func (x platform) byKey(t *testing.T, p access.Principal, permissions ...string) access.Principal {
	t.Helper()
	_, credential := storagetest.Key(t, x.Store, p, permissions...)
	return must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest()))
}

func TestCreateKey(t *testing.T) {
	t.Parallel()
	t.Run("grants what is requested and held, and says in the log what it did not grant", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		member, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleMember)
		credential := access.Mint("svc")
		end := time.Now().Add(time.Hour).UnixMilli()
		made := must[access.Key](t)(x.Directory.CreateKey(t.Context(), member, member.Actor("192.0.2.1", "req"), access.NewKey{
			Credential: credential, Name: "ci", ExpiresAt: &end,
			Scope: access.NewScope(access.EventsWrite, access.EventsRead, access.PlatformRead, access.AuditRead),
		}))
		want := access.Key{
			Issued: access.Issued{
				RowID: made.RowID, ID: made.ID, Organization: member.Home.RowID, OrganizationID: member.Home.ID, Name: "ci",
				CreatedAt: made.CreatedAt, ExpiresAt: &end,
			},
			CreatedBy: member.User.ID, Scope: access.NewScope(access.AuditRead, access.EventsRead), KeyPrefix: credential.Display(),
			Window: made.RowID, Metadata: "{}", OrganizationName: member.Home.Name, CreatorName: member.User.Name,
		}
		if d := cmp.Diff(want, made); d != "" || !strings.HasPrefix(made.ID, "key_") || made.CreatedAt == 0 {
			t.Errorf("made (-want +got):\n%s", d)
		}
		if d := cmp.Diff(made, must[access.Key](t)(x.Directory.Key(t.Context(), member.Home.RowID, made.ID))); d != "" {
			t.Errorf("read (-made +read):\n%s", d)
		}
		x.expectLog(t, member.Home.RowID, told{"api_key_created", "api_key " + made.ID, map[string]any{
			"name": "ci", "scope": "audit:read events:read", "scope_not_granted": "events:write platform:read",
			"expires_at": time.UnixMilli(end).UTC().Format("2006-01-02T15:04:05.000Z"),
		}})
	})
	t.Run("a key never hands on more than its own scope", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		key := x.byKey(t, x.Operator, access.APIKeysWrite, access.EventsRead)
		made := must[access.Key](t)(x.Create(t, key, access.EventsRead, access.EventsWrite, access.PlatformActAs))
		if made.Scope.String() != access.EventsRead || made.CreatedBy != x.Operator.User.ID {
			t.Errorf("made %+v", made)
		}
		_, err := x.Create(t, key, access.EventsWrite)
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
	})
	t.Run("each begins a rate window of its own", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		seen := map[int64]bool{}
		for range 5 {
			made := must[access.Key](t)(x.Create(t, x.Operator, access.EventsRead))
			if made.Window != made.RowID || seen[made.Window] {
				t.Errorf("window %d of key %d", made.Window, made.RowID)
			}
			seen[made.Window] = true
		}
	})
}

func TestRefusedCreateKey(t *testing.T) {
	t.Parallel()

	t.Run("is refused without the capability in the plan of the organization acted in", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "free", access.RoleOwner)
		_, err := x.Create(t, owner, access.EventsRead)
		storagetest.ExpectFault(t, err, fault.Forbidden, "plan_capability_required")
		// The current plan counts, not the plan when the request was authenticated.
		must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "free", access.PlanChange{APIKeys: new(true), MaxAPIKeys: new((*int64)(nil))}))
		must[access.Key](t)(x.Create(t, owner, access.EventsRead))
	})
	t.Run("is refused to one who is no member, and says how to become one", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		for name, by := range map[string]access.Principal{
			"one who may not act elsewhere": other.In(owner.Home),
			"one without a user":            {Organization: owner.Home, Home: owner.Home, Permissions: x.Operator.Permissions},
			"a user of another row":         {Organization: owner.Home, Home: owner.Home, User: access.User{RowID: 1 << 40}},
		} {
			_, err := x.Create(t, by, access.EventsRead)
			if f, ok := fault.As(err); !ok || f.Code != "not_a_member" || f.Kind != fault.Conflict {
				t.Errorf("%s: %v", name, err)
			}
		}
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, owner.Home.ID, x.Operator.User.ID, access.RoleMember))
		made := must[access.Key](t)(x.Create(t, x.Operator.In(owner.Home), access.EventsRead, access.EventsWrite))
		if made.Scope.String() != access.EventsRead || made.OrganizationID != owner.Home.ID {
			t.Errorf("the role of the organization acted in grants %+v", made)
		}
	})
	t.Run("is refused where the scope names what does not exist, each by name", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		_, err := x.Create(t, x.Operator, "no:such", access.EventsRead, "nor:this")
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope unknown_permission", "scope unknown_permission")
		if f, _ := fault.As(err); !strings.Contains(f.Fields[0].Message, "no:such") || !strings.Contains(f.Fields[1].Message, "nor:this") {
			t.Errorf("%+v", f.Fields)
		}
	})
	t.Run("is refused where nothing would be granted", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		member, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleMember)
		for _, requested := range [][]string{{access.EventsWrite}, {access.PlatformRead, access.PlatformActAs}, {}} {
			_, err := x.Create(t, member, requested...)
			storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
		}
		if keys := must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), member.Home.RowID, access.KeyFilter{Limit: 10})).Rows; len(keys) != 0 {
			t.Errorf("keys %+v", keys)
		}
	})
	t.Run("goes by what the creator holds now, not by what it held when the request began", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, owner.Home.ID, owner.User.ID, access.RoleMember))
		if made := must[access.Key](t)(x.Create(t, owner, access.EventsRead, access.EventsWrite)); made.Scope.String() != access.EventsRead {
			t.Errorf("granted %q", made.Scope)
		}
		must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, owner.User.ID, access.UserChange{IsActive: new(false)}))
		_, err := x.Create(t, owner, access.EventsRead)
		storagetest.ExpectFault(t, err, fault.Conflict, "not_a_member")
	})
	t.Run("a credential revoked in the meantime leaves no key behind", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		key := x.byKey(t, x.Operator, access.APIKeysWrite)
		if err := x.Directory.RevokeKey(t.Context(), x.By, x.Operator.Home.RowID, key.Key.ID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Create(t, key, access.APIKeysWrite)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_revoked")
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		if err := x.Directory.RevokeToken(t.Context(), x.By, owner.User.ID, owner.Token.ID); err != nil {
			t.Fatal(err)
		}
		_, err = x.Create(t, owner, access.EventsRead)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
	})
}

func TestKeysAreKeptAsDigests(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	owner, token := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	_, credential := storagetest.Key(t, store, owner, access.EventsRead)
	secrets := [][]byte{[]byte(token.Reveal()[4:]), []byte(credential.Reveal()[4:]), []byte(storagetest.OperatorToken)}
	stop() // before that, closing one of the files would drop the store's locks on it
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v: %v", files, err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, secret := range secrets {
			if bytes.Contains(content, secret) {
				t.Errorf("%s holds secret %d", filepath.Base(name), i)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	t.Run("are listed by status, newest first, of their organization alone", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		must[access.Key](t)(x.Create(t, x.Operator, access.EventsRead)) // of another organization
		now := time.Now().UnixMilli()
		for _, k := range []struct {
			name    string
			end     *int64
			revoked bool
		}{{"forever", nil, false}, {"gone", nil, true}, {"over", new(now + 1000), false}, {"soon", new(now + 1001), false}, {"gone and over", new(now), true}} {
			made := must[access.Key](t)(x.Directory.CreateKey(t.Context(), owner, owner.Actor("", ""), access.NewKey{
				Credential: access.Mint("svc"), Name: k.name, Scope: access.NewScope(access.EventsRead), ExpiresAt: k.end,
			}))
			if k.revoked {
				if err := x.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Home.RowID, made.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		for status, want := range map[access.Status]string{
			"": "gone and over, soon, over, gone, forever", access.Active: "soon, forever", access.Revoked: "gone and over, gone", access.Expired: "over",
		} {
			var got []string
			for before := int64(0); ; {
				page := must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), owner.Home.RowID, access.KeyFilter{Status: status, Now: now + 1000, Before: before, Limit: 2})).Rows
				for _, k := range page {
					before = k.RowID
					got = append(got, k.Name)
					if status != "" && k.Status(now+1000) != status {
						t.Errorf("%s is %s, listed as %s", k.Name, k.Status(now+1000), status)
					}
				}
				if len(page) < 2 {
					break
				}
			}
			if d := cmp.Diff(want, strings.Join(got, ", ")); d != "" {
				t.Errorf("%q: %s", status, d)
			}
		}
	})
	t.Run("another organization's is not there", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		key, credential := storagetest.Key(t, x.Store, owner, access.EventsRead)
		for _, id := range []string{key.ID, "key_none", ""} {
			_, err := x.Directory.Key(t.Context(), x.Operator.Home.RowID, id)
			storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
			storagetest.ExpectFault(t, x.Directory.RevokeKey(t.Context(), x.By, x.Operator.Home.RowID, id), fault.NotFound, "not_found")
		}
		must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), credential.Digest()))
	})
	t.Run("is revoked once, however often and from however many sides", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		key, _ := storagetest.Key(t, x.Store, x.Operator, access.EventsRead)
		var failed atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if x.Directory.RevokeKey(t.Context(), x.By, x.Operator.Home.RowID, key.ID) != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		read := must[access.Key](t)(x.Directory.Key(t.Context(), x.Operator.Home.RowID, key.ID))
		if failed.Load() != 0 || read.RevokedAt == nil || read.Status(0) != access.Revoked {
			t.Errorf("%d failed, the key is %+v", failed.Load(), read)
		}
		x.expectLog(t, x.Operator.Home.RowID,
			told{"api_key_revoked", "api_key " + key.ID, map[string]any{"name": "test"}},
			told{"api_key_created", "api_key " + key.ID, map[string]any{
				"name": "test", "scope": access.EventsRead, "scope_not_granted": "", "expires_at": nil,
			}})
	})
}

// TestKeysOfOtherOrganizations looks for the key of another customer, and revokes it as an operator.
func TestKeysOfOtherOrganizations(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
	key, _ := storagetest.Key(t, x.Store, owner, access.EventsRead)
	t.Run("a prefix finds the key for its own organization and for operators only", func(t *testing.T) {
		for organization, want := range map[int64]int{owner.Home.RowID: 1, access.AllOrganizations: 1, other.Home.RowID: 0} {
			page := must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), organization, access.KeyFilter{Prefix: key.KeyPrefix, Limit: 10}))
			if len(page.Rows) != want {
				t.Errorf("organization %d finds %d keys, want %d", organization, len(page.Rows), want)
			}
		}
	})
	t.Run("the audit log of its organization has the revocation by an operator", func(t *testing.T) {
		by := x.Operator.In(owner.Home).Actor("192.0.2.1", "req")
		if err := x.Directory.RevokeKey(t.Context(), by, owner.Home.RowID, key.ID); err != nil {
			t.Fatal(err)
		}
		x.expectLog(t, owner.Home.RowID, told{access.KeyRevoked, "api_key " + key.ID, map[string]any{"name": "test"}})
	})
}

// TestAKeyThatExpiresFreesItsExternalID creates a key with the external id of another before and after the end of the other.
func TestAKeyThatExpiresFreesItsExternalID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newPlatform(t)
		end := time.Now().Add(time.Hour).UnixMilli()
		create := func(expires *int64) (access.Key, error) {
			return x.Directory.CreateKey(t.Context(), x.Operator, x.By, access.NewKey{
				Credential: access.Mint("svc"), Name: "n", Scope: access.NewScope(access.EventsRead), ExpiresAt: expires, ExternalID: new("backend"),
			})
		}
		old := must[access.Key](t)(create(&end))
		_, err := create(nil)
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "external_id already_exists")
		time.Sleep(time.Hour)
		_, err = x.Directory.KeyID(t.Context(), x.Operator.Home.RowID, "backend")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		heir := must[access.Key](t)(create(nil))
		if id := must[string](t)(x.Directory.KeyID(t.Context(), x.Operator.Home.RowID, "backend")); id != heir.ID {
			t.Errorf("the external id names %s, want %s", id, heir.ID)
		}
		if got := must[access.Key](t)(x.Directory.Key(t.Context(), x.Operator.Home.RowID, old.ID)); got.ExternalID != nil {
			t.Errorf("the key that has ended keeps %s", *got.ExternalID)
		}
	})
}

func TestUnusedKeys(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	key, _ := storagetest.Key(t, x.Store, x.Operator, access.EventsRead)
	unusedSince := func(at int64) int {
		return len(must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), x.Operator.Home.RowID, access.KeyFilter{Limit: 10, Unused: at})).Rows)
	}
	if unusedSince(key.CreatedAt) != 1 || unusedSince(key.CreatedAt-1) != 0 {
		t.Error("a key that was never used does not count from its creation")
	}
	if err := x.Write(t.Context(), sqlite.Work{}, func(t *sqlite.Tx) error {
		return t.Exec("UPDATE api_keys SET last_used_at = created_at + 1000")
	}); err != nil {
		t.Fatal(err)
	}
	if unusedSince(key.CreatedAt+999) != 0 || unusedSince(key.CreatedAt+1000) != 1 {
		t.Error("a key does not count from its last use")
	}
}
