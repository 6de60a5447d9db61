package directory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
)

func TestUnknownPermissions(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	if _, err := x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: "orders:read"}); err != nil {
		t.Fatal(err)
	}
	for named, want := range map[string]string{
		"":                              "",
		"orders:read audit:read":        "",
		"orders:write orders:read a:b":  "a:b orders:write",
		"orders:rea rders:read audit:r": "audit:r orders:rea rders:read",
	} {
		t.Run("of "+named, func(t *testing.T) {
			scope, _ := access.ParseScope(named)
			unknown, err := x.Directory.UnknownPermissions(t.Context(), scope)
			if err != nil || unknown.String() != want {
				t.Errorf("unknown %q, error %v, want %q", unknown, err, want)
			}
		})
	}
	t.Run("follow the list of permissions", func(t *testing.T) {
		if err := x.Directory.DeletePermission(t.Context(), x.By, "orders:read"); err != nil {
			t.Fatal(err)
		}
		unknown, err := x.Directory.UnknownPermissions(t.Context(), access.NewScope("orders:read"))
		if err != nil || unknown.String() != "orders:read" {
			t.Errorf("unknown %q, error %v", unknown, err)
		}
	})
}

// TestRolesOfAPermission has roles whose names are not in the order of their creation.
func TestRolesOfAPermission(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	const key = "orders:write"
	must[access.Permission](t)(x.Directory.CreatePermission(t.Context(), x.By, access.Permission{Key: key}))
	for _, name := range []string{"clerk", "auditor", "driver"} {
		must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: name, Permissions: access.NewScope(key)}))
	}
	want := access.RoleNames{access.RoleOperator, access.RoleOwner, access.RoleCustomer, "auditor", "clerk", "driver"}
	if d := cmp.Diff(want, must[access.Permission](t)(x.Directory.Permission(t.Context(), key)).Roles); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
