package platform_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// names returns the names of a list, page by page, in the order of the alphabet.
func named(f *servertest.Fixture, t *testing.T, path string, limit int) []string {
	t.Helper()
	names := f.All(t, servertest.Operator, path, "name", limit)
	slices.Sort(names)
	return names
}

func TestListsOfItemsThatBeginWithAText(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	for name, external := range map[string]string{"Acme": "x-1", "acme two": "x-2", "100%": "x-3", "100 more": "y_1", `back\slash`: "yz1", "Beta": "ACME-9"} {
		organization, _ := json.Marshal(map[string]string{"name": name, "plan": "free", "external_id": external})
		f.Do(t, "POST /api/v1/organizations/", servertest.Operator, string(organization)).Want(t, 201, "")
		user, _ := json.Marshal(map[string]string{"name": name, "external_id": external, "email": "mail." + external + "@example.com"})
		f.Do(t, "POST /api/v1/users/", servertest.Operator, string(user)).Want(t, 201, "")
	}
	for _, path := range []string{"/api/v1/organizations/", "/api/v1/users/"} {
		t.Run("find names and external ids, and take every character literally: "+path, func(t *testing.T) {
			for text, want := range map[string][]string{
				"acme": {"Acme", "Beta", "acme two"}, "ACME ": {"acme two"}, "100%": {"100%"}, "100": {"100 more", "100%"}, "y_": {"100 more"},
				`back\`: {`back\slash`}, "%": nil, "_": nil, "cme": nil, "x-": {"100%", "Acme", "acme two"}, "'": nil, "\x00": nil, "\u202e": nil,
				strings.Repeat("x", 255): nil,
			} {
				for _, limit := range []int{1, 200} {
					if d := cmp.Diff(want, named(f, t, path+"?search="+url.QueryEscape(text), limit)); d != "" {
						t.Errorf("%q in pages of %d (-want +got):\n%s", text, limit, d)
					}
				}
			}
		})
		t.Run("list all for an empty text: "+path, func(t *testing.T) {
			if all, empty := named(f, t, path, 200), named(f, t, path+"?search=", 200); len(all) < 6 || !slices.Equal(all, empty) {
				t.Errorf("%q, and for an empty text %q", all, empty)
			}
		})
		t.Run("refuse a text that is too long: "+path, func(t *testing.T) {
			f.Do(t, "GET "+path+"?search="+strings.Repeat("x", 2000), servertest.Operator, "").Want(t, 400, "invalid_parameter")
		})
	}
	t.Run("find users by their e-mail address", func(t *testing.T) {
		if d := cmp.Diff([]string{"Acme"}, named(f, t, "/api/v1/users/?search=MAIL.x-1@", 200)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func TestMemberships(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.Store, "beta", "growth", access.RoleOwner)
	f.Do(t, "PUT /api/v1/organizations/"+other.Organization.ID+"/members/"+owner.User.ID+"/", servertest.Operator, `{"role":"member"}`).Want(t, 200, "")
	f.Do(t, "PATCH /api/v1/organizations/"+other.Organization.ID+"/", servertest.Operator, `{"external_id":"beta-17"}`).Want(t, 200, "")
	path := "/api/v1/users/" + owner.User.ID + "/memberships/"
	t.Run("list the organizations of one user with its roles, page by page", func(t *testing.T) {
		for _, limit := range []int{1, 200} {
			if d := cmp.Diff([]string{"member", "owner"}, f.All(t, servertest.Operator, path, "role", limit)); d != "" {
				t.Errorf("pages of %d (-want +got):\n%s", limit, d)
			}
		}
		organization, _ := f.List(t, servertest.Operator, path).Data[0]["organization"].(map[string]any)
		if d := cmp.Diff(map[string]any{"id": other.Organization.ID, "name": "beta", "external_id": "beta-17"}, organization); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		user := f.List(t, servertest.Operator, "/api/v1/users/?search="+url.QueryEscape(owner.User.Name)).Data[0]
		listed := fmt.Sprint(user["memberships"], user["newest_memberships"], user["last_used_at"])
		if want := fmt.Sprint(2, f.List(t, servertest.Operator, path).Data, nil); listed != want {
			t.Errorf("the list of users has %s, want %s", listed, want)
		}
	})
	t.Run("are not found for an unknown user", func(t *testing.T) {
		f.Do(t, "GET /api/v1/users/usr_01h455vb4pex5vsknk084sn02q/memberships/", servertest.Operator, "").Want(t, 404, "not_found")
	})
}
