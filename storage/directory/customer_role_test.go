package directory_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestTheRoleOfCustomers(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	role, err := store.Directory.Role(t.Context(), access.RoleCustomer)
	if err != nil || !role.BuiltIn {
		t.Fatalf("%+v, error %v", role, err)
	}
	owner, err := store.Directory.Role(t.Context(), access.RoleOwner)
	if missing := owner.Permissions.Minus(role.Permissions).String(); err != nil || missing != access.EventsWrite {
		t.Errorf("it lacks %q of what an owner has, error %v", missing, err)
	}
}
