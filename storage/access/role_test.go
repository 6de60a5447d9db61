package access_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
)

func TestBuiltInRole(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, p := range access.BuiltInPermissions() {
		keys = append(keys, p.Key)
	}
	permissions := access.NewScope(append(keys, "orders:read", "orders:write", "platforms:read", "orders:reader")...)
	for _, test := range []struct{ role, want string }{
		{access.RoleOperator, permissions.String()},
		{access.RoleOwner, "api_keys:read api_keys:write audit:read events:read events:write orders:read orders:reader orders:write platforms:read webhooks:read webhooks:write"},
		{access.RoleMember, "api_keys:read audit:read events:read orders:read platforms:read webhooks:read"},
	} {
		t.Run(test.role+" follows the list of permissions", func(t *testing.T) {
			t.Parallel()
			granted := access.BuiltInRole(test.role, permissions)
			if diff := cmp.Diff(test.want, granted.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if granted := access.BuiltInRole(test.role, access.Scope{}); !granted.Empty() {
				t.Errorf("out of nothing it grants %q", granted)
			}
		})
	}
	t.Run("any other name is no built-in role and grants nothing", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"", "Operator", "operator ", "admin"} {
			if granted := access.BuiltInRole(name, permissions); !granted.Empty() {
				t.Errorf("%q grants %q", name, granted)
			}
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	t.Run("permission keys have at least two lower-case words with colons between", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{"a:b", "orders:read", "orders:read:all", "a1_:b_2"} {
			if !access.ValidPermissionKey(key) {
				t.Errorf("%q is refused", key)
			}
		}
		for _, key := range []string{"", "a", "a:", ":a", "a::b", "A:b", "a:B", "1a:b", "a:1b", "a b:c", "a:b ", "a:b\n", "a-b:c", "ä:b", "*", "a:*", strings.Repeat("a", 99) + ":b"} {
			if access.ValidPermissionKey(key) {
				t.Errorf("%q passes", key)
			}
		}
	})
	t.Run("plans and roles have names that a path can carry", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"a", "growth", "growth-2", "a_b", strings.Repeat("a", 63)} {
			if !access.ValidName(name) {
				t.Errorf("%q is refused", name)
			}
		}
		for _, name := range []string{"", "A", "1a", "-a", "a b", "a/b", "a.b", "a\n", "ä", strings.Repeat("a", 64)} {
			if access.ValidName(name) {
				t.Errorf("%q passes", name)
			}
		}
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	at := func(ms int64) *int64 { return &ms }
	for _, test := range []struct {
		name               string
		revoked, expiresAt *int64
		want               access.Status
	}{
		{"without an end it is active", nil, nil, access.Active},
		{"before its end it is active", nil, at(101), access.Active},
		{"at its end it has expired", nil, at(100), access.Expired},
		{"revoked wins over expired", at(1), at(50), access.Revoked},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := (access.Key{Issued: access.Issued{RevokedAt: test.revoked, ExpiresAt: test.expiresAt}}).Status(100); got != test.want {
				t.Errorf("a key is %s, want %s", got, test.want)
			}
			if got := (access.AccessToken{Issued: access.Issued{RevokedAt: test.revoked, ExpiresAt: test.expiresAt}}).Status(100); got != test.want {
				t.Errorf("a token is %s, want %s", got, test.want)
			}
		})
	}
}

func TestPrincipal(t *testing.T) {
	t.Parallel()
	home, other := access.Organization{RowID: 1, ID: "org_home"}, access.Organization{RowID: 2, ID: "org_other"}
	p := access.Principal{
		User:         access.User{RowID: 3, ID: "usr_1", Name: "Somebody"},
		Organization: home, Home: home,
		Permissions: access.NewScope(access.EventsRead),
	}
	t.Run("it can do what its permissions hold and nothing else", func(t *testing.T) {
		t.Parallel()
		if !p.Can(access.EventsRead) || p.Can(access.EventsWrite) || p.Can("") || (access.Principal{}).Can(access.EventsRead) {
			t.Error("wrong permissions")
		}
	})
	t.Run("acting in another organization leaves its own and what it was made from", func(t *testing.T) {
		t.Parallel()
		if in := p.In(other); in.Organization != other || in.Home != home || p.Organization != home {
			t.Errorf("acting in %v of %v", in.Organization.ID, in.Home.ID)
		}
	})
	t.Run("the log names the key where there is one, and the organization acted in", func(t *testing.T) {
		t.Parallel()
		want := access.Actor{Type: "user", ID: "usr_1", Name: "Somebody", Organization: 2, IP: "ip", RequestID: "req"}
		want.Authority = access.Authority{User: 3, Home: 1}
		if diff := cmp.Diff(want, p.In(other).Actor("ip", "req")); diff != "" {
			t.Errorf("a user (-want +got):\n%s", diff)
		}
		byKey := p
		byKey.Key = &access.Key{Issued: access.Issued{RowID: 4, ID: "key_1", Name: "ci"}}
		byToken := p
		byToken.Token = &access.AccessToken{Issued: access.Issued{RowID: 5}}
		if got := byToken.Authority(); got != (access.Authority{User: 3, Home: 1, Token: 5}) {
			t.Errorf("a token: %+v", got)
		}
		want.Authority.Key = 4
		want.Type, want.ID, want.Name, want.Organization = "api_key", "key_1", "ci", 1
		if diff := cmp.Diff(want, byKey.Actor("ip", "req")); diff != "" {
			t.Errorf("a key (-want +got):\n%s", diff)
		}
	})
}
