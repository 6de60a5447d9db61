package directory_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestANewUserAnswersAtOnce asks for an identity before and after a user is created whom it means.
func TestANewUserAnswersAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before string      // the refusal before the user exists
		user   access.User // the new one
	}{
		{"by the e-mail address that nobody had", "unknown_user", access.User{Email: "New@example.com"}},
		{"by the subject that nobody had", "unknown_user", access.User{Email: "other@example.com", ExternalID: new("s-1")}},
		{"by the subject, where the address belongs to another subject", "subject_mismatch", access.User{Email: "other@example.com", ExternalID: new("s-1")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newPlatform(t)
			identity := access.Identity{Subject: "s-1", Email: "new@example.com"}
			if tt.before == "subject_mismatch" {
				must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: identity.Email, Name: "holder", ExternalID: new("s-2"), IsActive: true}))
			}
			for range 2 { // read, and cached if refusals were
				_, err := x.Directory.PrincipalByIdentity(t.Context(), identity, "")
				storagetest.ExpectFault(t, err, fault.Unauthenticated, tt.before)
			}
			tt.user.Name, tt.user.IsActive = "new", true
			made := must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, tt.user))
			_, err := x.Directory.PrincipalByIdentity(t.Context(), identity, "")
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "not_a_member")
			must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, x.Operator.Home.ID, made.ID, access.RoleMember))
			if p := must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), identity, "")); p.User.ID != made.ID {
				t.Errorf("the identity means %s, want the new user", p.User.Name)
			}
		})
	}

	t.Run("and not in the place of the user whom the address has bound", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		ada, _ := storagetest.Organization(t, x.Store, "ada", "growth", access.RoleOwner)
		identity := access.Identity{Subject: "s-1", Email: ada.User.Email}
		must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), identity, ""))
		if _, err := x.Directory.UpdateUser(t.Context(), x.By, ada.User.ID, access.UserChange{Email: new("ada@other.example")}); err != nil {
			t.Fatal(err)
		}
		must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), identity, ""))
		must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: identity.Email, Name: "heir", IsActive: true}))
		if p := must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), identity, "")); p.User.ID != ada.User.ID {
			t.Errorf("the identity means %s, want the user who is bound", p.User.Name)
		}
	})
}

// TestABindingShowsInCachedPrincipals signs a user in by e-mail while an access token of the user is cached.
func TestABindingShowsInCachedPrincipals(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	ada, token := storagetest.Organization(t, x.Store, "ada", "growth", access.RoleOwner)
	must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), token.Digest()))
	must[access.Principal](t)(x.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "s-1", Email: ada.User.Email}, ""))
	p := must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), token.Digest()))
	if id := p.User.ExternalID; id == nil || *id != "s-1" {
		t.Errorf("the external id is %v, want s-1", id)
	}
}
