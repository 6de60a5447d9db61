package directory_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestOrganizations(t *testing.T) {
	t.Parallel()
	t.Run("is created, read, changed in the fields named, and removed, with its log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free", ExternalID: new("acme-1")}))
		if read := must[access.Organization](t)(x.Directory.Organization(t.Context(), made.ID)); !cmp.Equal(made, read) || !strings.HasPrefix(made.ID, "org_") || made.Plan != "free" {
			t.Errorf("made %+v, read %+v", made, read)
		}
		changed := must[access.Organization](t)(x.Directory.UpdateOrganization(t.Context(), x.By, made.ID, access.OrganizationChange{Plan: new("growth")}))
		if changed.Plan != "growth" || changed.Name != "Acme" || *changed.ExternalID != "acme-1" {
			t.Errorf("changed to %+v", changed)
		}
		changed = must[access.Organization](t)(x.Directory.UpdateOrganization(t.Context(), x.By, made.ID, access.OrganizationChange{Name: new("Acme Inc."), ExternalID: new("")}))
		if changed.Plan != "growth" || changed.Name != "Acme Inc." || changed.ExternalID != nil {
			t.Errorf("changed to %+v", changed)
		}
		target := "organization " + made.ID
		lines := []told{
			{"organization_updated", target, map[string]any{"name": "Acme Inc.", "external_id": ""}},
			{"organization_updated", target, map[string]any{"plan": "growth", "previous_plan": "free"}},
			{"organization_created", target, map[string]any{"name": "Acme", "plan": "free", "external_id": "acme-1"}},
		}
		if d := cmp.Diff(lines, x.log(t, made.RowID)); d != "" {
			t.Errorf("its own log (-want +got):\n%s", d)
		}
		if err := x.DeleteOrganization(t.Context(), x.By, made.ID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.Organization(t.Context(), made.ID)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		x.expectLog(t, x.Operator.Home.RowID, append([]told{{"organization_deleted", target, map[string]any{}}}, lines...)...)
	})
	t.Run("refuses what cannot be, and logs none of it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free", ExternalID: new("acme-1")}))
		other := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free"}))
		_, err := x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "none"})
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "plan unknown_plan")
		_, err = x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free", ExternalID: new("acme-1")})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "external_id already_exists")
		_, err = x.Directory.UpdateOrganization(t.Context(), x.By, other.ID, access.OrganizationChange{ExternalID: new("acme-1")})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "external_id already_exists")
		_, err = x.Directory.UpdateOrganization(t.Context(), x.By, other.ID, access.OrganizationChange{Plan: new("none")})
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "plan unknown_plan")
		_, err = x.Directory.UpdateOrganization(t.Context(), x.By, "org_none", access.OrganizationChange{})
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.DeleteOrganization(t.Context(), x.By, "org_none"), fault.NotFound, "not_found")
		if got := x.log(t, other.RowID); len(got) != 1 {
			t.Errorf("logged %v", got)
		}
		if _, err = x.Directory.UpdateOrganization(t.Context(), x.By, made.ID, access.OrganizationChange{ExternalID: new("acme-1")}); err != nil {
			t.Errorf("an organization may keep its own external id: %v", err)
		}
	})
}

func TestRemoveOrganization(t *testing.T) {
	t.Parallel()

	t.Run("stays while there is anything of it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		for name, fill := range map[string]func(access.Principal){
			"members":               func(access.Principal) {},
			"API keys":              func(p access.Principal) { storagetest.Key(t, x.Store, p, access.EventsRead) },
			"webhook subscriptions": func(p access.Principal) { storagetest.Subscription(t, x.Store, p, "https://example.com/") },
			"events":                func(p access.Principal) { storagetest.Publish(t, x.Store, p, "user.created") },
			"more than 10,000 audit events": func(p access.Principal) { // of sign-ins, for example
				storagetest.Exec(t, x.Store, `
					WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
					INSERT INTO audit_events (organization_id, type, actor_type, actor_id, actor_name, target_type, target_id, ip, request_id, at, details)
					SELECT organization_id, type, actor_type, actor_id, actor_name, target_type, target_id, ip, request_id, at, details
					FROM (SELECT * FROM audit_events WHERE organization_id = ? LIMIT 1), n`, p.Home.RowID)
			},
		} {
			owner, _ := storagetest.Organization(t, x.Store, strings.ReplaceAll(name, " ", "-"), "growth", access.RoleOwner)
			fill(owner)
			err := x.DeleteOrganization(t.Context(), x.By, owner.Home.ID)
			storagetest.ExpectFault(t, err, fault.Conflict, "in_use")
			if !strings.Contains(err.Error(), name) {
				t.Errorf("the message does not name %s: %v", name, err)
			}
		}
	})
	t.Run("is removed once its only member is, though its log tells of it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free"}))
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, made.ID, x.Operator.User.ID, access.RoleOwner))
		storagetest.ExpectFault(t, x.DeleteOrganization(t.Context(), x.By, made.ID), fault.Conflict, "in_use")
		if err := x.Directory.RemoveMember(t.Context(), x.By, made.ID, x.Operator.User.ID); err != nil {
			t.Fatal(err)
		}
		if err := x.DeleteOrganization(t.Context(), x.By, made.ID); err != nil {
			t.Error(err)
		}
	})
	t.Run("is not removed by one who acts in it", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free"}))
		storagetest.ExpectFault(t, x.DeleteOrganization(t.Context(), x.Operator.In(made).Actor("", ""), made.ID), fault.Conflict, "in_use")
	})
	t.Run("a new one in the place of one removed publishes under its own id", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		first := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "growth"}))
		if err := x.DeleteOrganization(t.Context(), x.By, first.ID); err != nil {
			t.Fatal(err)
		}
		second := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "growth"}))
		if second.RowID != first.RowID {
			t.Fatalf("row %d follows row %d: the case is not what it was meant to be", second.RowID, first.RowID)
		}
		published := storagetest.Publish(t, x.Store, x.Operator.In(second), "user.created")
		event, _, err := x.History.Event(t.Context(), second.RowID, published.ID)
		if err != nil || !strings.Contains(string(event.Body), second.ID) {
			t.Errorf("%s: %v", event.Body, err)
		}
	})
	t.Run("are listed newest first", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		for _, name := range []string{"a", "b", "c"} {
			must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: name, Plan: "free"}))
		}
		page := must[access.Page[access.Organization]](t)(x.Directory.OrganizationPage(t.Context(), "", 0, 2)).Rows
		rest := must[access.Page[access.Organization]](t)(x.Directory.OrganizationPage(t.Context(), "", page[1].RowID, 5)).Rows
		if names := []string{page[0].Name, page[1].Name, rest[0].Name, rest[1].Name}; !cmp.Equal(names, []string{"c", "b", "a", "Default"}) || len(rest) != 2 {
			t.Errorf("listed %v", names)
		}
	})
}

func TestUsers(t *testing.T) {
	t.Parallel()
	t.Run("is created, read, changed in the fields named, and removed, each with its line in the log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		made := must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: "Ann@Example.com", Name: "Ann", ExternalID: new("idp|1"), IsActive: true}))
		if read := must[access.User](t)(x.Directory.User(t.Context(), made.ID)); !cmp.Equal(made, read) || !strings.HasPrefix(made.ID, "usr_") || made.Email != "Ann@Example.com" {
			t.Errorf("made %+v, read %+v", made, read)
		}
		changed := must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, made.ID, access.UserChange{Name: new("Anne"), IsActive: new(false)}))
		if changed.Name != "Anne" || changed.IsActive || changed.Email != "Ann@Example.com" || *changed.ExternalID != "idp|1" {
			t.Errorf("changed to %+v", changed)
		}
		changed = must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, made.ID, access.UserChange{Email: new("ann@example.com"), ExternalID: new("")}))
		if read := must[access.User](t)(x.Directory.User(t.Context(), made.ID)); !cmp.Equal(changed, read) || changed.Email != "ann@example.com" || changed.ExternalID != nil || changed.IsActive {
			t.Errorf("changed to %+v, read %+v", changed, read)
		}
		if err := x.Directory.DeleteUser(t.Context(), x.By, made.ID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.User(t.Context(), made.ID)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		target := "user " + made.ID
		x.expectLog(t, x.Operator.Home.RowID,
			told{"user_deleted", target, map[string]any{}},
			told{"user_updated", target, map[string]any{"email": "ann@example.com", "external_id": ""}},
			told{"user_updated", target, map[string]any{"name": "Anne", "is_active": false}},
			told{"user_created", target, map[string]any{"email": "Ann@Example.com", "name": "Ann", "external_id": "idp|1", "is_active": true}})
	})
	t.Run("refuses an address taken in any case, and an external id taken, both at once", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: "ann@example.com", Name: "Ann", ExternalID: new("idp|1")}))
		ben := must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: "ben@example.com", Name: "Ben"}))
		_, err := x.Directory.CreateUser(t.Context(), x.By, access.User{Email: "ANN@example.com", Name: "Ann", ExternalID: new("idp|1")})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "email already_exists", "external_id already_exists")
		_, err = x.Directory.UpdateUser(t.Context(), x.By, ben.ID, access.UserChange{Email: new("Ann@Example.com")})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "email already_exists")
		_, err = x.Directory.UpdateUser(t.Context(), x.By, ben.ID, access.UserChange{ExternalID: new("idp|1")})
		storagetest.ExpectFault(t, err, fault.Conflict, "already_exists", "external_id already_exists")
		if _, err = x.Directory.UpdateUser(t.Context(), x.By, ben.ID, access.UserChange{Email: new("BEN@example.com"), ExternalID: new("")}); err != nil {
			t.Errorf("a user may keep its own address: %v", err)
		}
		_, err = x.Directory.UpdateUser(t.Context(), x.By, "usr_none", access.UserChange{})
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.DeleteUser(t.Context(), x.By, "usr_none"), fault.NotFound, "not_found")
	})
	t.Run("of many who take one address at once, one does", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		var mu sync.Mutex
		kinds := map[fault.Kind]int{}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				email := "ann@example.com"
				if i%2 == 0 {
					email = strings.ToUpper(email)
				}
				_, err := x.Directory.CreateUser(t.Context(), x.By, access.User{Email: email, Name: "Ann"})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					kinds[fault.KindOf(err)]++
				}
			})
		}
		if wg.Wait(); kinds[fault.Conflict] != 19 || len(kinds) != 1 {
			t.Errorf("refused by kind: %v", kinds)
		}
	})
	t.Run("stays while it has a membership or a credential", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		storagetest.ExpectFault(t, x.Directory.DeleteUser(t.Context(), x.By, owner.User.ID), fault.Conflict, "in_use")
		if err := x.Directory.RemoveMember(t.Context(), x.By, owner.Home.ID, owner.User.ID); err != nil {
			t.Fatal(err)
		}
		storagetest.ExpectFault(t, x.Directory.DeleteUser(t.Context(), x.By, owner.User.ID), fault.Conflict, "in_use")
	})
	t.Run("are listed newest first", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: "ann@example.com", Name: "Ann"}))
		page := must[access.Page[access.ListedUser]](t)(x.Directory.UserPage(t.Context(), "", 0, 1)).Rows
		rest := must[access.Page[access.ListedUser]](t)(x.Directory.UserPage(t.Context(), "", page[0].RowID, 5)).Rows
		if len(page) != 1 || len(rest) != 1 || page[0].Name != "Ann" || rest[0].Name != "admin" {
			t.Errorf("listed %v and then %v", page, rest)
		}
	})
}

// TestListedUsers expects three memberships, in the newest organizations, and the last use.
func TestListedUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newPlatform(t)
		ann := must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Name: "Ann", IsActive: true}))
		var owner access.Principal
		for i, name := range []string{"a", "b", "c", "d"} {
			owner, _ = storagetest.Organization(t, x.Store, name, "growth", access.RoleOwner)
			if i > 0 {
				must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, owner.Organization.ID, ann.ID, access.RoleMember))
			}
		}
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, x.Operator.Home.ID, ann.ID, access.RoleMember))
		list := func() (of map[string]access.ListedUser) {
			of = map[string]access.ListedUser{}
			for _, u := range must[access.Page[access.ListedUser]](t)(x.Directory.UserPage(t.Context(), "", 0, 10)).Rows {
				found, err := x.Directory.UserPage(t.Context(), u.Name, 0, 10)
				if d := cmp.Diff([]access.ListedUser{u}, found.Rows); err != nil || d != "" {
					t.Errorf("searched (-want +got): %v\n%s", err, d)
				}
				of[u.ID] = u
			}
			return of
		}
		got := list()[ann.ID]
		all := must[[]access.Membership](t)(x.Directory.Memberships(t.Context(), ann.ID, 0, 10))
		for i := range all {
			all[i].OrganizationRow = 0
		}
		if d := cmp.Diff(access.MembershipList(all[:3]), got.Newest); d != "" || len(all) != 4 || got.Memberships != 4 || got.LastUsedAt != nil {
			t.Errorf("%+v; memberships (-want +got):\n%s", got, d)
		}

		for _, use := range []func(){
			func() { x.Directory.Used(owner, access.KeyUse{}) },
			func() { x.Directory.Used(x.byKey(t, owner, access.EventsRead), access.KeyUse{Allowed: 1}) },
			func() {
				must[access.Session](t)(x.Directory.CreateSession(t.Context(), owner, x.By, access.MintSession()))
			},
		} {
			time.Sleep(time.Hour)
			now := time.Now().UnixMilli()
			use()
			time.Sleep(time.Minute)
			switch got := list()[owner.User.ID]; {
			case got.LastUsedAt == nil || *got.LastUsedAt != now:
				t.Errorf("last used at %v, want %d", got.LastUsedAt, now)
			case got.Memberships != 1 || len(got.Newest) != 1 || got.Newest[0].Role != access.RoleOwner:
				t.Errorf("the owner has %+v", got.Newest)
			}
		}
		storagetest.NoneGrows(t, x.Store, nil)
	})
}

func TestMembers(t *testing.T) {
	t.Parallel()
	t.Run("is added, given another role and removed, each with its line in the log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		org := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free"}))
		ann := must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Email: "ann@example.com", Name: "Ann", IsActive: true}))
		added := must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, org.ID, ann.ID, "member"))
		if want := (access.Member{UserRow: ann.RowID, UserID: ann.ID, Email: ann.Email, Name: "Ann", Role: "member", CreatedAt: added.CreatedAt}); added != want || added.CreatedAt == 0 {
			t.Errorf("added %+v", added)
		}
		changed := must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, org.ID, ann.ID, "owner"))
		again := must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, org.ID, ann.ID, "owner"))
		list := must[[]access.Member](t)(x.Directory.Members(t.Context(), org.ID, 0, 10))
		if changed.Role != "owner" || changed.CreatedAt != added.CreatedAt || again != changed || !cmp.Equal(list, []access.Member{changed}) {
			t.Errorf("changed to %+v, again %+v, listed %+v", changed, again, list)
		}
		if err := x.Directory.RemoveMember(t.Context(), x.By, org.ID, ann.ID); err != nil {
			t.Fatal(err)
		}
		storagetest.ExpectFault(t, x.Directory.RemoveMember(t.Context(), x.By, org.ID, ann.ID), fault.NotFound, "not_found")
		if list := must[[]access.Member](t)(x.Directory.Members(t.Context(), org.ID, 0, 10)); len(list) != 0 {
			t.Errorf("listed %v", list)
		}
		target := "user " + ann.ID
		x.expectLog(t, org.RowID,
			told{"member_removed", target, map[string]any{"role": "owner"}},
			told{"member_set", target, map[string]any{"role": "owner", "previous_role": "member"}},
			told{"member_set", target, map[string]any{"role": "member"}},
			told{"organization_created", "organization " + org.ID, map[string]any{"name": "Acme", "plan": "free", "external_id": nil}})
	})
	t.Run("refuses what is not there", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		org, admin := x.Operator.Home.ID, x.Operator.User.ID
		_, err := x.Directory.SetMember(t.Context(), x.By, "org_none", admin, "owner")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		_, err = x.Directory.SetMember(t.Context(), x.By, org, "usr_none", "owner")
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		_, err = x.Directory.SetMember(t.Context(), x.By, org, admin, "none")
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "role unknown_role")
		_, err = x.Directory.Members(t.Context(), "org_none", 0, 10)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.RemoveMember(t.Context(), x.By, "org_none", admin), fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.RemoveMember(t.Context(), x.By, org, "usr_none"), fault.NotFound, "not_found")
	})
	t.Run("are listed by organization, the newest user first", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		for _, name := range []string{"a", "b", "c"} {
			storagetest.Member(t, x.Store, x.Operator.Home, name, access.RoleMember)
		}
		storagetest.Organization(t, x.Store, "other", "free", access.RoleOwner)
		page := must[[]access.Member](t)(x.Directory.Members(t.Context(), x.Operator.Home.ID, 0, 2))
		rest := must[[]access.Member](t)(x.Directory.Members(t.Context(), x.Operator.Home.ID, page[1].UserRow, 5))
		names := []string{}
		for _, m := range append(page, rest...) {
			names = append(names, m.Name)
		}
		if d := cmp.Diff([]string{"c", "b", "a", "admin"}, names); d != "" {
			t.Error(d)
		}
	})
}

func TestTheLastOperator(t *testing.T) {
	t.Parallel()
	type act struct {
		name string
		do   func(x platform, t *testing.T) error
	}
	acts := []act{
		{"deactivated", func(x platform, t *testing.T) error {
			_, err := x.Directory.UpdateUser(t.Context(), x.By, x.Operator.User.ID, access.UserChange{IsActive: new(false)})
			return err
		}},
		{"given another role", func(x platform, t *testing.T) error {
			_, err := x.Directory.SetMember(t.Context(), x.By, x.Operator.Home.ID, x.Operator.User.ID, access.RoleOwner)
			return err
		}},
		{"removed", func(x platform, t *testing.T) error {
			return x.Directory.RemoveMember(t.Context(), x.By, x.Operator.Home.ID, x.Operator.User.ID)
		}},
	}
	for _, a := range acts {
		t.Run("is not "+a.name, func(t *testing.T) {
			t.Parallel()
			x := newPlatform(t)
			// Neither an owner, nor an operator who is not active, can take over.
			storagetest.Member(t, x.Store, x.Operator.Home, "owner", access.RoleOwner)
			idle, _ := storagetest.Member(t, x.Store, x.Operator.Home, "idle", access.RoleOperator)
			must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, idle.User.ID, access.UserChange{IsActive: new(false)}))
			storagetest.ExpectFault(t, a.do(x, t), fault.Conflict, "last_operator")
			if p := storagetest.Operator(t, x.Store); !p.Can(access.PlatformWrite) {
				t.Error("the operator cannot operate any more")
			}
		})
		t.Run("is "+a.name+" once there is another, in whatever organization", func(t *testing.T) {
			t.Parallel()
			x := newPlatform(t)
			storagetest.Organization(t, x.Store, "acme", "free", access.RoleOperator)
			if err := a.do(x, t); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("may be deactivated neither with one membership nor with two", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		org := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free"}))
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, org.ID, x.Operator.User.ID, access.RoleOperator))
		storagetest.ExpectFault(t, acts[0].do(x, t), fault.Conflict, "last_operator")
		if err := acts[2].do(x, t); err != nil {
			t.Errorf("one of two memberships may go: %v", err)
		}
		storagetest.ExpectFault(t, x.Directory.RemoveMember(t.Context(), x.By, org.ID, x.Operator.User.ID), fault.Conflict, "last_operator")
	})
	t.Run("remains where two operators remove each other at once", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		second, _ := storagetest.Member(t, x.Store, x.Operator.Home, "second", access.RoleOperator)
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i, user := range []string{x.Operator.User.ID, second.User.ID} {
			wg.Go(func() { errs[i] = x.Directory.RemoveMember(t.Context(), x.By, x.Operator.Home.ID, user) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("errors %v", errs)
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	t.Run("is created, listed, read and revoked, with its log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "free", access.RoleOwner)
		credential := access.Mint(access.TokenPrefix)
		end := time.Now().Add(time.Hour).UnixMilli()
		made := must[access.AccessToken](t)(x.Directory.CreateToken(t.Context(), x.By, owner.User.ID, owner.Home.ID, credential, "laptop", &end))
		want := access.AccessToken{
			Issued: access.Issued{
				RowID: made.RowID, ID: made.ID, Organization: owner.Home.RowID, OrganizationID: owner.Home.ID, Name: "laptop",
				CreatedAt: made.CreatedAt, ExpiresAt: &end,
			},
			UserID: owner.User.ID, TokenPrefix: credential.Display(),
		}
		if d := cmp.Diff(want, made); d != "" || !strings.HasPrefix(made.ID, "tok_") || made.CreatedAt == 0 {
			t.Errorf("made (-want +got):\n%s", d)
		}
		if read := must[access.AccessToken](t)(x.Directory.Token(t.Context(), owner.User.ID, made.ID)); !cmp.Equal(read, made) {
			t.Errorf("read %+v", read)
		}
		must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), credential.Digest()))
		if err := x.Directory.RevokeToken(t.Context(), x.By, owner.User.ID, made.ID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Directory.PrincipalByToken(t.Context(), credential.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
		if err := x.Directory.RevokeToken(t.Context(), x.By, owner.User.ID, made.ID); err != nil {
			t.Errorf("again: %v", err)
		}
		list := must[[]access.AccessToken](t)(x.Directory.Tokens(t.Context(), owner.User.ID, 0, 10))
		if len(list) != 2 || list[0].ID != made.ID || list[0].Status(0) != access.Revoked || list[1].Status(0) != access.Active {
			t.Errorf("listed %+v", list)
		}
		if rest := must[[]access.AccessToken](t)(x.Directory.Tokens(t.Context(), owner.User.ID, list[0].RowID, 1)); len(rest) != 1 || rest[0].ID != list[1].ID {
			t.Errorf("listed on %+v", rest)
		}
		x.expectLog(t, owner.Home.RowID,
			told{"access_token_revoked", "access_token " + made.ID, map[string]any{"user_id": owner.User.ID, "name": "laptop"}},
			told{"access_token_created", "access_token " + made.ID, map[string]any{
				"user_id": owner.User.ID, "name": "laptop", "expires_at": time.UnixMilli(end).UTC().Format("2006-01-02T15:04:05.000Z"),
			}},
			told{"access_token_created", "access_token " + list[1].ID, map[string]any{"user_id": owner.User.ID, "name": "test", "expires_at": nil}})
	})
	t.Run("refuses what cannot be", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		owner, _ := storagetest.Organization(t, x.Store, "acme", "free", access.RoleOwner)
		create := func(user, organization string) error {
			_, err := x.Directory.CreateToken(t.Context(), x.By, user, organization, access.Mint(access.TokenPrefix), "", nil)
			return err
		}
		storagetest.ExpectFault(t, create("usr_none", owner.Home.ID), fault.NotFound, "not_found")
		storagetest.ExpectFault(t, create(owner.User.ID, "org_none"), fault.Invalid, "validation_failed", "organization_id unknown_organization")
		storagetest.ExpectFault(t, create(owner.User.ID, x.Operator.Home.ID), fault.Conflict, "not_a_member")
		foreign := x.Operator.Token.ID
		_, err := x.Directory.Token(t.Context(), owner.User.ID, foreign)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.RevokeToken(t.Context(), x.By, owner.User.ID, foreign), fault.NotFound, "not_found")
		storagetest.ExpectFault(t, x.Directory.RevokeToken(t.Context(), x.By, owner.User.ID, "tok_none"), fault.NotFound, "not_found")
		_, err = x.Directory.Tokens(t.Context(), "usr_none", 0, 10)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
	})
}

// TestChangesOfTheInstanceStayWithTheOperator has an operator act in a customer's organization, as a back end does that
// sends X-Organization-Id with every request.
func TestChangesOfTheInstanceStayWithTheOperator(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	customer, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	gone := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Gone", Plan: "free"}))
	log := func(organization int64) (types []string) {
		t.Helper()
		page := must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), organization, access.AuditFilter{Limit: 100}))
		for _, e := range page.Rows {
			types = append(types, e.Type+" "+e.TargetID)
		}
		return types
	}
	before := log(customer.Home.RowID)
	by := x.Operator.In(customer.Home).Actor("192.0.2.1", "req")
	other := must[access.User](t)(x.Directory.CreateUser(t.Context(), by, access.User{Email: "somebody@elsewhere.test", Name: "Somebody", IsActive: true}))
	if err := x.DeleteOrganization(t.Context(), by, gone.ID); err != nil {
		t.Fatal(err)
	}
	if after := log(customer.Home.RowID); !slices.Equal(before, after) {
		t.Errorf("the customer reads %q, and read %q before", after, before)
	}
	kept := log(x.Operator.Home.RowID)
	for _, want := range []string{
		access.UserCreated + " " + other.ID, access.OrganizationDeleted + " " + gone.ID, access.OrganizationCreated + " " + gone.ID,
	} {
		if !slices.Contains(kept, want) {
			t.Errorf("the operator's log lacks %q: %q", want, kept)
		}
	}
}
