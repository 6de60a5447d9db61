package directory_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// portal is a platform with an organization that has no service account yet.
type portal struct {
	platform
	home access.Organization
}

func newPortal(t *testing.T) portal {
	t.Helper()
	x := newPlatform(t)
	owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	return portal{x, owner.Home}
}

// link creates a portal link for a role.
func (x portal) link(t *testing.T, role string) access.Credential {
	t.Helper()
	c := access.Mint(access.LinkPrefix)
	must[access.SignInLink](t)(x.Directory.CreatePortalLink(t.Context(), x.By, x.home.ID, access.NewPortalLink{Credential: c, Role: role, Life: time.Hour}))
	return c
}

// use exchanges a link for a session.
func (x portal) use(t *testing.T, link access.Credential) (access.Digest, error) {
	t.Helper()
	p, err := x.Directory.PrincipalByLink(t.Context(), link.Digest())
	if err != nil {
		return access.Digest{}, err
	}
	cookie := access.MintSession()
	_, err = x.Directory.UseLink(t.Context(), p, p.Actor("192.0.2.9", "req-2"), link, cookie)
	return cookie.Digest(), err
}

// session starts a session that a role limits.
func (x portal) session(t *testing.T, role string) (access.Principal, access.Digest) {
	t.Helper()
	d := must[access.Digest](t)(x.use(t, x.link(t, role)))
	return must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d)), d
}

// clerk creates a role.
func (x portal) clerk(t *testing.T, permissions ...string) {
	t.Helper()
	must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{Name: "clerk", Permissions: access.NewScope(permissions...)}))
}

func TestPortalLinks(t *testing.T) {
	t.Parallel()
	t.Run("start one session, of the service account limited to the role", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		x.clerk(t, access.EventsRead, access.WebhooksRead)
		link := x.link(t, "clerk")
		d := must[access.Digest](t)(x.use(t, link))
		_, err := x.use(t, link)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
		for range 2 { // read, cached
			p := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
			if !p.User.IsService() || p.Home.ID != x.home.ID || p.Token != nil || p.Session.Role != "clerk" || !p.Session.IsPortal() {
				t.Errorf("principal %+v, session %+v", p, p.Session)
			}
			if diff := cmp.Diff("events:read webhooks:read", p.Permissions.String()); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
			if left := p.Session.ExpiresAt - p.Session.CreatedAt; left != (12 * time.Hour).Milliseconds() {
				t.Errorf("lasts %d ms", left)
			}
		}
	})
	t.Run("start one session when many exchange them at the same instant", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		link := x.link(t, access.RoleOwner)
		p := must[access.Principal](t)(x.Directory.PrincipalByLink(t.Context(), link.Digest()))
		var all sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			all.Go(func() { _, errs[i] = x.Directory.UseLink(t.Context(), p, p.Actor("", ""), link, access.MintSession()) })
		}
		all.Wait()
		started := 0
		for _, err := range errs {
			if err == nil {
				started++
				continue
			}
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
		}
		if n := must[int](t)(x.Directory.Sessions(t.Context())); started != 1 || n != 1 {
			t.Errorf("%d exchanges succeeded, and there are %d sessions", started, n)
		}
	})
	t.Run("are of no use after they expire, and are forgotten", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPortal(t)
			late, later := x.link(t, access.RoleOwner), x.link(t, access.RoleOwner)
			p := must[access.Principal](t)(x.Directory.PrincipalByLink(t.Context(), late.Digest()))
			time.Sleep(time.Hour)
			_, err := x.Directory.UseLink(t.Context(), p, p.Actor("", ""), late, access.MintSession())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
			_, err = x.Directory.PrincipalByLink(t.Context(), later.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
			time.Sleep(time.Minute)
			if n := must[int](t)(x.Directory.Links(t.Context())); n != 0 {
				t.Errorf("%d links are kept", n)
			}
		})
	})
	t.Run("are bounded: the oldest one goes first", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		first, second := x.link(t, access.RoleOwner), x.link(t, access.RoleOwner)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		elsewhere := portal{x.platform, other.Home}.link(t, access.RoleOwner)
		for range 998 {
			x.link(t, access.RoleOwner)
		}
		last := x.link(t, access.RoleOwner)
		_, err := x.Directory.PrincipalByLink(t.Context(), first.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
		for _, kept := range []access.Credential{second, last, elsewhere} {
			must[access.Principal](t)(x.Directory.PrincipalByLink(t.Context(), kept.Digest()))
		}
	})
	t.Run("are in the audit log, with what happens in their sessions", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		p, _ := x.session(t, access.RoleMember)
		actor := p.Actor("192.0.2.9", "req-3")
		if actor.Type != "portal" || actor.ID != p.Session.ID || actor.Name != "Portal (member)" {
			t.Errorf("actor %+v", actor)
		}
		if err := x.Directory.EndSession(t.Context(), p, actor); err != nil {
			t.Fatal(err)
		}
		page := must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.home.RowID, access.AuditFilter{Actors: []string{p.Session.ID}, Limit: 10}))
		if len(page.Rows) != 2 || page.Rows[0].Name != "Portal (member)" || page.Rows[1].IP != "192.0.2.9" {
			t.Errorf("events of the session: %+v", page.Rows)
		}
		log := x.log(t, x.home.RowID)[:3]
		about := map[string]any{"kind": "portal", "user_id": p.User.ID, "link_id": *p.Session.LinkID, "role": "member"}
		until := map[string]any{
			"kind": "portal", "user_id": p.User.ID, "link_id": *p.Session.LinkID, "role": "member", "expires_at": log[1].Details["expires_at"],
		}
		created := map[string]any{"organization_id": x.home.ID, "role": "member", "return_url": nil, "expires_at": log[2].Details["expires_at"]}
		want := []told{
			{access.SessionEnded, "session " + p.Session.ID, about}, {access.SessionStarted, "session " + p.Session.ID, until},
			{access.PortalLinkCreated, "portal_link " + *p.Session.LinkID, created},
		}
		if d := cmp.Diff(want, log); d != "" {
			t.Errorf("audit log (-want +got):\n%s", d)
		}
	})
}

func TestRefusedPortalLinks(t *testing.T) {
	t.Parallel()
	create := func(t *testing.T, x portal, by access.Actor, role string) error {
		_, err := x.Directory.CreatePortalLink(t.Context(), by, x.home.ID, access.NewPortalLink{Credential: access.Mint(access.LinkPrefix), Role: role, Life: time.Hour})
		return err
	}
	t.Run("of a role with permissions about the instance, and of an unknown role", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		x.clerk(t, access.EventsRead, access.PlatformRead)
		storagetest.ExpectFault(t, create(t, x, x.By, access.RoleOperator), fault.Invalid, "validation_failed", "role role_not_allowed")
		storagetest.ExpectFault(t, create(t, x, x.By, "clerk"), fault.Invalid, "validation_failed", "role role_not_allowed")
		storagetest.ExpectFault(t, create(t, x, x.By, "nobody"), fault.Invalid, "validation_failed", "role unknown_role")
	})
	t.Run("by a caller who has less than the session would have", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		must[access.Role](t)(x.Directory.CreateRole(t.Context(), x.By, access.Role{
			Name: "backend", Permissions: access.NewScope(access.PlatformActAs, access.EventsRead),
		}))
		backend, _ := storagetest.Organization(t, x.Store, "shop", "enterprise", "backend")
		x.clerk(t, access.EventsRead)
		storagetest.ExpectFault(t, create(t, x, backend.Actor("", ""), access.RoleOwner), fault.Forbidden, "permission_denied")
		storagetest.ExpectFault(t, create(t, x, backend.Actor("", ""), access.RoleMember), fault.Forbidden, "permission_denied")
		if err := create(t, x, backend.Actor("", ""), "clerk"); err != nil {
			t.Error(err)
		}
		owner, _ := storagetest.Organization(t, x.Store, "neighbour", "growth", access.RoleOwner)
		storagetest.ExpectFault(t, create(t, x, owner.Actor("", ""), "clerk"), fault.Forbidden, "permission_denied")
	})
	t.Run("of an organization that is closed, or whose service account is inactive", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		p, d := x.session(t, access.RoleOwner)
		link := x.link(t, access.RoleOwner)
		active := func(is bool) {
			must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, p.User.ID, access.UserChange{IsActive: &is}))
		}
		active(false)
		storagetest.ExpectFault(t, create(t, x, x.By, access.RoleOwner), fault.Conflict, "user_inactive")
		_, err := x.use(t, link)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "user_inactive")
		_, err = x.Directory.PrincipalBySession(t.Context(), d)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "user_inactive")
		active(true)
		must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
		if _, err := x.CloseOrganization(t.Context(), x.By, x.home.ID); err != nil {
			t.Fatal(err)
		}
		storagetest.ExpectFault(t, create(t, x, x.By, access.RoleOwner), fault.Conflict, "organization_closed")
		for _, err := range []error{second(x.use(t, link)), second(x.Directory.PrincipalBySession(t.Context(), d))} {
			if fault.KindOf(err) != fault.Unauthenticated {
				t.Errorf("got %v", err)
			}
		}
	})
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

func TestPortalSessionsAreNarrowed(t *testing.T) {
	t.Parallel()
	t.Run("they create no key with more than their role has", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		for _, role := range []string{access.RoleMember, access.RoleOwner} {
			p, _ := x.session(t, role)
			wanted := access.NewKey{Credential: access.Mint("svc"), Name: "n", Scope: access.NewScope(access.EventsRead, access.EventsWrite, access.PlatformRead)}
			key := must[access.Key](t)(x.Directory.CreateKey(t.Context(), p, p.Actor("", ""), wanted))
			want := map[string]string{access.RoleMember: "events:read", access.RoleOwner: "events:read events:write"}[role]
			if key.Scope.String() != want || key.CreatedBy != p.User.ID {
				t.Errorf("%s: %+v", role, key)
			}
			rotated, err := x.Directory.RotateKey(t.Context(), p, p.Actor("", ""), key.ID, access.Mint("svc"), 0)
			if err != nil || rotated.Scope.String() != want {
				t.Errorf("%s: %+v, %v", role, rotated, err)
			}
		}
	})
	t.Run("they follow every change of their role at once, and end with it", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		x.clerk(t, access.EventsRead)
		p, d := x.session(t, "clerk")
		left := x.link(t, "clerk")
		for _, tt := range []struct{ grants, want access.Scope }{
			{access.NewScope(access.EventsRead, access.EventsWrite), access.NewScope(access.EventsRead, access.EventsWrite)},
			{access.NewScope(access.PlatformActAs, access.PlatformRead, access.WebhooksRead), access.NewScope(access.WebhooksRead)},
			{access.NewScope(), access.NewScope()},
		} {
			must[access.Role](t)(x.Directory.UpdateRole(t.Context(), x.By, "clerk", access.RoleChange{Permissions: &tt.grants}))
			if got := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d)); !got.Permissions.Equal(tt.want) {
				t.Errorf("with %s: %s", tt.grants, got.Permissions)
			}
		}
		if err := x.Directory.DeleteRole(t.Context(), x.By, "clerk"); err != nil {
			t.Fatal(err)
		}
		x.clerk(t, access.EventsRead, access.APIKeysWrite) // another role, perhaps in the same row
		for _, err := range []error{second(x.use(t, left)), second(x.Directory.PrincipalBySession(t.Context(), d))} {
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
		}
		_, err := x.Directory.CreateKey(t.Context(), p, p.Actor("", ""), access.NewKey{Credential: access.Mint("svc"), Scope: access.NewScope(access.EventsRead)})
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
	})
	t.Run("one that has ended meanwhile creates nothing, although another has its row", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		ended, _ := x.session(t, access.RoleMember)
		if err := x.Directory.EndSession(t.Context(), ended, ended.Actor("", "")); err != nil {
			t.Fatal(err)
		}
		if next, _ := x.session(t, access.RoleOwner); next.Session.RowID != ended.Session.RowID {
			t.Fatalf("row %d, want %d", next.Session.RowID, ended.Session.RowID)
		}
		_, err := x.Directory.CreateKey(t.Context(), ended, ended.Actor("", ""), access.NewKey{Credential: access.Mint("svc"), Scope: access.NewScope(access.EventsRead)})
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
	})
	t.Run("they end with their organization", func(t *testing.T) {
		t.Parallel()
		x := newPortal(t)
		empty := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Empty", Plan: "growth"}))
		in := portal{x.platform, empty}
		_, d := in.session(t, access.RoleOwner)
		if err := x.DeleteOrganization(t.Context(), x.By, empty.ID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.PrincipalBySession(t.Context(), d)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
	})
}
