package directory_test

import (
	"testing"

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
