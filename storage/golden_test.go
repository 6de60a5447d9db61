package storage_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// update writes the golden file of a new schema: go test ./storage -run TestGolden -update
var update = flag.Bool("update", false, "write the golden file of the current schema, unless it is there")

// released has the SHA-256 of the golden file of each schema, from schema 1 on. Once a version with a schema is released, its line and
// its file never change.
var released = []string{
	"7f0adad2493523413e865aa30a1e75a22f4d860c703cf29e4f9ba6d45db35f78",
}

// notTheSteps is what to do about a file that does not open.
const notTheSteps = `%v

schema.sql is not what the steps make of a file of schema %d. A released schema never changes. Put schema.sql back, or lead to the
new one with a numbered step: "Change the schema" in .github/CONTRIBUTING.md says how.`

// goldenKey seals the secrets of the golden files.
var goldenKey = strings.Repeat("5e", 32)

// goldenFile returns the names of a database that a version left, and of its contents.
func goldenFile(version int64) (database, content string) {
	base := fmt.Sprintf("testdata/v%d", version)
	return base + ".sqlite.gz", base + ".json"
}

// golden unpacks the golden file of a version and returns options to open it with the current schema.
func golden(t *testing.T, version int64) storage.Options {
	t.Helper()
	name, _ := goldenFile(version)
	digest := ""
	if version <= int64(len(released)) {
		digest = released[version-1]
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(storagetest.Frozen(t, name, digest)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.EncryptionKey = goldenKey
	if err := os.WriteFile(o.Path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// fill writes rows into every table.
func fill(t *testing.T, store *storage.Store) {
	t.Helper()
	ctx := t.Context()
	x := platform{storagetest.PlatformOf(t, store)}
	applying := x.By
	applying.Applying = true
	must[access.Permission](t)(x.Directory.CreatePermission(ctx, applying, access.Permission{Key: "orders:read", Description: "Read orders"}))
	must[access.Permission](t)(x.Directory.CreatePermission(ctx, x.By, access.Permission{Key: "refunds:write", Internal: true}))
	must[access.Role](t)(x.Directory.CreateRole(ctx, x.By, access.Role{Name: "clerk", Permissions: access.NewScope(access.EventsRead, "orders:read")}))
	must[access.Plan](t)(x.Directory.CreatePlan(ctx, x.By, access.Plan{Name: "pro", APIKeys: true, Webhooks: true, RateLimitPerMinute: new(int64(1200))}))
	owner, _ := storagetest.Organization(t, store, "acme", "pro", access.RoleOwner)
	storagetest.Member(t, store, owner.Home, "clerk", "clerk")
	key, _ := storagetest.Key(t, store, owner, access.EventsRead, "orders:read")
	made := must[access.RotatedKey](t)(x.Directory.RotateKey(ctx, owner, owner.Actor("192.0.2.1", "req"), key.ID, access.Mint("svc"), time.Hour))
	must[access.RotatedKey](t)(x.Directory.RotateKey(ctx, owner, owner.Actor("192.0.2.1", "req"), made.ID, access.Mint("svc"), 0))
	_, service := storagetest.Key(t, store, x.Operator.In(owner.Home), access.EventsWrite) // of the service account
	x.Directory.Used(must[access.Principal](t)(x.Directory.PrincipalByKey(ctx, service.Digest())), access.KeyUse{Allowed: 3, RateLimited: 2, Forbidden: 1})
	if err := x.Directory.KeepUses(ctx, true); err != nil {
		t.Fatal(err)
	}
	limit := int64(10)
	sub, _ := storagetest.Subscription(t, store, owner, "https://example.com/all")
	must[webhook.Subscription](t)(store.Subscriptions.UpdateSubscription(ctx, owner.Actor("", ""), owner.Home.RowID, sub.ID,
		webhook.SubscriptionChange{
			RateLimitPerSecond: new(&limit), Description: new("All of it"),
			Headers: &[]webhook.Header{{Name: "Authorization", Value: redact.New("Bearer golden-token")}},
		}))
	orders, _ := storagetest.Subscription(t, store, owner, "https://example.com/orders", "order.*", "user.created")
	if _, _, err := store.Subscriptions.RotateSecret(ctx, owner.Actor("", ""), owner.Home.RowID, orders.ID, webhook.Rotation{Overlap: time.Hour}); err != nil {
		t.Fatal(err)
	}
	must[[]webhook.Published](t)(store.Queue.PublishEvents(ctx, owner.Home.RowID, []webhook.NewEvent{
		{Type: "order.created", Data: []byte(`{"number":1001}`), IdempotencyKey: "order-1001", Digest: sha256.Sum256([]byte("1001"))},
		{Type: "user.created", Data: []byte(`{"name":"Zoë ☕"}`)},
		{Type: "order.paid", Data: []byte(`{}`)},
	}))
	jobs := must[[]webhook.Job](t)(store.Queue.PendingJobs(ctx, orders.RowID, 0, 100, nil))
	for i, job := range jobs[:len(jobs)-1] { // the last one stays pending
		at := must[webhook.Target](t)(store.Queue.Target(ctx, orders.RowID))
		ids := must[[]int64](t)(store.Queue.Begin(ctx, []webhook.Start{{
			Delivery: job.Delivery, Subscription: orders.RowID, Epoch: at.Epoch, Number: job.Number(), Trigger: job.Trigger(),
		}}))
		result := webhook.Result{
			Attempt: ids[0], Delivery: job.Delivery, Subscription: orders.RowID, Epoch: at.Epoch, Number: job.Number(), Trigger: job.Trigger(),
			Succeeded: i == 0, ResponseStatus: new(200), ResponseBody: "thanks", DurationMS: 12,
		}
		if !result.Succeeded {
			result.ResponseStatus, result.Failure, result.RetryAt = new(503), webhook.Failure{Class: webhook.HTTPStatus, Text: "503"}, time.Now().Add(time.Minute).UnixMilli()
		}
		must[[]webhook.Settled](t)(store.Queue.Record(ctx, result))
	}
	must[access.Session](t)(x.Directory.CreateSession(ctx, x.Operator, x.By, access.MintSession()))
	must[access.SignInLink](t)(x.Directory.CreatePortalLink(ctx, x.By, owner.Home.ID, access.NewPortalLink{
		Credential: access.Mint(access.LinkPrefix), Role: access.RoleMember, Life: time.Hour, ReturnURL: new("https://shop.example/settings"),
	}))
	must[access.Put[webhook.EventType]](t)(store.Catalogue.PutEventType(ctx, x.By, "order.paid", webhook.EventTypeChange{
		Description: new("An order was paid"), Group: new("Orders"), Example: new([]byte(`{"number":1001}`)),
	}))
	if err := x.Queue.HoldQueue(ctx, x.By, "to look first"); err != nil {
		t.Fatal(err)
	}
}

// content reads everything that the store shows of a file.
func content(t *testing.T, store *storage.Store) map[string]any {
	t.Helper()
	ctx := t.Context()
	const all = 1000
	read := map[string]any{
		"plans":         must[[]access.Plan](t)(store.Directory.Plans(ctx, 0, all)),
		"permissions":   must[[]access.Permission](t)(store.Directory.Permissions(ctx, 0, all)),
		"roles":         must[[]access.Role](t)(store.Directory.Roles(ctx, 0, all)),
		"organizations": must[access.Page[access.Organization]](t)(store.Directory.OrganizationPage(ctx, "", 0, all)).Rows,
		"applied":       must[[]access.Applied](t)(store.History.Applied(ctx, 0, all)),
		"event type":    must[webhook.EventType](t)(store.Catalogue.CataloguedType(ctx, "order.paid")),
		"queue":         must[webhook.Queue](t)(store.Survey.QueueSummary(ctx)),
		"backlog":       must[webhook.Backlog](t)(store.Survey.Backlog(ctx)),
	}
	for _, r := range read["roles"].([]access.Role) {
		read["permissions of "+r.Name] = r.Permissions.String() // the JSON of a scope is empty
	}
	users := []access.User{}
	for _, u := range must[access.Page[access.ListedUser]](t)(store.Directory.UserPage(ctx, "", 0, all)).Rows {
		users = append(users, u.User)
		read["tokens of "+u.ID] = must[[]access.AccessToken](t)(store.Directory.Tokens(ctx, u.ID, 0, all))
	}
	read["users"] = users
	for _, o := range read["organizations"].([]access.Organization) {
		read["members of "+o.ID] = must[[]access.Member](t)(store.Directory.Members(ctx, o.ID, 0, all))
		keys := must[access.Page[access.Key]](t)(store.Directory.KeyPage(ctx, o.RowID, access.KeyFilter{Limit: all})).Rows
		for _, k := range keys {
			read["scope of "+k.ID] = k.Scope.String()
		}
		read["keys of "+o.ID] = keys
		usage := access.UsageFilter{Until: math.MaxInt32, Limit: all}
		read["usage of keys of "+o.ID] = must[access.UsagePage](t)(store.KeyUsage(ctx, o.RowID, usage))
		read["usage of "+o.ID] = must[access.UsagePage](t)(store.OrganizationUsage(ctx, o.RowID, usage))
		read["log of "+o.ID] = must[[]access.AuditEvent](t)(store.AuditEvents(ctx, o.RowID, access.AuditFilter{Limit: all}))
		read["series of "+o.ID] = must[[]webhook.MinuteCounts](t)(store.History.Series(ctx, o.RowID, "", 0, math.MaxInt32, 1))
		events := must[[]webhook.Event](t)(store.Events(ctx, o.RowID, 0, all))
		read["events of "+o.ID] = events
		for _, e := range events {
			_, deliveries, err := store.History.Event(ctx, o.RowID, e.ID)
			if err != nil {
				t.Fatal(err)
			}
			read["deliveries of "+e.ID] = deliveries
		}
		subs := must[[]webhook.Subscription](t)(store.SubscriptionList(ctx, o.RowID, "", 0, all))
		read["subscriptions of "+o.ID] = subs
		for _, sub := range subs {
			at := must[webhook.Target](t)(store.Queue.Target(ctx, sub.RowID))
			read["target of "+sub.ID] = at
			for name, secret := range map[string]string{
				"secret of ": at.Secret.Reveal(), "previous secret of ": at.Previous.Reveal(), "header of ": headerValue(at),
			} {
				digest := sha256.Sum256([]byte(secret))
				read[name+sub.ID] = hex.EncodeToString(digest[:])
			}
			read["attempts of "+sub.ID] = must[[]webhook.Attempt](t)(store.Attempts(ctx, o.RowID, sub.ID, webhook.AttemptFilter{Limit: all}))
		}
	}
	text, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	plain := map[string]any{}
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// contentOf opens a file and reads it.
func contentOf(t *testing.T, o storage.Options) map[string]any {
	t.Helper()
	o.Bootstrap = access.Credential{} // it would create a token, because there was no authenticated request
	store, stop := storagetest.OpenWith(t, o)
	defer stop()
	return content(t, store)
}

// TestGolden opens the file of each version.
func TestGolden(t *testing.T) {
	t.Parallel()
	if *update {
		makeGolden(t)
	}
	if missing := storage.Missing(); len(missing) > 0 {
		t.Errorf("no step leads to schema %v", missing)
	}
	for version := int64(1); version <= storage.Version; version++ {
		t.Run(fmt.Sprintf("a file of schema %d reads as it did", version), func(t *testing.T) {
			t.Parallel()
			_, name := goldenFile(version)
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatalf("%v; write it with -update", err)
			}
			then := map[string]any{}
			if err := json.Unmarshal(text, &then); err != nil {
				t.Fatal(err)
			}
			store, err := storage.Open(t.Context(), golden(t, version))
			if err != nil {
				t.Fatalf(notTheSteps, err, version)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(any(then), storagetest.StillThere(then, contentOf(t, golden(t, version)))); d != "" {
				t.Errorf("(-then +now):\n%s", d)
			}
		})
	}
}

// makeGolden writes the golden file of the current schema, unless it is there.
func makeGolden(t *testing.T) {
	t.Helper()
	database, contents := goldenFile(storage.Version)
	if _, err := os.Stat(database); err == nil {
		return
	}
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.EncryptionKey = goldenKey
	store, stop := storagetest.OpenWith(t, o)
	fill(t, store)
	for table, n := range must[map[string]int64](t)(store.Rows(t.Context())) {
		if n == 0 {
			t.Errorf("no rows in %s: have fill make one", table)
		}
	}
	stop()
	file, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if _, err := w.Write(file); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(contentOf(t, o), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{database: packed.Bytes(), contents: append(text, '\n')} {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
