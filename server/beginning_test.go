package server_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// names returns the names of a list, page by page, in the order of the alphabet.
func (f *testServer) names(t *testing.T, path string, limit int) []string {
	t.Helper()
	names := f.all(t, operator, path, "name", limit)
	slices.Sort(names)
	return names
}

func TestListsOfItemsThatBeginWithAText(t *testing.T) {
	t.Parallel()
	f := start(t)
	for name, external := range map[string]string{"Acme": "x-1", "acme two": "x-2", "100%": "x-3", "100 more": "y_1", `back\slash`: "yz1", "Beta": "ACME-9"} {
		organization, _ := json.Marshal(map[string]string{"name": name, "plan": "free", "external_id": external})
		f.do(t, call{"POST /api/v1/organizations/", operator, string(organization), nil}).want(t, 201, "")
		user, _ := json.Marshal(map[string]string{"name": name, "external_id": external, "email": "mail." + external + "@example.com"})
		f.do(t, call{"POST /api/v1/users/", operator, string(user), nil}).want(t, 201, "")
	}
	for _, path := range []string{"/api/v1/organizations/", "/api/v1/users/"} {
		t.Run("find names and external ids, and take every character literally: "+path, func(t *testing.T) {
			for text, want := range map[string][]string{
				"acme": {"Acme", "Beta", "acme two"}, "ACME ": {"acme two"}, "100%": {"100%"}, "100": {"100 more", "100%"}, "y_": {"100 more"},
				`back\`: {`back\slash`}, "%": nil, "_": nil, "cme": nil, "x-": {"100%", "Acme", "acme two"}, "'": nil, "\x00": nil, "\u202e": nil,
				strings.Repeat("x", 255): nil,
			} {
				for _, limit := range []int{1, 200} {
					if d := cmp.Diff(want, f.names(t, path+"?search="+url.QueryEscape(text), limit)); d != "" {
						t.Errorf("%q in pages of %d (-want +got):\n%s", text, limit, d)
					}
				}
			}
		})
		t.Run("list all for an empty text: "+path, func(t *testing.T) {
			if all, empty := f.names(t, path, 200), f.names(t, path+"?search=", 200); len(all) < 6 || !slices.Equal(all, empty) {
				t.Errorf("%q, and for an empty text %q", all, empty)
			}
		})
		t.Run("refuse a text that is too long: "+path, func(t *testing.T) {
			f.do(t, call{"GET " + path + "?search=" + strings.Repeat("x", 2000), operator, "", nil}).want(t, 400, "invalid_parameter")
		})
	}
	t.Run("find users by their e-mail address", func(t *testing.T) {
		if d := cmp.Diff([]string{"Acme"}, f.names(t, "/api/v1/users/?search=MAIL.x-1@", 200)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func TestMemberships(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.store, "beta", "growth", access.RoleOwner)
	f.do(t, call{"PUT /api/v1/organizations/" + other.Organization.ID + "/members/" + owner.User.ID + "/", operator, `{"role":"member"}`, nil}).want(t, 200, "")
	f.do(t, call{"PATCH /api/v1/organizations/" + other.Organization.ID + "/", operator, `{"external_id":"beta-17"}`, nil}).want(t, 200, "")
	path := "/api/v1/users/" + owner.User.ID + "/memberships/"
	t.Run("list the organizations of one user with its roles, page by page", func(t *testing.T) {
		for _, limit := range []int{1, 200} {
			if d := cmp.Diff([]string{"member", "owner"}, f.all(t, operator, path, "role", limit)); d != "" {
				t.Errorf("pages of %d (-want +got):\n%s", limit, d)
			}
		}
		organization, _ := f.list(t, operator, path).Data[0]["organization"].(map[string]any)
		if d := cmp.Diff(map[string]any{"id": other.Organization.ID, "name": "beta", "external_id": "beta-17"}, organization); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("are not found for an unknown user", func(t *testing.T) {
		f.do(t, call{"GET /api/v1/users/usr_01h455vb4pex5vsknk084sn02q/memberships/", operator, "", nil}).want(t, 404, "not_found")
	})
}
