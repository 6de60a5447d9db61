package directory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	t.Run("a new instance has the seeded plans, newest first", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		var names []string
		for before := int64(0); ; {
			page := must[[]access.Plan](t)(x.Directory.Plans(t.Context(), before, 3))
			for _, p := range page {
				names, before = append(names, p.Name), p.RowID
			}
			if len(page) < 3 {
				break
			}
		}
		if d := cmp.Diff([]string{"enterprise", "business", "growth", "free"}, names); d != "" {
			t.Error(d)
		}
		free := must[access.Plan](t)(x.Directory.Plan(t.Context(), "free"))
		enterprise := must[access.Plan](t)(x.Directory.Plan(t.Context(), "enterprise"))
		if free.APIKeys || free.Webhooks || *free.RateLimitPerMinute != 60 || enterprise.RateLimitPerMinute != nil || !enterprise.APIKeys {
			t.Errorf("free is %+v, enterprise %+v", free, enterprise)
		}
	})
	t.Run("is created, read, changed in the fields named, and removed, each with its line in the log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.Plan](t)(x.Directory.CreatePlan(t.Context(), x.By, access.Plan{Name: "pro", APIKeys: true, RateLimitPerMinute: new(int64(0))}))
		if read := must[access.Plan](t)(x.Directory.Plan(t.Context(), "pro")); !cmp.Equal(made, read) || made.RowID == 0 || made.CreatedAt == 0 {
			t.Errorf("made %+v, read %+v", made, read)
		}
		changed := must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "pro", access.PlanChange{Webhooks: new(true)}))
		if !changed.APIKeys || !changed.Webhooks || *changed.RateLimitPerMinute != 0 {
			t.Errorf("changed to %+v", changed)
		}
		changed = must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "pro", access.PlanChange{RateLimitPerMinute: new((*int64)(nil))}))
		if changed.RateLimitPerMinute != nil || !changed.Webhooks {
			t.Errorf("changed to %+v", changed)
		}
		if err := x.Directory.DeletePlan(t.Context(), x.By, "pro"); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.Plan(t.Context(), "pro")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		x.expectLog(t, x.Operator.Home.RowID,
			told{"plan_deleted", "plan pro", map[string]any{}},
			told{"plan_updated", "plan pro", map[string]any{"api_rate_limit_per_minute": nil}},
			told{"plan_updated", "plan pro", map[string]any{"webhooks": true}},
			told{"plan_created", "plan pro", map[string]any{"api_keys": true, "webhooks": false, "api_rate_limit_per_minute": 0.0, "max_subscriptions": nil, "max_api_keys": nil, "max_stored_bytes_per_day": nil}})
	})
	t.Run("refuses what cannot be, and logs none of it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		before := x.log(t, x.Operator.Home.RowID)
		_, err := x.Directory.CreatePlan(t.Context(), x.By, access.Plan{Name: "free"})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "name already_exists")
		_, err = x.Directory.UpdatePlan(t.Context(), x.By, "none", access.PlanChange{})
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.DeletePlan(t.Context(), x.By, "none"), fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.DeletePlan(t.Context(), x.By, "enterprise"), fault.Conflict, "in_use")
		if d := cmp.Diff(before, x.log(t, x.Operator.Home.RowID)); d != "" {
			t.Error(d)
		}
	})
	t.Run("of many who create one name at once, one does", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		var made, refused int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := x.Directory.CreatePlan(t.Context(), x.By, access.Plan{Name: "pro"})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made++
				} else if fault.KindOf(err) == fault.Conflict {
					refused++
				}
			})
		}
		if wg.Wait(); made != 1 || refused != 19 {
			t.Errorf("%d made, %d refused", made, refused)
		}
	})
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	t.Run("a new instance has the built-in ones", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		all := must[[]access.Permission](t)(x.Directory.Permissions(t.Context(), 0, 100))
		if len(all) != len(access.BuiltInPermissions()) || !all[0].BuiltIn || all[0].Key != access.PlatformActAs {
			t.Errorf("%+v", all)
		}
	})
	t.Run("is created, read, described again and removed, each with its line in the log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: "orders:read", Description: "Read", BuiltIn: true}))
		if read := must[access.Permission](t)(x.Directory.Permission(t.Context(), "orders:read")); !cmp.Equal(made, read) || made.BuiltIn {
			t.Errorf("made %+v, read %+v", made, read)
		}
		changed := must[access.Permission](t)(x.Directory.UpdatePermission(t.Context(), x.By, "orders:read", "Read orders"))
		if read := must[access.Permission](t)(x.Directory.Permission(t.Context(), "orders:read")); !cmp.Equal(changed, read) || read.Description != "Read orders" {
			t.Errorf("changed %+v, read %+v", changed, read)
		}
		if err := x.Directory.DeletePermission(t.Context(), x.By, "orders:read"); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.Permission(t.Context(), "orders:read")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		x.expectLog(t, x.Operator.Home.RowID,
			told{"permission_deleted", "permission orders:read", map[string]any{}},
			told{"permission_updated", "permission orders:read", map[string]any{"description": "Read orders"}},
			told{"permission_created", "permission orders:read", map[string]any{"description": "Read", "internal": false}})
	})
	t.Run("names the roles that grant it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		for key, want := range map[string]struct {
			internal bool
			roles    access.RoleNames
		}{
			"orders:read":    {false, access.RoleNames{"operator", "owner", "customer", "member"}},
			"orders:write":   {false, access.RoleNames{"operator", "owner", "customer"}},
			"refunds:read":   {true, access.RoleNames{"operator"}},
			"platform:debug": {true, access.RoleNames{"operator"}},
		} {
			internal := want.internal && !access.IsPlatform(key) // a platform permission is internal by itself
			made := must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: key, Internal: internal}))
			if d := cmp.Diff(want.roles, made.Roles); d != "" || made.Internal != want.internal {
				t.Errorf("%s: internal %v, roles (-want +got):\n%s", key, made.Internal, d)
			}
		}
		for _, name := range []string{"staff", "desk"} {
			must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: name, Permissions: access.NewScope("refunds:read", access.EventsRead)}))
		}
		for _, p := range must[[]access.Permission](t)(x.Directory.Permissions(t.Context(), 0, 100)) {
			if p.Key == "refunds:read" && !cmp.Equal(p.Roles, access.RoleNames{"operator", "desk", "staff"}) {
				t.Errorf("%+v", p)
			}
			if p.BuiltIn && access.IsPlatform(p.Key) && (!p.Internal || !cmp.Equal(p.Roles, access.RoleNames{"operator"})) {
				t.Errorf("%+v", p)
			}
		}
		if role := must[access.Role](t)(x.Directory.Role(t.Context(), access.RoleOwner)); role.Permissions.Has("refunds:read") || !role.Permissions.Has("orders:write") {
			t.Errorf("the owner has %s", role.Permissions)
		}
		_, err := x.createOf(t, owner, "", "refunds:read")
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "scope scope_not_grantable")
		now := must[access.Principal](t)(x.Directory.PrincipalOfSystem(t.Context()))
		if !now.Can("refunds:read") {
			t.Error("the operator does not have an internal permission")
		}
	})
	t.Run("refuses what cannot be", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		_, err := x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: access.EventsRead})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "key already_exists")
		_, err = x.Directory.UpdatePermission(t.Context(), x.By, "no:such", "")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.DeletePermission(t.Context(), x.By, "no:such"), fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.DeletePermission(t.Context(), x.By, access.EventsRead), fault.Conflict, "built_in")
	})
	t.Run("stays while a role grants it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: "orders:read"}))
		must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "clerk", Permissions: access.NewScope("orders:read")}))
		storagetest.ExpectFault(t, x.Directory.DeletePermission(t.Context(), x.By, "orders:read"), fault.Conflict, "in_use")
		must[access.Role](t)(x.Directory.UpdateRole(t.Context(), x.By, "clerk", access.RoleChange{Permissions: &access.Scope{}}))
		if err := x.Directory.DeletePermission(t.Context(), x.By, "orders:read"); err != nil {
			t.Error(err)
		}
	})
	t.Run("stays while a key that is still good has it in its scope", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		for _, key := range []string{"orders:read", "orders:read:all"} {
			must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: key}))
		}
		storagetest.Key(t, x.Store, x.Operator, "orders:read:all", access.EventsRead)
		for end, permission := range map[int64]string{1: "orders:read", time.Now().Add(time.Hour).UnixMilli(): "orders:read:all"} {
			must[access.Key](t)(x.Directory.CreateKey(t.Context(), x.Operator, x.By, access.NewKey{
				Credential: access.Mint("svc"), Name: "until", Scope: access.NewScope(permission), ExpiresAt: &end,
			}))
		}
		storagetest.ExpectFault(t, x.Directory.DeletePermission(t.Context(), x.By, "orders:read:all"), fault.Conflict, "in_use")
		if err := x.Directory.DeletePermission(t.Context(), x.By, "orders:read"); err != nil {
			t.Errorf("another, which an expired key has, and with which a good one's only begins: %v", err)
		}
		for _, key := range must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), x.Operator.Home.RowID, access.KeyFilter{Limit: 10})).Rows {
			storagetest.ExpectFault(t, x.Directory.DeletePermission(t.Context(), x.By, "orders:read:all"), fault.Conflict, "in_use")
			if err := x.Directory.RevokeKey(t.Context(), x.By, x.Operator.Home.RowID, key.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Directory.DeletePermission(t.Context(), x.By, "orders:read:all"); err != nil {
			t.Errorf("once all are revoked: %v", err)
		}
	})
}

func TestRoles(t *testing.T) {
	t.Parallel()
	t.Run("the built-in ones are listed with what they grant at present", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: "orders:read"}))
		granted := map[string]string{}
		for _, r := range must[[]access.Role](t)(x.Directory.Roles(t.Context(), 0, 10)) {
			if !r.BuiltIn {
				t.Errorf("%s is not built in", r.Name)
			}
			granted[r.Name] = r.Permissions.String()
			if one := must[access.Role](t)(x.Directory.Role(t.Context(), r.Name)); !one.Permissions.Equal(r.Permissions) {
				t.Errorf("%s alone grants %q", r.Name, one.Permissions)
			}
		}
		if d := cmp.Diff(map[string]string{
			"operator": "api_keys:read api_keys:write audit:read events:read events:write orders:read platform:act_as platform:read platform:write webhooks:read webhooks:write",
			"owner":    "api_keys:read api_keys:write audit:read events:read events:write orders:read webhooks:read webhooks:write",
			"customer": "api_keys:read api_keys:write audit:read events:read orders:read webhooks:read webhooks:write",
			"member":   "api_keys:read audit:read events:read orders:read webhooks:read",
		}, granted); d != "" {
			t.Error(d)
		}
	})
	t.Run("is created, read, changed and removed, each with its line in the log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "clerk", BuiltIn: true, Permissions: access.NewScope(access.EventsRead, access.AuditRead)}))
		read := must[access.Role](t)(x.Directory.Role(t.Context(), "clerk"))
		if made.BuiltIn || !made.Permissions.Equal(read.Permissions) || read.Permissions.String() != "audit:read events:read" {
			t.Errorf("made %+v, read %+v", made, read)
		}
		if same := must[access.Role](t)(x.Directory.UpdateRole(t.Context(), x.By, "clerk", access.RoleChange{})); !same.Permissions.Equal(made.Permissions) {
			t.Errorf("an empty change leaves %q", same.Permissions)
		}
		changed := must[access.Role](t)(x.Directory.UpdateRole(t.Context(), x.By, "clerk", access.RoleChange{Permissions: new(access.NewScope(access.EventsWrite))}))
		if read := must[access.Role](t)(x.Directory.Role(t.Context(), "clerk")); changed.Permissions.String() != "events:write" || !changed.Permissions.Equal(read.Permissions) {
			t.Errorf("changed %+v, read %+v", changed, read)
		}
		if err := x.Directory.DeleteRole(t.Context(), x.By, "clerk"); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.Role(t.Context(), "clerk")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		x.expectLog(t, x.Operator.Home.RowID,
			told{"role_deleted", "role clerk", map[string]any{}},
			told{"role_updated", "role clerk", map[string]any{"permissions": []any{"events:write"}}},
			told{"role_updated", "role clerk", map[string]any{}},
			told{"role_created", "role clerk", map[string]any{"permissions": []any{"audit:read", "events:read"}}})
	})
	t.Run("refuses what cannot be, naming every unknown permission", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		_, err := x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "owner"})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "name already_exists")
		_, err = x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "clerk", Permissions: access.NewScope("no:such", access.EventsRead, "nor:this")})
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "permissions unknown_permission", "permissions unknown_permission")
		_, err = x.Directory.Role(t.Context(), "clerk")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		_, err = x.Directory.UpdateRole(t.Context(), x.By, "clerk", access.RoleChange{})
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.DeleteRole(t.Context(), x.By, "clerk"), fault.NotFound, "not_found")
		_, err = x.Directory.UpdateRole(t.Context(), x.By, "member", access.RoleChange{Permissions: &access.Scope{}})
		storagetest.ExpectFault(t, err, fault.Conflict, "built_in")
		storagetest.ExpectFault(t, x.Directory.DeleteRole(t.Context(), x.By, "member"), fault.Conflict, "built_in")

		must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "clerk"}))
		_, err = x.Directory.UpdateRole(t.Context(), x.By, "clerk", access.RoleChange{Permissions: new(access.NewScope("no:such"))})
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "permissions unknown_permission")
	})
	t.Run("stays while a member has it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "clerk"}))
		clerk, _ := storagetest.Organization(t, x.Store, "acme", "growth", "clerk")
		storagetest.ExpectFault(t, x.Directory.DeleteRole(t.Context(), x.By, "clerk"), fault.Conflict, "in_use")
		if err := x.Directory.RemoveMember(t.Context(), x.By, clerk.Home.ID, clerk.User.ID); err != nil {
			t.Fatal(err)
		}
		if err := x.Directory.DeleteRole(t.Context(), x.By, "clerk"); err != nil {
			t.Error(err)
		}
	})
}

// TestDeleteInternalPermission checks that nobody deletes an internal permission that they lack: they could create it again for customers.
func TestDeleteInternalPermission(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: "refunds:read", Internal: true}))
	must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: "orders:pay"}))
	narrow := must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "narrow", Permissions: access.NewScope(access.PlatformWrite)}))
	who, _ := storagetest.Organization(t, x.Store, "back-end", "growth", narrow.Name)
	by := who.Actor("", "")
	storagetest.ExpectFault(t, x.Directory.DeletePermission(t.Context(), by, "refunds:read"), fault.Forbidden, "permission_denied")
	for by, key := range map[*access.Actor]string{&by: "orders:pay", &x.By: "refunds:read"} {
		if err := x.Directory.DeletePermission(t.Context(), *by, key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
