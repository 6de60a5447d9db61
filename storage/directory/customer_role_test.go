package directory_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestTheRoleOfCustomers opens files without the built-in role customer, as earlier versions left them.
func TestTheRoleOfCustomers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ statement, refusal string }{
		"is there from the first start":                  {"SELECT 1", ""},
		"is added to a file that lacks it":               {"DELETE FROM roles WHERE name = 'customer'", ""},
		"is not taken from a role of the operator's own": {"UPDATE roles SET built_in = 0 WHERE name = 'customer'", "UPDATE roles SET name = 'my-customer' WHERE name = 'customer'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
			_, stop := storagetest.OpenWith(t, o)
			stop()
			run(t, o.Path, tt.statement)
			if tt.refusal != "" {
				store, err := storage.Open(t.Context(), o)
				if err == nil {
					_ = store.Close()
				}
				if err == nil || !strings.Contains(err.Error(), "a role of your own has the name customer") || !strings.Contains(err.Error(), tt.refusal) {
					t.Fatalf("error %v", err)
				}
				run(t, o.Path, tt.refusal) // what the refusal says
			}
			store, stop := storagetest.OpenWith(t, o)
			defer stop()
			role, err := store.Directory.Role(t.Context(), access.RoleCustomer)
			if err != nil || !role.BuiltIn {
				t.Fatalf("%+v, error %v", role, err)
			}
			owner, err := store.Directory.Role(t.Context(), access.RoleOwner)
			if missing := owner.Permissions.Minus(role.Permissions).String(); err != nil || missing != access.EventsWrite {
				t.Errorf("it lacks %q of what an owner has, error %v", missing, err)
			}
		})
	}
}

// run runs a statement on the file of a store that is closed.
func run(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
