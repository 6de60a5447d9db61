package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// referring are requests that name resources that do not exist, beside other problems.
func referring(organization, user string) map[string]struct {
	line, body string
	want       []string
} {
	const orgs, roles = "/api/v1/organizations/", "/api/v1/roles/"
	long := strings.Repeat("x", 101)
	return map[string]struct {
		line, body string
		want       []string
	}{
		"permissions of a new role": {"POST " + roles, `{"name":"No","permissions":["audit:read","a:b","*",7,"a:b",""],"x":1}`,
			[]string{"name: invalid", "permissions.3: wrong_type", "permissions.1: unknown_permission", "permissions.2: unknown_permission",
				"permissions.4: unknown_permission", "permissions.5: unknown_permission", "x: unknown_field"}},
		"permissions of a role": {"PATCH " + roles + "clerk/", `{"permissions":["a:b","A"],"name":"x"}`,
			[]string{"permissions.0: unknown_permission", "permissions.1: unknown_permission", "name: unknown_field"}},
		"scope": {"POST /api/v1/api-keys/", `{"name":"` + long + `","scope":"audit:read a:b * c:d","expires_at":"x"}`,
			[]string{"name: too_long", "scope: unknown_permission", "expires_at: invalid"}},
		"plan of a new organization": {"POST " + orgs, `{"name":"","plan":"gold","external_id":""}`,
			[]string{"name: blank", "plan: unknown_plan", "external_id: invalid"}},
		"plan": {"PATCH " + orgs + organization + "/", `{"name":"","plan":"gold","external_id":""}`,
			[]string{"name: blank", "plan: unknown_plan", "external_id: invalid"}},
		"role": {"PUT " + orgs + organization + "/members/" + user + "/", `{"role":"king","x":1}`,
			[]string{"role: unknown_role", "x: unknown_field"}},
		"organization": {"POST /api/v1/users/" + user + "/access-tokens/", `{"organization_id":"org_01h455vb4pex5vsknk084sn02q","name":"` + long + `","expires_at":7}`,
			[]string{"organization_id: unknown_organization", "name: too_long", "expires_at: wrong_type"}},
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"clerk","permissions":[]}`).Want(t, 201, "")
	for name, tt := range referring(owner.Organization.ID, owner.User.ID) {
		t.Run("are listed with all other problems: "+name, func(t *testing.T) {
			got := f.Do(t, tt.line, servertest.Operator, tt.body).Want(t, 422, "validation_failed")
			if diff := cmp.Diff(tt.want, got.Fields()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("in a scope are named, up to a length", func(t *testing.T) {
		body := `{"name":"x","scope":"* ` + strings.Repeat("y", 5000) + ` a:b \u001b[31m c:d` + strings.Repeat(" Z", 10) + `"}`
		got := f.Do(t, "POST /api/v1/api-keys/", servertest.Operator, body).Want(t, 422, "unknown_permission")
		want := "Unknown permissions: *, " + strings.Repeat("y", 100) + "…, \ufffd[31m" + strings.Repeat(", Z", 10) + ", a:b, c:d. Use those that GET /api/v1/permissions/ lists, or ask an operator to create these there."
		if diff := cmp.Diff(want, got.Field("detail")); diff != "" {
			t.Errorf("detail (-want +got):\n%s", diff)
		}
	})
}

// unknowing is a store that cannot look up references.
type unknowing struct {
	server.Store
	err error
}

func (s unknowing) Plan(context.Context, string) (access.Plan, error) { return access.Plan{}, s.err }
func (s unknowing) Role(context.Context, string) (access.Role, error) { return access.Role{}, s.err }

func (s unknowing) Organization(context.Context, string) (access.Organization, error) {
	return access.Organization{}, s.err
}

func (s unknowing) UnknownPermissions(context.Context, access.Scope) (access.Scope, error) {
	return access.Scope{}, s.err
}

func TestNamesThatCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"an error of the driver":  {errors.New("disk I/O error in SELECT secret"), 500, "internal_error"},
		"a fault of the database": {fault.New(fault.Unavailable, "storage_unavailable", "Later.").Because(errors.New("secret")), 503, "storage_unavailable"},
	} {
		t.Run("are not a problem of the request: "+name, func(t *testing.T) {
			t.Parallel()
			f := start(t, func(o *server.Options) { o.Store = unknowing{o.Store, tt.err} })
			owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
			for of, r := range referring(owner.Organization.ID, owner.User.ID) {
				if got := f.Do(t, r.line, servertest.Operator, r.body).Want(t, tt.status, tt.code); strings.Contains(got.Text, "secret") {
					t.Errorf("%s: %s", of, got.Text)
				}
			}
			if !strings.Contains(f.Log.String(), "secret") {
				t.Errorf("the log does not say why: %s", f.Log.String())
			}
		})
	}
}
