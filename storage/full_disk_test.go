package storage_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestWithdrawalsOnAFullDisk makes every write that withdraws rights while no other write runs.
func TestWithdrawalsOnAFullDisk(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.Reserve = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, o)
		x := platform{storagetest.PlatformOf(t, store)}
		ctx := t.Context()
		org := must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: "Acme", Plan: "growth"}))
		closed := must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: "Gone", Plan: "growth"}))
		owner, _ := storagetest.Member(t, store, org, "owner", access.RoleOwner)
		guest, _ := storagetest.Member(t, store, org, "guest", access.RoleMember)
		erased, _ := storagetest.Member(t, store, org, "erased", access.RoleMember)
		unused := must[access.User](t)(x.Directory.CreateUser(ctx, x.By, access.User{Name: "Unused", IsActive: true}))
		must[access.Role](t)(x.Directory.CreateRole(ctx, x.By, access.Role{Name: "clerk", Permissions: access.NewScope(access.EventsRead)}))
		must[access.Permission](t)(x.Directory.CreatePermission(ctx, x.By, access.Permission{Key: "orders:read"}))
		key, _ := storagetest.Key(t, store, owner, access.EventsRead)
		_, leaked := storagetest.Key(t, store, owner, access.EventsRead)
		rotated, _ := storagetest.Key(t, store, owner, access.EventsRead)
		sub, _ := storagetest.Subscription(t, store, owner, "https://example.com/")
		session := access.MintSession()
		must[access.Session](t)(x.Directory.CreateSession(ctx, owner, x.By, session))
		signedIn := must[access.Principal](t)(x.Directory.PrincipalBySession(ctx, session.Digest()))

		runs := 0
		if err := store.File.Write(ctx, sqlite.Work{Reserve: true}, func(tx *sqlite.Tx) error {
			if runs++; runs > 1 {
				return nil
			}
			return errors.Join(tx.Exec("PRAGMA max_page_count = 1"), tx.Exec("INSERT INTO instance (name, value) VALUES ('large', zeroblob(1000000))"),
				tx.Exec("PRAGMA max_page_count = 1000000"))
		}); err != nil || runs != 2 {
			t.Fatalf("%d runs, error %v", runs, err)
		}
		for what, do := range map[string]func() error{
			"a publication": func() error {
				_, err := x.Queue.PublishEvents(ctx, org.RowID, []webhook.NewEvent{{Type: "a", Data: []byte(`{}`)}})
				return err
			},
			"a rotation of a key, which makes one": func() error {
				_, err := x.Directory.RotateKey(ctx, owner, x.By, rotated.ID, access.Mint("svc"), time.Hour)
				return err
			},
			"an update of an organization by its back end": func() error {
				_, err := x.Directory.PutOrganization(ctx, x.By, org.ID, access.OrganizationChange{Name: new("Acme 2")})
				return err
			},
			"a new organization of a back end": func() error {
				_, err := x.Directory.PutOrganization(ctx, x.By, "acme-9", access.OrganizationChange{Name: new("Acme 9"), Plan: new("growth")})
				return err
			},
			"a new user of a back end": func() error {
				_, err := x.Directory.PutUser(ctx, x.By, "ada-9", access.UserChange{Name: new("Ada")})
				return err
			},
			"another name of a user": func() error {
				_, err := x.Directory.UpdateUser(ctx, x.By, unused.ID, access.UserChange{Name: new("Ada")})
				return err
			},
			"a new member": func() error {
				_, err := x.Directory.SetMember(ctx, x.By, org.ID, unused.ID, access.RoleMember)
				return err
			},
			"a role with more permissions": func() error {
				more := access.NewScope(access.EventsRead, access.EventsWrite)
				_, err := x.Directory.UpdateRole(ctx, x.By, "clerk", access.RoleChange{Permissions: &more})
				return err
			},
		} {
			if err := do(); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, do := range map[string]func() error{
			"revoke a key":        func() error { return x.Directory.RevokeKey(ctx, x.By, org.RowID, key.ID) },
			"revoke a leaked key": func() error { return x.Directory.RevokeLeaked(ctx, leaked.Digest(), "192.0.2.1", "req") },
			"revoke a token":      func() error { return x.Directory.RevokeToken(ctx, x.By, guest.User.ID, guest.Token.ID) },
			"end a session":       func() error { return x.Directory.EndSession(ctx, signedIn, x.By) },
			"give a member a lesser role": func() error {
				_, err := x.Directory.SetMember(ctx, x.By, org.ID, owner.User.ID, access.RoleMember)
				return err
			},
			"deactivate a user": func() error {
				_, err := x.Directory.UpdateUser(ctx, x.By, owner.User.ID, access.UserChange{IsActive: new(false)})
				return err
			},
			"remove a member":       func() error { return x.Directory.RemoveMember(ctx, x.By, org.ID, guest.User.ID) },
			"delete a role":         func() error { return x.Directory.DeleteRole(ctx, x.By, "clerk") },
			"delete a user":         func() error { return x.Directory.DeleteUser(ctx, x.By, unused.ID) },
			"delete a permission":   func() error { return x.Directory.DeletePermission(ctx, x.By, "orders:read") },
			"delete a subscription": func() error { return x.Subscriptions.DeleteSubscription(ctx, x.By, org.RowID, sub.ID) },
			"erase a user":          func() error { _, err := x.EraseUser(ctx, x.By, erased.User.ID); return err },
			"close an organization": func() error { _, err := x.CloseOrganization(ctx, x.By, closed.ID); return err },
			"hold the queue":        func() error { return x.Queue.HoldQueue(ctx, x.By, "") },
		} {
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
