package storage_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestAppliedAfterAClosure closes the organization whose public id comes first among those that apply has created.
func TestAppliedAfterAClosure(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	ctx := t.Context()
	apply := x.By
	apply.Applying = true
	owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	var ids []string
	subscriptions := map[string]string{} // by organization
	for _, name := range []string{"one", "two", "three"} {
		o := must[access.Organization](t)(x.Directory.CreateOrganization(ctx, apply, access.Organization{Name: name, Plan: "growth"}))
		must[access.Member](t)(x.Directory.SetMember(ctx, apply, o.ID, owner.User.ID, access.RoleMember))
		sub, _, err := x.Subscriptions.CreateSubscription(ctx, apply, o.RowID, webhook.SubscriptionChange{URL: new("https://example.com/"), EventTypes: &webhook.Types{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		ids, subscriptions[o.ID] = append(ids, o.ID), sub.ID
	}
	slices.Sort(ids)
	must[access.Closure](t)(x.CloseOrganization(ctx, x.By, ids[0]))

	got := map[access.Applied]bool{}
	for _, a := range must[[]access.Applied](t)(x.History.Applied(ctx, 0, 100)) {
		a.RowID = 0
		got[a] = true
	}
	for i, id := range ids {
		for kind, key := range map[string]string{
			access.KindOrganization: id, access.KindMember: access.MemberKey(id, owner.User.ID), access.KindSubscription: subscriptions[id],
		} {
			if known := got[access.Applied{Kind: kind, Key: key}]; known != (i > 0) {
				t.Errorf("the %s of organization %d is known as created by apply: %t", kind, i, known)
			}
		}
	}
}

// TestAppliedAfterAnErasure erases one of two users who are members of the same organizations.
func TestAppliedAfterAnErasure(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	ctx := t.Context()
	apply := x.By
	apply.Applying = true
	var users [2]access.User
	for i, name := range []string{"Ada", "Bob"} {
		users[i] = must[access.User](t)(x.Directory.CreateUser(ctx, apply, access.User{Name: name, IsActive: true}))
	}
	want := []access.Applied{{Kind: access.KindUser, Key: users[1].ID}}
	for _, name := range []string{"one", "two"} {
		o := must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: name, Plan: "growth"}))
		for _, u := range users {
			must[access.Member](t)(x.Directory.SetMember(ctx, apply, o.ID, u.ID, access.RoleMember))
		}
		want = append(want, access.Applied{Kind: access.KindMember, Key: access.MemberKey(o.ID, users[1].ID)})
	}
	must[access.Erasure](t)(x.EraseUser(ctx, x.By, users[0].ID))
	got := must[[]access.Applied](t)(x.History.Applied(ctx, 0, 100))
	slices.Reverse(got)
	for i := range got {
		got[i].RowID = 0
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("created by apply (-want +got):\n%s", d)
	}
}
