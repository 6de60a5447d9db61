package retention_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// leaver is a store with an organization of which one member leaves.
type leaver struct {
	storagetest.Platform
	o    storage.Options
	stop func()

	who   access.Principal
	token access.Credential
	key   access.Credential
	sub   webhook.Subscription // receives the audit events of the organization
}

// The traces of the member: two names, two e-mail addresses and two external ids, because the user was changed once.
var traces = []string{
	"Ada Lovelace", "Ada Byron", "ada.lovelace@example.com", "ada.byron@example.com", "idp|ada-1835", "idp|ada-1815", "192.0.2.77",
}

func newLeaver(t *testing.T) *leaver {
	t.Helper()
	x := &leaver{o: storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))}
	x.open(t)
	org := storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "growth"}))
	owner, _ := storagetest.Member(t, x.Store, org, "owner", access.RoleOwner)
	x.sub, _ = storagetest.Subscription(t, x.Store, owner, "https://example.com/")
	second, _ := storagetest.Subscription(t, x.Store, owner, "https://example.com/second")
	third, _ := storagetest.Subscription(t, x.Store, owner, "https://example.com/third")

	user := storagetest.Must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{
		Email: "ada.byron@example.com", Name: "Ada Byron", ExternalID: new("idp|ada-1815"), IsActive: true,
	}))
	storagetest.Must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, org.ID, user.ID, access.RoleOwner))
	x.token = access.Mint(access.TokenPrefix)
	storagetest.Must[access.AccessToken](t)(x.Directory.CreateToken(t.Context(), x.By, user.ID, org.ID, x.token, "laptop of Ada Byron", nil))
	x.sign(t)
	x.pause(t, second)
	if _, _, err := x.Subscriptions.CreateSubscription(t.Context(), x.actor(), org.RowID,
		webhook.SubscriptionChange{URL: new("https://example.com/paused"), EventTypes: &webhook.Types{"a"}, IsActive: new(false)}); err != nil {
		t.Fatal(err)
	}
	storagetest.Must[access.User](t)(x.Directory.UpdateUser(t.Context(), x.By, user.ID, access.UserChange{
		Email: new("ada.lovelace@example.com"), Name: new("Ada Lovelace"), ExternalID: new("idp|ada-1835"),
	}))
	x.sign(t)
	x.pause(t, third)
	session := access.MintSession()
	storagetest.Must[access.Session](t)(x.Directory.CreateSession(t.Context(), x.who, x.actor(), session))
	_, x.key = storagetest.Key(t, x.Store, x.who, access.EventsRead)
	x.echo(t)
	return x
}

func (x *leaver) open(t *testing.T) {
	t.Helper()
	store, stop := storagetest.OpenWith(t, x.o)
	x.Platform, x.stop = storagetest.PlatformOf(t, store), stop
}

func (x *leaver) sign(t *testing.T) {
	t.Helper()
	x.who = storagetest.Must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), x.token.Digest()))
}

func (x *leaver) actor() access.Actor { return x.who.Actor("192.0.2.77", "req") }

// pause deactivates a subscription in the name of the member.
func (x *leaver) pause(t *testing.T, sub webhook.Subscription) {
	t.Helper()
	storagetest.Must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.who.Organization.RowID, sub.ID, webhook.SubscriptionChange{IsActive: new(false)}))
}

// echo makes an attempt of the first pending delivery about the member, whose receiver answers with what it got.
func (x *leaver) echo(t *testing.T) {
	t.Helper()
	storagetest.Must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), x.begin(t)))
}

// begin begins such an attempt, and returns its result.
func (x *leaver) begin(t *testing.T) webhook.Result {
	t.Helper()
	epoch := storagetest.Must[webhook.Target](t)(x.Queue.Target(t.Context(), x.sub.RowID)).Epoch
	for _, job := range storagetest.Must[[]webhook.Job](t)(x.Queue.PendingJobs(t.Context(), x.sub.RowID, 0, 100, nil)) {
		if !bytes.Contains(job.Body, []byte("Ada Byron")) {
			continue
		}
		ids := storagetest.Must[[]int64](t)(x.Queue.Begin(t.Context(), []webhook.Start{{Delivery: job.Delivery, Subscription: x.sub.RowID, Epoch: epoch, Number: 1}}))
		return webhook.Result{
			Attempt: ids[0], Delivery: job.Delivery, Subscription: x.sub.RowID, Epoch: epoch, Number: 1, ResponseBody: string(job.Body), ResponseHeader: "Echo: " + string(job.Body),
			Failure: webhook.Failure{Class: webhook.HTTPStatus, Text: "500"}, RetryAt: time.Now().Add(time.Hour).UnixMilli(),
		}
	}
	t.Fatal("no delivery is about the member")
	return webhook.Result{}
}

// beginErasure begins the erasure of the member. It waits until only an attempt in progress delays the erasure.
func (x *leaver) beginErasure(t *testing.T) {
	t.Helper()
	storagetest.Must[access.Erasure](t)(x.EraseUser(t.Context(), x.By, x.who.User.ID))
	time.Sleep(1500 * time.Millisecond)
	if storagetest.Must[access.Erasure](t)(x.EraseUser(t.Context(), x.By, x.who.User.ID)).Complete {
		t.Error("the erasure is complete while an attempt with the old body is in progress")
	}
}

// erase erases the member and waits until that is complete.
func (x *leaver) erase(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		return storagetest.Must[access.Erasure](t)(x.EraseUser(t.Context(), x.By, x.who.User.ID)).Complete
	})
}

// eventually waits until a request says that it is complete.
func eventually(t *testing.T, complete func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !complete(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not complete after a minute")
		}
	}
}

// tracesIn lists the texts that the files of a database have, in any case.
func tracesIn(t *testing.T, path string, texts []string) (found []string) {
	t.Helper()
	for _, name := range []string{path, path + "-wal"} {
		content, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, text := range texts {
			if bytes.Contains(bytes.ToLower(content), []byte(strings.ToLower(text))) {
				found = append(found, filepath.Base(name)+" has "+text)
			}
		}
	}
	return found
}

func TestEraseUser(t *testing.T) {
	t.Parallel()

	t.Run("no file has a trace of an erased user", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		before := storagetest.Must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path()}))
		if found := tracesIn(t, before.File, traces); len(found) != len(traces) {
			t.Fatalf("the test is wrong: only these traces were in the file: %q", found)
		}
		x.erase(t)
		after := storagetest.Must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path(), To: filepath.Join(t.TempDir(), "later.db")}))
		if found := tracesIn(t, after.File, traces); len(found) > 0 {
			t.Errorf("a later backup: %q", found)
		}
		x.stop()
		storagetest.Alter(t, x.o.Path, "VACUUM")
		if found := tracesIn(t, x.o.Path, traces); len(found) > 0 {
			t.Errorf("the database: %q", found)
		}
	})

	t.Run("no file has a trace of a user who was erased after leaving", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		if err := x.Directory.RemoveMember(t.Context(), x.By, x.who.Organization.ID, x.who.User.ID); err != nil {
			t.Fatal(err)
		}
		x.erase(t)
		x.stop()
		storagetest.Alter(t, x.o.Path, "VACUUM")
		if found := tracesIn(t, x.o.Path, traces); len(found) > 0 {
			t.Errorf("the database: %q", found)
		}
	})

	t.Run("an erasure goes on after a stop", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		x.erase(t)
		x.stop()
		// As if the process had ended before it cleaned the history. The ids are still there, so it is found again.
		storagetest.Alter(t, x.o.Path, `
			UPDATE users SET cleaned_at = NULL WHERE erased_at IS NOT NULL;
			UPDATE audit_events SET actor_name = 'Ada Lovelace' WHERE actor_name = 'erased user';
			UPDATE access_tokens SET revoked_at = NULL, name = 'laptop of Ada Byron' WHERE name = '';
			VACUUM`)
		x.open(t)
		x.erase(t)
		x.stop()
		storagetest.Alter(t, x.o.Path, "VACUUM")
		if found := tracesIn(t, x.o.Path, traces); len(found) > 0 {
			t.Errorf("the database: %q", found)
		}
	})

	t.Run("the events about an erased user keep everything else", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		decode := func() (bodies []map[string]any) {
			for _, job := range storagetest.Must[[]webhook.Job](t)(x.Queue.PendingJobs(t.Context(), x.sub.RowID, 0, 100, nil)) {
				var body map[string]any
				if err := json.Unmarshal(job.Body, &body); err != nil {
					t.Fatal(err)
				}
				bodies = append(bodies, body)
			}
			return bodies
		}
		before := decode()
		x.erase(t)
		after := slices.DeleteFunc(decode(), func(body map[string]any) bool { return body["type"] == access.KeyRevoked }) // the erasure itself
		changed := 0
		for i := range before {
			was, is := before[i]["data"].(map[string]any), after[i]["data"].(map[string]any)
			if cmp.Equal(was, is) {
				continue
			}
			changed++
			was["actor"].(map[string]any)["name"], is["actor"].(map[string]any)["name"] = "", ""
			for _, member := range []string{"name", "email", "external_id", "last_error"} {
				delete(was["details"].(map[string]any), member)
				delete(is["details"].(map[string]any), member)
			}
		}
		if d := cmp.Diff(before, after); d != "" || changed == 0 {
			t.Errorf("%d bodies changed (-before +after):\n%s", changed, d)
		}
	})

	t.Run("the log keeps the id, and the erasure has one line", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		first := storagetest.Must[access.Erasure](t)(x.EraseUser(t.Context(), x.By, x.who.User.ID))
		if first.APIKeys != 1 || first.AccessTokens != 1 || first.Memberships != 1 || first.ErasedAt == nil {
			t.Errorf("the erasure ends %+v", first)
		}
		x.erase(t)
		if again := storagetest.Must[access.Erasure](t)(x.EraseUser(t.Context(), x.By, x.who.User.ID)); *again.ErasedAt != *first.ErasedAt || again.APIKeys != 0 {
			t.Errorf("the second erasure is %+v", again)
		}
		own := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.who.Organization.RowID, access.AuditFilter{Limit: 100, Actors: []string{x.who.User.ID}}))
		for _, e := range own.Rows {
			if e.Name != access.ErasedUserName || e.IP != "" {
				t.Errorf("%s is by %q from %q", e.Type, e.Name, e.IP)
			}
		}
		if len(own.Rows) < 4 {
			t.Errorf("the log has %d lines of the user", len(own.Rows))
		}
		revoked := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.who.Organization.RowID, access.AuditFilter{Limit: 100, Type: access.KeyRevoked}))
		if len(revoked.Rows) != 1 || !strings.Contains(revoked.Rows[0].Details, `"reason":"user_erased"`) {
			t.Errorf("the log of the organization of the key has %+v", revoked.Rows)
		}
		lines := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.Operator.Home.RowID, access.AuditFilter{Limit: 100, Type: access.UserErased}))
		if len(lines.Rows) != 1 || lines.Rows[0].TargetID != x.who.User.ID || lines.Rows[0].Details != `{"access_tokens":1,"api_keys":1,"memberships":1}` {
			t.Errorf("the log of the operator has %+v", lines.Rows)
		}
	})
}

// TestErasedResponses erases a user whose last event went to many receivers, which answered with the name.
func TestErasedResponses(t *testing.T) {
	t.Parallel()
	x := newLeaver(t)
	x.stop()
	storagetest.Alter(t, x.o.Path, `
		INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
		WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 450)
		SELECT d.event_id, d.subscription_id, 1, 2, 1, 0 FROM n, deliveries d WHERE d.id = (SELECT max(id) >> 8 FROM attempts);
		INSERT INTO attempts (id, subscription_id, cause, outcome, response_body, duration_ms, error, attempted_at)
		SELECT id << 8 | 1, subscription_id, 2, 1, 'Hello Ada Byron', 1, '', 1 FROM deliveries WHERE cause = 2`)
	x.open(t)
	x.erase(t)
	x.stop()
	var left int
	if storagetest.Query(t, x.o.Path, &left, "SELECT count(*) FROM attempts WHERE response_body <> ''"); left > 0 {
		t.Errorf("%d responses are left", left)
	}
}

func TestEraseUserDuringAnAttempt(t *testing.T) {
	t.Parallel()

	t.Run("an answer to the old body that comes after the erasure is not kept", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		result := x.begin(t)
		x.beginErasure(t)
		if _, err := x.Queue.Record(t.Context(), result, result); err == nil {
			t.Error("one attempt was recorded twice")
		}
		storagetest.Must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), result)) // the dispatcher repeats a Record that failed
		x.erase(t)
		after := storagetest.Must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path()}))
		if found := tracesIn(t, after.File, traces); len(found) > 0 {
			t.Errorf("a later backup: %q", found)
		}
	})

	t.Run("an attempt that is taken back does not delay the erasure, and the next answer is kept", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		undone := x.begin(t)
		x.beginErasure(t)
		if err := x.Queue.UndoBegin(t.Context(), []int64{undone.Attempt}); err != nil {
			t.Fatal(err)
		}
		x.erase(t)
		ids := storagetest.Must[[]int64](t)(x.Queue.Begin(t.Context(), []webhook.Start{{Delivery: undone.Delivery, Subscription: undone.Subscription, Epoch: undone.Epoch, Number: 1}}))
		undone.Attempt, undone.ResponseBody = ids[0], "an answer to the new body"
		storagetest.Must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), undone))
		page := storagetest.Must[webhook.AttemptPage](t)(x.History.AttemptPage(t.Context(), x.who.Organization.RowID, x.sub.ID, webhook.AttemptFilter{Limit: 1}))
		if page.Attempts[0].ResponseBody != undone.ResponseBody {
			t.Errorf("the answer is %q", page.Attempts[0].ResponseBody)
		}
	})
}

func TestErasedUser(t *testing.T) {
	t.Parallel()

	t.Run("an erased user can do nothing, from the answer on", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		ctx, id, org := t.Context(), x.who.User.ID, x.who.Organization
		storagetest.Must[access.Erasure](t)(x.EraseUser(ctx, x.By, id))
		if _, err := x.Directory.PrincipalByToken(ctx, x.token.Digest()); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("the token: %v", err)
		}
		if _, err := x.Directory.PrincipalByKey(ctx, x.key.Digest()); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("the key: %v", err)
		}
		for _, i := range []access.Identity{{Subject: "idp|ada-1835"}, {Subject: "new", Email: "ada.lovelace@example.com"}} {
			_, err := x.Directory.PrincipalByIdentity(ctx, i, "")
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "unknown_user")
		}
		_, err := x.Directory.CreateToken(ctx, x.By, id, org.ID, access.Mint(access.TokenPrefix), "", nil)
		storagetest.ExpectFault(t, err, fault.Conflict, "user_erased")
		_, err = x.Directory.SetMember(ctx, x.By, org.ID, id, access.RoleMember)
		storagetest.ExpectFault(t, err, fault.Conflict, "user_erased")
		_, err = x.Directory.UpdateUser(ctx, x.By, id, access.UserChange{IsActive: new(true)})
		storagetest.ExpectFault(t, err, fault.Conflict, "user_erased")
		// A request that was checked before the erasure still runs.
		storagetest.Must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(ctx, x.actor(), org.RowID, x.sub.ID, webhook.SubscriptionChange{IsActive: new(false)}))
		x.erase(t)
		if sub := storagetest.Must[webhook.Subscription](t)(x.History.Subscription(ctx, org.RowID, x.sub.ID)); sub.LastError != "deactivated by erased user" {
			t.Errorf("the subscription says %q", sub.LastError)
		}
		storagetest.Must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(ctx, x.actor(), org.RowID, x.sub.ID, webhook.SubscriptionChange{IsActive: new(true)}))
		log := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(ctx, org.RowID, access.AuditFilter{Limit: 1}))
		if e := log.Rows[0]; e.Actor.ID != id || e.Name != access.ErasedUserName || e.IP != "" {
			t.Errorf("the log has a later line of the user: %+v", e)
		}
		key := storagetest.Must[access.CredentialState](t)(x.Directory.KeyState(ctx, x.key.Digest()))
		if key.Principal.Key.RevokedAt == nil {
			t.Error("the key is not revoked")
		}
		members := storagetest.Must[[]access.Member](t)(x.Directory.Members(ctx, org.ID, 0, 10))
		tokens := storagetest.Must[[]access.AccessToken](t)(x.Directory.Tokens(ctx, id, 0, 10))
		if len(members) != 1 || len(tokens) != 1 || tokens[0].RevokedAt == nil || tokens[0].Name != "" {
			t.Errorf("there are %d members, and the tokens %+v", len(members), tokens)
		}
		again := storagetest.Must[access.User](t)(x.Directory.CreateUser(ctx, x.By, access.User{Email: "ada.lovelace@example.com", Name: "Ada", ExternalID: new("idp|ada-1835"), IsActive: true}))
		if again.ID == id {
			t.Error("the new user is the erased one")
		}
	})

	t.Run("what was revoked before keeps the time of its revocation", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		storagetest.Exec(t, x.Store, "UPDATE api_keys SET revoked_at = 1")
		storagetest.Exec(t, x.Store, "UPDATE access_tokens SET revoked_at = 1 WHERE user_id = ?", x.who.User.RowID)
		x.erase(t)
		key := storagetest.Must[access.CredentialState](t)(x.Directory.KeyState(t.Context(), x.key.Digest())).Key
		token := storagetest.Must[[]access.AccessToken](t)(x.Directory.Tokens(t.Context(), x.who.User.ID, 0, 10))[0]
		if *key.RevokedAt != 1 || *token.RevokedAt != 1 {
			t.Errorf("the key was revoked at %d, the token at %d", *key.RevokedAt, *token.RevokedAt)
		}
	})

	t.Run("a namesake in another organization keeps the name", func(t *testing.T) {
		t.Parallel()
		x := newLeaver(t)
		other := storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Other", Plan: "growth"}))
		namesake, _ := storagetest.Member(t, x.Store, other, "Ada Lovelace", access.RoleOwner)
		sub, _ := storagetest.Subscription(t, x.Store, namesake, "https://example.com/")
		storagetest.Must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), namesake.Actor("192.0.2.5", ""), other.RowID, sub.ID, webhook.SubscriptionChange{IsActive: new(false)}))
		x.erase(t)
		if sub := storagetest.Must[webhook.Subscription](t)(x.History.Subscription(t.Context(), other.RowID, sub.ID)); sub.LastError != "deactivated by Ada Lovelace" {
			t.Errorf("the subscription says %q", sub.LastError)
		}
		log := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), other.RowID, access.AuditFilter{Limit: 1, Actors: []string{namesake.User.ID}}))
		if len(log.Rows) != 1 || log.Rows[0].Name != "Ada Lovelace" || log.Rows[0].IP != "192.0.2.5" {
			t.Errorf("the log has %+v", log.Rows)
		}
	})

	t.Run("nobody erases the last operator or the built-in user", func(t *testing.T) {
		t.Parallel()
		x := storagetest.NewPlatform(t)
		_, err := x.EraseUser(t.Context(), x.By, x.Operator.User.ID)
		storagetest.ExpectFault(t, err, fault.Conflict, "last_operator")
		system := storagetest.Must[access.Principal](t)(x.Directory.PrincipalOfSystem(t.Context()))
		_, err = x.EraseUser(t.Context(), x.By, system.User.ID)
		storagetest.ExpectFault(t, err, fault.Conflict, "built_in")
		_, err = x.EraseUser(t.Context(), x.By, "nobody")
		if fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}

// TestPersonalData lists each column that has text or bytes, and what becomes of it. A new column needs a decision.
func TestPersonalData(t *testing.T) {
	t.Parallel()
	const (
		fixed   = "no person or customer writes it"
		free    = "people write it; it stays after an erasure of a person, and goes when the organization is closed"
		product = "the operator's own words about the product"
		erased  = "goes when the person is erased"
		closed  = "goes when the organization is closed"
		both    = "goes when the person is erased, or the organization is closed"
	)
	want := map[string]string{
		"instance.name": fixed, "instance.value": fixed + ", except the reason of a hold",
		"applied.kind": fixed, "applied.key": product + ", or an id",
		"plans.name": product, "permissions.key": product, "permissions.description": product, "roles.name": product,
		"event_types.type": product, "event_types.description": product, "event_types.event_group": product, "event_types.example": product, "event_types.schema": product,
		"organizations.public_id": fixed, "organizations.name": closed, "organizations.external_id": closed,
		"users.public_id": fixed, "users.email": erased, "users.name": erased, "users.external_id": erased,
		"access_tokens.public_id": fixed, "access_tokens.name": both, "access_tokens.digest": fixed, "access_tokens.token_prefix": fixed,
		"sessions.public_id": fixed, "sessions.digest": fixed, "sessions.kind": fixed, "sessions.link_id": fixed, "sessions.return_url": closed,
		"sign_in_links.public_id": fixed, "sign_in_links.digest": fixed, "sign_in_links.kind": fixed, "sign_in_links.return_url": closed,
		"api_keys.public_id": fixed, "api_keys.name": free, "api_keys.scope": product, "api_keys.digest": fixed, "api_keys.key_prefix": fixed,
		"api_keys.metadata": free, "api_keys.external_id": closed, "api_keys.allowed_networks": closed, "subscriptions.external_id": closed, "subscription_headers.names": closed, "subscription_headers.sealed": closed,
		"audit_events.type": fixed, "audit_events.actor_type": fixed, "audit_events.actor_id": fixed, "audit_events.actor_name": both,
		"audit_events.target_type": fixed, "audit_events.target_id": fixed, "audit_events.ip": both, "audit_events.request_id": fixed, "audit_events.details": both,
		"subscriptions.public_id": fixed, "subscriptions.url": closed, "subscriptions.event_types": closed, "subscriptions.filter": closed, "subscriptions.description": free,
		"subscriptions.status": fixed, "subscriptions.last_error": both, "subscriptions.secret": closed, "subscriptions.previous_secret": closed,
		"subscription_patterns.pattern": closed,
		"events.type":                   closed, "events.body": "an audit event: " + both + "; another: " + free, "events.idempotency_key": closed, "events.request_digest": closed,
		"attempts.response_body": both, "attempts.response_headers": both, "attempts.error": closed,
	}
	x := storagetest.NewPlatform(t)
	db, err := sql.Open("sqlite", "file:"+x.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`
		SELECT t.name || '.' || c.name FROM pragma_table_list t JOIN pragma_table_xinfo(t.name) c
		WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND c.type IN ('TEXT', 'BLOB')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			t.Fatal(err)
		}
		if want[column] == "" {
			t.Errorf("what becomes of %s when a person is erased, or an organization is closed?", column)
		}
		delete(want, column)
	}
	if err := rows.Err(); err != nil || len(want) > 0 {
		t.Errorf("%v; there is no %v", err, want)
	}
}
