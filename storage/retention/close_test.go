package retention_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// customer is a store with an organization that is closed.
type customer struct {
	storagetest.Platform
	o    storage.Options
	stop func()

	org        access.Organization
	owner      access.Principal
	token, key access.Credential
	sub        webhook.Subscription
	begun      int64 // the row of an attempt in progress
	job        webhook.Job
}

// customerTraces are what an organization and its members write.
var customerTraces = []string{
	"Initech", "initech.example", "cust|4711", "nightly import", "invoice-77", "Milton", "we got it", "Basic c2VjcmV0", "accounting", "hook-12", "X-Initech-Auth", "Lumbergh", "198.51.100.0/28",
}

func newCustomer(t *testing.T) *customer {
	t.Helper()
	x := &customer{o: storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))}
	x.open(t)
	ctx := t.Context()
	x.org = storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: "Initech", Plan: "growth", ExternalID: new("cust|4711")}))
	x.owner, x.token = storagetest.Member(t, x.Store, x.org, "member", access.RoleOwner)
	by := x.owner.Actor("192.0.2.9", "req")
	x.key = access.Mint("svc")
	storagetest.Must[access.Key](t)(x.Directory.CreateKey(ctx, x.owner, by, access.NewKey{Credential: x.key, Name: "nightly import", Scope: access.NewScope(access.EventsRead), Metadata: `{"team":"accounting"}`,
		AllowedNetworks: access.Networks{netip.MustParsePrefix("198.51.100.0/28")}}))
	condition, problem := filter.New("to", filter.NotEqual, []byte(`"Lumbergh"`))
	if problem != nil {
		t.Fatal(problem)
	}
	sub, _, err := x.Subscriptions.CreateSubscription(ctx, by, x.org.RowID, webhook.SubscriptionChange{
		URL: new("https://hooks.initech.example/?auth=Basic c2VjcmV0"), EventTypes: &webhook.Types{"invoice.*"}, Description: new("for Milton"), ExternalID: new("hook-12"),
		Filter:  &filter.Filter{condition},
		Headers: &[]webhook.Header{{Name: "X-Initech-Auth", Value: redact.New("swordfish")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.sub = sub
	storagetest.Must[[]webhook.Published](t)(x.Queue.PublishEvents(ctx, x.org.RowID, []webhook.NewEvent{
		{Type: "invoice.made", Data: []byte(`{"to":"Milton"}`), IdempotencyKey: "invoice-77"}, {Type: "invoice.paid", Data: []byte(`{"by":"Milton"}`)},
	}))
	jobs := storagetest.Must[[]webhook.Job](t)(x.Queue.PendingJobs(ctx, sub.RowID, 0, 10, nil))
	epoch := storagetest.Must[webhook.Target](t)(x.Queue.Target(ctx, sub.RowID)).Epoch
	begin := func(job webhook.Job) int64 {
		return storagetest.Must[[]int64](t)(x.Queue.Begin(ctx, []webhook.Start{{Delivery: job.Delivery, Subscription: sub.RowID, Epoch: epoch, Number: 1}}))[0]
	}
	storagetest.Must[[]webhook.Settled](t)(x.Queue.Record(ctx, webhook.Result{
		Attempt: begin(jobs[0]), Delivery: jobs[0].Delivery, Subscription: sub.RowID, Epoch: epoch, Number: 1, ResponseBody: "we got it", Succeeded: true,
	}))
	x.begun, x.job = begin(jobs[1]), jobs[1]
	storagetest.Publish(t, x.Store, x.owner, "invoice.made")
	return x
}

// visitPortal starts a portal session of the organization, and leaves a link unused.
func (x *customer) visitPortal(t *testing.T) {
	t.Helper()
	var link access.Credential
	for _, path := range []string{"/unused-link", "/portal-session"} {
		link = access.Mint(access.LinkPrefix)
		storagetest.Must[access.SignInLink](t)(x.Directory.CreatePortalLink(t.Context(), x.By, x.org.ID, access.NewPortalLink{
			Credential: link, Role: access.RoleMember, Life: time.Hour, ReturnURL: new("https://initech.example" + path),
		}))
	}
	p := storagetest.Must[access.Principal](t)(x.Directory.PrincipalByLink(t.Context(), link.Digest()))
	storagetest.Must[access.Session](t)(x.Directory.UseLink(t.Context(), p, x.By, link, access.MintSession()))
}

func (x *customer) open(t *testing.T) {
	t.Helper()
	store, stop := storagetest.OpenWith(t, x.o)
	x.Platform, x.stop = storagetest.PlatformOf(t, store), stop
}

// createKey asks for a key in the name of by.
func (x *customer) createKey(t *testing.T, by access.Principal) error {
	t.Helper()
	_, err := x.Directory.CreateKey(t.Context(), by, by.Actor("192.0.2.1", "req"), access.NewKey{
		Credential: access.Mint("svc"), Name: "ci", Scope: access.NewScope(access.EventsRead),
	})
	return err
}

// subscribe asks for a subscription in the name of by.
func (x *customer) subscribe(t *testing.T, by access.Principal) error {
	t.Helper()
	_, _, err := x.Subscriptions.CreateSubscription(t.Context(), by.Actor("", ""), by.Organization.RowID,
		webhook.SubscriptionChange{URL: new("https://example.com/"), EventTypes: &webhook.Types{"a"}})
	return err
}

// end ends the attempt in progress.
func (x *customer) end(t *testing.T) {
	t.Helper()
	storagetest.Must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), webhook.Result{
		Attempt: x.begun, Delivery: x.job.Delivery, Subscription: x.sub.RowID, Epoch: 2, Number: 1, ResponseBody: "we got it", Succeeded: true,
	}))
}

// close closes the organization and waits until that is complete.
func (x *customer) close(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		return storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID)).Complete
	})
}

func TestCloseOrganization(t *testing.T) {
	t.Parallel()

	t.Run("no file has a trace of a closed organization", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		x.visitPortal(t)
		customerTraces := append(customerTraces[:len(customerTraces):len(customerTraces)], "/unused-link", "/portal-session")
		before := storagetest.Must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path()}))
		if found := tracesIn(t, before.File, customerTraces); len(found) != len(customerTraces) {
			t.Fatalf("the test is wrong: only these traces were in the file: %q", found)
		}
		storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID))
		x.end(t)
		x.close(t)
		for what, query := range map[string]string{
			"subscriptions with a signing secret": "FROM subscriptions WHERE organization_id = %d AND (secret <> x'' OR previous_secret IS NOT NULL)",
			"audit events with names, addresses or details": "FROM audit_events WHERE organization_id = %d AND type <> 'organization_closed' AND " +
				"(ip <> '' OR details <> '{}' OR actor_type <> 'system' AND actor_name <> 'erased')",
		} {
			var left int
			if storagetest.Query(t, x.o.Path, &left, fmt.Sprintf("SELECT count(*) "+query, x.org.RowID)); left != 0 {
				t.Errorf("%d %s are left", left, what)
			}
		}
		after := storagetest.Must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path(), To: filepath.Join(t.TempDir(), "later.db")}))
		if found := tracesIn(t, after.File, customerTraces); len(found) > 0 || after.Deliveries != 0 {
			t.Errorf("a later backup has %d deliveries and %q", after.Deliveries, found)
		}
		x.stop()
		storagetest.Alter(t, x.o.Path, "VACUUM")
		if found := tracesIn(t, x.o.Path, customerTraces); len(found) > 0 {
			t.Errorf("the database: %q", found)
		}
	})

	t.Run("a closure goes on after a stop", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		x.stop()
		// As if the process had ended right after the answer.
		storagetest.Alter(t, x.o.Path, "UPDATE organizations SET closed_at = 1, name = 'closed organization', external_id = NULL WHERE name = 'Initech'")
		x.open(t)
		x.close(t)
		x.stop()
		storagetest.Alter(t, x.o.Path, "VACUUM")
		if found := tracesIn(t, x.o.Path, customerTraces); len(found) > 0 {
			t.Errorf("the database: %q", found)
		}
	})
}

func TestClosedOrganization(t *testing.T) {
	t.Parallel()

	t.Run("nothing is sent and no credential works, from the answer on", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		ctx := t.Context()
		job := storagetest.Must[[]webhook.Job](t)(x.Queue.PendingJobs(ctx, x.sub.RowID, 0, 10, nil))[0]
		epoch := storagetest.Must[webhook.Target](t)(x.Queue.Target(ctx, x.sub.RowID)).Epoch
		c := storagetest.Must[access.Closure](t)(x.CloseOrganization(ctx, x.By, x.org.ID))
		if c.APIKeys != 1 || c.AccessTokens != 1 || c.Members != 1 || c.Subscriptions != 1 || c.PendingDeliveries != 2 || c.ClosedAt == nil {
			t.Errorf("the closure ends %+v", c)
		}
		ids := storagetest.Must[[]int64](t)(x.Queue.Begin(ctx, []webhook.Start{{Delivery: job.Delivery, Subscription: x.sub.RowID, Epoch: epoch, Number: 1}}))
		if at := storagetest.Must[webhook.Target](t)(x.Queue.Target(ctx, x.sub.RowID)); !at.Shut() || ids[0] != 0 {
			t.Errorf("attempt %d begins at %+v", ids[0], at)
		}
		_, err := x.Directory.PrincipalByKey(ctx, x.key.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_revoked")
		_, err = x.Directory.PrincipalByToken(ctx, x.token.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
		// A request that was checked before the closure still runs.
		err = x.createKey(t, x.owner)
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
	})

	t.Run("its credentials count as revoked before they are", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		x.stop()
		storagetest.Alter(t, x.o.Path, "UPDATE organizations SET closed_at = 1 WHERE name = 'Initech'")
		store := storagetest.Must[*storage.Store](t)(storage.Open(t.Context(), x.o)) // without Run, nothing is cleaned
		defer store.Close()
		_, err := store.Directory.PrincipalByKey(t.Context(), x.key.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_revoked")
		_, err = store.Directory.PrincipalByToken(t.Context(), x.token.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
	})

	t.Run("what was revoked before keeps the time of its revocation", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		storagetest.Exec(t, x.Store, "UPDATE api_keys SET revoked_at = 1")
		storagetest.Exec(t, x.Store, "UPDATE access_tokens SET revoked_at = 1 WHERE organization_id = ?", x.org.RowID)
		storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID))
		x.end(t)
		x.close(t)
		key := storagetest.Must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), x.org.RowID, access.KeyFilter{Limit: 10})).Rows[0]
		token := storagetest.Must[[]access.AccessToken](t)(x.Directory.Tokens(t.Context(), x.owner.User.ID, 0, 10))[0]
		if *key.RevokedAt != 1 || *token.RevokedAt != 1 || token.Name != "" {
			t.Errorf("the key was revoked at %d, the token %q at %d", *key.RevokedAt, token.Name, *token.RevokedAt)
		}
	})

	t.Run("its members need not name their other organization", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		other := storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Other", Plan: "growth"}))
		storagetest.Must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, other.ID, x.owner.User.ID, access.RoleOwner))
		storagetest.Must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, x.owner.User.ID, access.UserChange{ExternalID: new("idp|7")}))
		x.stop()
		storagetest.Alter(t, x.o.Path, "UPDATE organizations SET closed_at = 1 WHERE name = 'Initech'")
		store := storagetest.Must[*storage.Store](t)(storage.Open(t.Context(), x.o)) // without Run, the memberships stay
		defer store.Close()
		who := access.Identity{Subject: "idp|7"}
		p := storagetest.Must[access.Principal](t)(store.Directory.PrincipalByIdentity(t.Context(), who, ""))
		signedIn := storagetest.Must[access.Principal](t)(store.Directory.PrincipalToSignIn(t.Context(), who))
		if p.Home.ID != other.ID || signedIn.Home.ID != other.ID {
			t.Errorf("the member acts in %s, and signs in to %s", p.Home.ID, signedIn.Home.ID)
		}
	})

	t.Run("later lines of its log have no details", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		session := access.MintSession()
		storagetest.Must[access.Session](t)(x.Directory.CreateSession(t.Context(), x.owner, x.owner.Actor("192.0.2.9", ""), session))
		p := storagetest.Must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), session.Digest()))
		storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID))
		x.end(t)
		x.close(t)
		if err := x.Directory.EndSession(t.Context(), p, p.Actor("192.0.2.9", "")); err != nil {
			t.Fatal(err)
		}
		page := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.org.RowID, access.AuditFilter{Limit: 1}))
		if e := page.Rows[0]; e.Type != access.SessionEnded || e.Details != "{}" || e.IP != "" || e.Name != "erased" {
			t.Errorf("the log has %+v", e)
		}
	})
}

func TestChangeOfClosedOrganization(t *testing.T) {
	t.Parallel()

	t.Run("a closed organization takes nothing new", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		ctx := t.Context()
		storagetest.Must[access.Closure](t)(x.CloseOrganization(ctx, x.By, x.org.ID))
		_, published := x.Queue.PublishEvents(ctx, x.org.RowID, []webhook.NewEvent{{Type: "a", Data: []byte(`{}`)}})
		subscribed := x.subscribe(t, x.Operator.In(x.org))
		_, token := x.Directory.CreateToken(ctx, x.By, x.owner.User.ID, x.org.ID, access.Mint(access.TokenPrefix), "", nil)
		_, member := x.Directory.SetMember(ctx, x.By, x.org.ID, x.Operator.User.ID, access.RoleOwner)
		_, changed := x.Directory.UpdateOrganization(ctx, x.By, x.org.ID, access.OrganizationChange{Name: new("Initech again")})
		key := x.createKey(t, x.Operator.In(x.org))
		_, replayed := x.Queue.Replay(ctx, x.By, x.org.RowID, x.sub.ID, webhook.Replay{})
		for _, err := range []error{published, subscribed, token, member, changed, key} {
			storagetest.ExpectFault(t, err, fault.Conflict, "organization_closed")
		}
		if replayed == nil {
			t.Error("a replay made deliveries")
		}
		x.end(t)
		x.close(t)
		if org := storagetest.Must[access.Organization](t)(x.Directory.Organization(ctx, x.org.ID)); org.ClosedAt == nil || org.ExternalID != nil || org.Name != access.ClosedOrganizationName {
			t.Errorf("the organization is %+v", org)
		}
		again := storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(ctx, x.By, access.Organization{Name: "Initech", Plan: "growth", ExternalID: new("cust|4711")}))
		if again.ID == x.org.ID {
			t.Error("the new organization is the closed one")
		}
	})

	t.Run("the record of an attempt in progress stays until the attempt ends", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID))
		time.Sleep(100 * time.Millisecond)
		if c := storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID)); c.Complete {
			t.Error("the closure is complete while an attempt is in progress")
		}
		x.end(t)
		x.close(t)
	})

	t.Run("the log has the closure, and keeps the ids of who did what", func(t *testing.T) {
		t.Parallel()
		x := newCustomer(t)
		storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID))
		x.end(t)
		x.close(t)
		page := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.org.RowID, access.AuditFilter{Limit: 100}))
		if len(page.Rows) < 5 || page.Rows[0].Type != access.OrganizationClosed || page.Rows[0].Details == "{}" {
			t.Errorf("the newest of %d lines is %+v", len(page.Rows), page.Rows[0])
		}
		for _, e := range page.Rows[1:] {
			if e.Details != "{}" || e.IP != "" || e.Actor.ID == "" || e.TargetID == "" {
				t.Errorf("the log has %+v", e)
			}
		}
	})

	t.Run("nobody closes the organization of the last operator, or the own one", func(t *testing.T) {
		t.Parallel()
		x := storagetest.NewPlatform(t)
		_, err := x.CloseOrganization(t.Context(), x.By, x.Operator.Home.ID)
		storagetest.ExpectFault(t, err, fault.Conflict, "in_use")
		elsewhere, _ := storagetest.Organization(t, x.Store, "Other", "growth", access.RoleOwner)
		_, err = x.CloseOrganization(t.Context(), elsewhere.Actor("", ""), x.Operator.Home.ID)
		storagetest.ExpectFault(t, err, fault.Conflict, "last_operator")
	})
	t.Run("an operator who acts in another organization closes neither of the two", func(t *testing.T) {
		t.Parallel()
		x := storagetest.NewPlatform(t)
		storagetest.Organization(t, x.Store, "Operations", "growth", access.RoleOperator) // so the first operator is not the last
		customer, _ := storagetest.Organization(t, x.Store, "Customer", "growth", access.RoleOwner)
		third, _ := storagetest.Organization(t, x.Store, "Third", "growth", access.RoleOwner)
		by := x.Operator.In(customer.Home).Actor("", "")
		for _, o := range []access.Organization{x.Operator.Home, customer.Home} {
			_, err := x.CloseOrganization(t.Context(), by, o.ID)
			storagetest.ExpectFault(t, err, fault.Conflict, "in_use")
			_, err = x.CountClosure(t.Context(), by, o.ID)
			storagetest.ExpectFault(t, err, fault.Conflict, "in_use")
		}
		storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), by, third.Home.ID))
	})
}

func TestClosedFirstOrganization(t *testing.T) {
	t.Parallel()
	x := &customer{o: storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))}
	x.open(t)
	elsewhere, _ := storagetest.Organization(t, x.Store, "Operations", "growth", access.RoleOperator)
	storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), elsewhere.Actor("", ""), x.Operator.Home.ID))
	system := storagetest.Must[access.Principal](t)(x.Directory.PrincipalOfSystem(t.Context()))
	if system.Home.ID != elsewhere.Home.ID {
		t.Fatalf("the local socket acts in the organization %s", system.Home.ID)
	}
	made := storagetest.Must[access.Plan](t)(x.Directory.CreatePlan(t.Context(), system.Actor("", ""), access.Plan{Name: "pro"}))
	page := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), elsewhere.Home.RowID, access.AuditFilter{Limit: 1}))
	if len(page.Rows) != 1 || page.Rows[0].TargetID != made.Name || page.Rows[0].Details == "{}" {
		t.Errorf("the log has %+v", page.Rows)
	}

	copied := storagetest.Must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path()}))
	x.stop()
	storagetest.Must[backup.Restored](t)(storage.Restore(t.Context(), x.o, copied.File))
	x.Store, _ = storagetest.OpenWith(t, x.o)
	page = storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), elsewhere.Home.RowID, access.AuditFilter{Limit: 1}))
	if len(page.Rows) != 1 || page.Rows[0].Type != access.DatabaseRestored || page.Rows[0].Details == "{}" {
		t.Errorf("after the restore, the log has %+v", page.Rows)
	}
}

func TestDeleteClosedOrganization(t *testing.T) {
	t.Parallel()
	x := storagetest.NewPlatform(t)
	org := storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Initech", Plan: "growth"}))
	storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, org.ID))
	eventually(t, func() bool {
		err := x.DeleteOrganization(t.Context(), x.By, org.ID)
		if err != nil {
			storagetest.ExpectFault(t, err, fault.Conflict, "in_use")
		}
		return err == nil
	})
	page := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.Operator.Home.RowID, access.AuditFilter{Limit: 100, Type: access.OrganizationCreated}))
	for _, e := range page.Rows {
		if e.TargetID == org.ID && e.Details != "{}" {
			t.Errorf("the log keeps the name of the organization: %s", e.Details)
		}
	}
}

func TestPlanOfClosedOrganization(t *testing.T) {
	t.Parallel()
	x := newCustomer(t) // on the plan growth, with data, so it cannot be deleted
	if err := x.Directory.DeletePlan(t.Context(), x.By, "growth"); err == nil {
		t.Fatal("the plan of an open organization was deleted")
	}
	storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, x.org.ID))
	if err := x.Directory.DeletePlan(t.Context(), x.By, "growth"); err != nil {
		t.Errorf("after the closure: %v", err)
	}
	storagetest.Must[access.Organization](t)(x.Directory.Organization(t.Context(), x.org.ID))
	x.end(t)
	x.close(t)
	if err := x.DeleteOrganization(t.Context(), x.By, x.org.ID); err == nil || !strings.Contains(err.Error(), "; it is closed already") {
		t.Errorf("its deletion: %v", err)
	}
}

// TestCloseLargeOrganization closes an organization with more subscriptions and events than one transaction removes. Its owner has
// deleted the first and the last of the subscriptions.
func TestCloseLargeOrganization(t *testing.T) {
	t.Parallel()
	x := newCustomer(t)
	by := x.owner.Actor("192.0.2.9", "req")
	var ids []string
	for i := range 60 {
		sub, _, err := x.Subscriptions.CreateSubscription(t.Context(), by, x.org.RowID, webhook.SubscriptionChange{
			URL: new(fmt.Sprintf("https://trace-%d.example/", i)), EventTypes: &webhook.Types{"invoice.*"}, Description: new(fmt.Sprintf("note-%d", i)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sub.ID)
	}
	for _, id := range []string{ids[0], ids[59]} {
		if err := x.Subscriptions.DeleteSubscription(t.Context(), by, x.org.RowID, id); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.Must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.org.RowID, slices.Repeat([]webhook.NewEvent{{Type: "report.made", Data: []byte(`"body-1"`)}}, 600)))
	traces := []string{"trace-", "note-", "body-"}
	if found := tracesIn(t, x.o.Path, traces); len(found) < len(traces) {
		t.Fatalf("the test is wrong: only these traces were in the files: %q", found)
	}
	x.end(t)
	x.close(t)
	x.stop()
	storagetest.Alter(t, x.o.Path, "VACUUM")
	if found := tracesIn(t, x.o.Path, traces); len(found) > 0 {
		t.Errorf("the database: %q", found)
	}
}
