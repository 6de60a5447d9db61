package storage_test

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestDirectoryQueryPlans does once all that package directory does, and then reads the query plan of each statement. None may
// read a table that grows with customers from end to end, nor sort one.
func TestDirectoryQueryPlans(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	ctx := t.Context()
	org := must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: "Acme", Plan: "growth", ExternalID: new("a")}))
	owner, token := storagetest.Member(t, x.Store, org, "owner", access.RoleOwner)
	key, credential := storagetest.Key(t, x.Store, owner, access.EventsRead)
	user := owner.User.ID
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(x.Directory.PrincipalByKey(ctx, credential.Digest()))
	check(x.Directory.PrincipalByToken(ctx, token.Digest()))
	check(x.Directory.PrincipalOfSystem(ctx))
	check(x.Directory.KeyState(ctx, credential.Digest()))
	check(x.Directory.KeyStateByID(ctx, key.ID))
	check(x.Directory.CreatePlan(ctx, x.By, access.Plan{Name: "pro"}))
	check(x.Directory.CreatePermission(ctx, x.By, access.Permission{Key: "orders:read"}))
	check(x.Directory.CreateRole(ctx, x.By, access.Role{Name: "clerk"}))
	check(x.Directory.UpdatePlan(ctx, x.By, "pro", access.PlanChange{}))
	check(x.Directory.UpdateRole(ctx, x.By, "clerk", access.RoleChange{Permissions: new(access.NewScope(access.EventsRead))}))
	check(x.Directory.UpdateOrganization(ctx, x.By, org.ID, access.OrganizationChange{ExternalID: new("b")}))
	check(x.Directory.UpdateUser(ctx, x.By, user, access.UserChange{Email: new("b@example.com"), ExternalID: new("b"), IsActive: new(true)}))
	check(x.Directory.PutOrganization(ctx, x.By, "b", access.OrganizationChange{Name: new("ACME"), Plan: new("growth")}))
	check(x.Directory.PutUser(ctx, x.By, "b", access.UserChange{Name: new("B")}))
	check(x.Directory.Token(ctx, "b", owner.Token.ID))
	check(x.Directory.SetMember(ctx, x.By, org.ID, user, "clerk"))
	check(x.Directory.Plans(ctx, 0, 10))
	check(x.Directory.Plan(ctx, "pro"))
	check(x.Directory.Permissions(ctx, 0, 10))
	check(x.Directory.Roles(ctx, 0, 10))
	check(x.Directory.OrganizationPage(ctx, "", 0, 10))
	check(x.Directory.Organization(ctx, org.ID))
	check(x.Directory.UserPage(ctx, "", 0, 10))
	check(x.Directory.User(ctx, user))
	check(x.Directory.Members(ctx, org.ID, 0, 10))
	check(x.Directory.Tokens(ctx, user, 0, 10))
	check(x.Directory.Token(ctx, user, owner.Token.ID))
	check(x.Directory.KeyPage(ctx, org.RowID, access.KeyFilter{Status: access.Active, Limit: 10}))
	check(x.Directory.Key(ctx, org.RowID, key.ID))
	check(x.Directory.RotateKey(ctx, owner, x.By, key.ID, access.Mint("svc"), time.Hour))
	check(x.Directory.RotateKey(ctx, owner, x.By, must[access.Key](t)(x.Create(t, owner, access.EventsRead)).ID, access.Mint("svc"), 0))
	service, _ := storagetest.Key(t, x.Store, x.Operator.In(org), access.EventsRead)
	check(x.Directory.RotateKey(ctx, owner, x.By, service.ID, access.Mint("svc"), 0))
	check(x.Directory.CreateKey(ctx, x.Operator.In(org), x.By, access.NewKey{Credential: access.Mint("svc"), User: "b", Scope: access.NewScope(access.EventsRead)}))
	if x.Directory.RemoveMember(ctx, x.By, org.ID, service.CreatedBy) == nil {
		t.Error("a service account with keys is removed")
	}
	session := access.MintSession()
	check(x.Directory.CreateSession(ctx, owner, x.By, session))
	check(nil, func() error {
		p, err := x.Directory.PrincipalBySession(ctx, session.Digest())
		if err != nil {
			return err
		}
		return x.Directory.EndSession(ctx, p, x.By)
	}())
	link, portal := access.Mint(access.LinkPrefix), access.MintSession()
	check(x.Directory.CreatePortalLink(ctx, x.By, org.ID, access.NewPortalLink{Credential: link, Role: "clerk", Life: time.Hour}))
	visitor := must[access.Principal](t)(x.Directory.PrincipalByLink(ctx, link.Digest()))
	check(x.Directory.UseLink(ctx, visitor, x.By, link, portal))
	visitor = must[access.Principal](t)(x.Directory.PrincipalBySession(ctx, portal.Digest()))
	check(x.Directory.CreateKey(ctx, visitor, x.By, access.NewKey{Credential: access.Mint("svc"), Scope: access.NewScope(access.EventsRead)}))
	check(x.Directory.PrincipalByIdentity(ctx, access.Identity{Subject: "b"}, ""))
	check(x.Directory.PrincipalByIdentity(ctx, access.Identity{Subject: "b", Organization: "b"}, ""))
	check(x.Directory.SetMember(ctx, x.By, x.Operator.Home.ID, user, access.RoleMember))
	check(x.Directory.PrincipalByIdentity(ctx, access.Identity{Subject: "b"}, org.ID))
	check(x.Directory.PrincipalByIdentity(ctx, access.Identity{Subject: "b"}, "of others"))
	guest := must[access.Principal](t)(x.Directory.PrincipalToSignIn(ctx, access.Identity{Subject: "b"}))
	signedIn := access.MintSession()
	check(x.Directory.CreateIdentitySession(ctx, guest, access.Identity{Subject: "b"}, x.By, signedIn))
	guest = must[access.Principal](t)(x.Directory.PrincipalBySession(ctx, signedIn.Digest()))
	check(x.Directory.SwitchOrganization(ctx, guest, org.ID))
	check(x.Directory.SessionOrganizations(ctx, guest))
	check(nil, x.Directory.RemoveMember(ctx, x.By, x.Operator.Home.ID, user))
	if _, err := x.Directory.PrincipalByIdentity(ctx, access.Identity{Subject: "nobody", Email: "nobody@example.com"}, ""); err == nil {
		t.Error("nobody is somebody")
	}
	check(nil, x.Directory.DropSessions(ctx, math.MaxInt64))
	other, leaked := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
	check(nil, x.Directory.RevokeLeaked(ctx, leaked.Digest(), "192.0.2.1", "req"))
	check(nil, x.MarkTold(ctx, []webhook.Untold{{Concern: webhook.Leak, Organization: other.Home.RowID, ReadAt: math.MaxInt64}}))
	check(nil, x.Directory.RevokeKey(ctx, x.By, org.RowID, key.ID))
	check(nil, x.Directory.RevokeToken(ctx, x.By, user, owner.Token.ID))
	for _, refused := range []error{
		x.Directory.DeletePlan(ctx, x.By, "growth"), x.Directory.DeleteRole(ctx, x.By, "clerk"), x.Directory.DeleteUser(ctx, x.By, user), x.DeleteOrganization(ctx, x.By, org.ID),
		x.Directory.RemoveMember(ctx, x.By, x.Operator.Home.ID, x.Operator.User.ID),
	} {
		if refused == nil {
			t.Error("something is removed that is in use")
		}
	}
	check(nil, x.Directory.RemoveMember(ctx, x.By, org.ID, user))
	empty := must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: "Empty", Plan: "pro"}))
	check(nil, x.DeleteOrganization(ctx, x.By, empty.ID))

	check(x.History.Search(ctx, x.Operator, "a"))
	check(x.History.Search(ctx, owner, "a"))
	check(x.Directory.OrganizationPage(ctx, "a", 0, 10))
	check(x.Directory.UserPage(ctx, "a", 0, 10))
	check(x.Directory.Memberships(ctx, user, 0, 10))

	scanned := regexp.MustCompile(`^SCAN (organizations|o|users|u|memberships|m|access_tokens|a|api_keys|k|c|before|after|sessions|s|sign_in_links|t|audit_events|events|e)\b`)
	plans := storagetest.QueryPlans(t, x.Store)
	if len(plans) < 60 {
		t.Errorf("only %d statements were run", len(plans))
	}
	for text, plan := range plans {
		for _, step := range plan {
			if scanned.MatchString(step) && !strings.Contains(text, "FROM subscriptions s WHERE s.deleted_at IS NULL") || // the start counts them once
				strings.Contains(step, "TEMP B-TREE") || strings.Contains(step, "AUTOMATIC") {
				t.Errorf("%s\n  %s", text, strings.Join(plan, "\n  "))
				break
			}
		}
	}
}
