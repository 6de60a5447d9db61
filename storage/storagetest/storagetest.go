// Package storagetest provides stores for the tests of all packages: a real file with organizations in it. It does not
// know what is tested. Only tests import it.
package storagetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// OperatorToken is the first operator's access token in every store that Open makes.
const OperatorToken = "operator-token-of-the-tests"

// Schema returns the text of schema.sql.
func Schema(tb testing.TB) string {
	tb.Helper()
	if schema == nil {
		tb.Fatal("schema.sql is not above the directory in which the test began")
	}
	return string(schema)
}

// schema is read before a test leaves the directory of its package.
var schema = func() []byte {
	for up := range 6 {
		if text, err := os.ReadFile(strings.Repeat("../", up) + "schema.sql"); err == nil {
			return text
		}
	}
	return nil
}()

// Options returns the options that Open uses, for tests that change some of them.
func Options(tb testing.TB, path string) storage.Options {
	tb.Helper()
	token, _ := access.Opaque(OperatorToken)
	return storage.Options{
		Path: path, Schema: Schema(tb), Bootstrap: token,
		// Most tests need no durability. Other tests cover the loss of power.
		Synchronous: storage.Normal,
		Logger:      slog.New(refusals{slog.DiscardHandler, tb}),
	}
}

// FrailOptions is Options with a policy of one attempt, and without failing subscriptions.
func FrailOptions(tb testing.TB, path string) storage.Options {
	tb.Helper()
	o := Options(tb, path)
	o.Policy = webhook.Policy{MaxAttempts: 1, FailingAfter: 1000, DisabledAfter: 2000}
	return o
}

// refusals is the log of a store. It fails the test if a write was refused after it had changed something.
type refusals struct {
	slog.Handler
	tb testing.TB
}

func (refusals) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (r refusals) Handle(_ context.Context, record slog.Record) error {
	if record.Message == sqlite.LateRefusal {
		record.Attrs(func(a slog.Attr) bool {
			r.tb.Errorf("%s: %s", record.Message, a.Value)
			return true
		})
	}
	return nil
}

// Open makes a store on a new file and runs it until the test ends. In a synctest bubble the store runs inside it.
func Open(tb testing.TB) *storage.Store {
	tb.Helper()
	store, _ := OpenWith(tb, Options(tb, filepath.Join(tb.TempDir(), "keyhook.db")))
	return store
}

// OpenWith opens and runs a store. stop ends and closes it, and may be called more than once. The end of the test calls it too.
func OpenWith(tb testing.TB, o storage.Options) (store *storage.Store, stop func()) {
	tb.Helper()
	store, err := storage.Open(context.Background(), o)
	if err != nil {
		tb.Fatalf("open store: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := store.Run(ctx); err != nil {
			tb.Errorf("run store: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := store.Close(); err != nil {
			tb.Errorf("close store: %v", err)
		}
	})
	tb.Cleanup(stop)
	return store, stop
}

// Operator returns the first operator, of the organization Default.
func Operator(tb testing.TB, store *storage.Store) access.Principal {
	tb.Helper()
	token, _ := access.Opaque(OperatorToken)
	return Must[access.Principal](tb)(store.Directory.PrincipalByToken(tb.Context(), token.Digest()))
}

// Organization makes an organization on the given plan with one member of the given role. It returns that member with an access token.
func Organization(tb testing.TB, store *storage.Store, name, plan, role string) (access.Principal, access.Credential) {
	tb.Helper()
	by := Operator(tb, store).Actor("127.0.0.1", "test")
	org := Must[access.Organization](tb)(store.Directory.CreateOrganization(tb.Context(), by, access.Organization{Name: name, Plan: plan}))
	return Member(tb, store, org, name+"-"+role, role)
}

// Member adds a user to an organization and returns it with an access token.
func Member(tb testing.TB, store *storage.Store, org access.Organization, name, role string) (access.Principal, access.Credential) {
	tb.Helper()
	by := Operator(tb, store).Actor("127.0.0.1", "test")
	added := access.User{Email: name + "@example.com", Name: name, IsActive: true}
	user := Must[access.User](tb)(store.Directory.CreateUser(tb.Context(), by, added))
	Must[access.Member](tb)(store.Directory.SetMember(tb.Context(), by, org.ID, user.ID, role))
	token := access.Mint(access.TokenPrefix)
	Must[access.AccessToken](tb)(store.Directory.CreateToken(tb.Context(), by, user.ID, org.ID, token, "test", nil))
	return Must[access.Principal](tb)(store.Directory.PrincipalByToken(tb.Context(), token.Digest())), token
}

// Key makes an API key of the principal with the given scope.
func Key(tb testing.TB, store *storage.Store, p access.Principal, permissions ...string) (access.Key, access.Credential) {
	tb.Helper()
	credential := access.Mint("svc")
	wanted := access.NewKey{Credential: credential, Name: "test", Scope: access.NewScope(permissions...)}
	return Must[access.Key](tb)(store.Directory.CreateKey(tb.Context(), p, p.Actor("127.0.0.1", "test"), wanted)), credential
}

// Subscription makes a subscription of the principal's organization to the given types. Without types it gets every type.
func Subscription(tb testing.TB, store *storage.Store, p access.Principal, url string, types ...string) (webhook.Subscription, webhook.Secret) {
	tb.Helper()
	wanted := webhook.Types(types)
	sub, secret, err := store.Subscriptions.CreateSubscription(tb.Context(), p.Actor("127.0.0.1", "test"), p.Organization.RowID,
		webhook.SubscriptionChange{URL: &url, EventTypes: &wanted})
	if err != nil {
		tb.Fatalf("create subscription: %v", err)
	}
	return sub, secret
}

// Publish publishes an event of the principal's organization.
func Publish(tb testing.TB, store *storage.Store, p access.Principal, eventType string) webhook.Published {
	tb.Helper()
	event := webhook.NewEvent{Type: eventType, Data: []byte(`{"n":1}`)}
	return Must[[]webhook.Published](tb)(store.Queue.PublishEvents(tb.Context(), p.Organization.RowID, []webhook.NewEvent{event}))[0]
}

// Exec changes the file of an open store behind its back, in another connection: to make writes fail, or to change times.
func Exec(tb testing.TB, store *storage.Store, statement string, args ...any) {
	tb.Helper()
	Alter(tb, store.Path(), statement, args...)
}

// Alter runs a statement on a file, like an operator with another tool.
func Alter(tb testing.TB, path, statement string, args ...any) {
	tb.Helper()
	withFile(tb, path, patient, func(db *sql.DB) error {
		_, err := db.Exec(statement, args...)
		return err
	})
}

// Query reads one value from a file, like an operator with another tool.
func Query(tb testing.TB, path string, value any, statement string) {
	tb.Helper()
	withFile(tb, path, patient, func(db *sql.DB) error { return db.QueryRow(statement).Scan(value) })
}

// patient waits for the store, which has the file open too.
const patient = "_pragma=busy_timeout(10000)"

func withFile(tb testing.TB, path, query string, run func(*sql.DB) error) {
	tb.Helper()
	uri := url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: query}
	db, err := sql.Open("sqlite", uri.String())
	if err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(run(db), db.Close()); err != nil {
		tb.Fatal(err)
	}
}

// ExpectFault expects a fault of that kind and code, about those fields and no others.
func ExpectFault(tb testing.TB, err error, kind fault.Kind, code string, fields ...string) {
	tb.Helper()
	f, ok := fault.As(err)
	if !ok {
		tb.Fatalf("the error is %v, want %s", err, code)
	}
	got := []string{}
	for _, field := range f.Fields {
		got = append(got, field.Field+" "+field.Code)
	}
	if f.Kind != kind || f.Code != code || f.Message == "" {
		tb.Errorf("the fault is %d %s %q, want %d %s", f.Kind, f.Code, f.Message, kind, code)
	}
	if d := cmp.Diff(append([]string{}, fields...), got); d != "" {
		tb.Errorf("fields (-want +got):\n%s", d)
	}
}

// Platform is a store with its operator.
type Platform struct {
	*storage.Store
	Operator access.Principal
	By       access.Actor // the operator, at an address and in a request
}

// PlatformOf returns an open store with its operator.
func PlatformOf(tb testing.TB, store *storage.Store) Platform {
	tb.Helper()
	operator := Operator(tb, store)
	return Platform{store, operator, operator.Actor("192.0.2.1", "req")}
}

// NewPlatform is PlatformOf a new store, which runs until the test ends.
func NewPlatform(tb testing.TB) Platform {
	tb.Helper()
	return PlatformOf(tb, Open(tb))
}

// Create asks for a key in the name of by.
func (x Platform) Create(tb testing.TB, by access.Principal, permissions ...string) (access.Key, error) {
	tb.Helper()
	return x.Directory.CreateKey(tb.Context(), by, by.Actor("192.0.2.1", "req"), access.NewKey{
		Credential: access.Mint("svc"), Name: "ci", Scope: access.NewScope(permissions...),
	})
}

// Subscribe asks for a subscription in the name of by.
func (x Platform) Subscribe(tb testing.TB, by access.Principal) (webhook.Subscription, error) {
	tb.Helper()
	sub, _, err := x.Subscriptions.CreateSubscription(tb.Context(), by.Actor("", ""), by.Organization.RowID,
		webhook.SubscriptionChange{URL: new("https://example.com/"), EventTypes: &webhook.Types{"a"}})
	return sub, err
}

// Must returns a function that takes the results of a call: it returns the value, and ends the test if there is an error.
func Must[T any](tb testing.TB) func(T, error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// Refuse makes every write of a store fail that matches, such as "INSERT ON deliveries" when "NEW.id > 1", until allow is called.
func Refuse(tb testing.TB, store *storage.Store, statement, when string) (allow func()) {
	tb.Helper()
	Exec(tb, store, "CREATE TRIGGER refusal BEFORE "+statement+" WHEN "+when+" BEGIN SELECT RAISE(ABORT, 'refused by the test'); END")
	return func() {
		tb.Helper()
		Exec(tb, store, "DROP TRIGGER refusal")
	}
}

// Frozen reads a golden file, which must have that SHA-256: the file of a released schema is never written again.
func Frozen(tb testing.TB, name, digest string) []byte {
	tb.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		tb.Fatalf("%v; write it with -update", err)
	}
	sum := sha256.Sum256(text)
	if found := hex.EncodeToString(sum[:]); found != digest {
		tb.Errorf("the SHA-256 of %s is %s, and the list has %q. If a version with this schema was released, take the file back from git, "+
			"because it never changes. Otherwise put the digest into the list.", name, found, digest)
	}
	return text
}

// StillThere returns what now has of then. It leaves out what later versions have added to the records of then.
func StillThere(then, now any) any {
	switch then := then.(type) {
	case map[string]any:
		now, _ := now.(map[string]any)
		kept := map[string]any{}
		for name, was := range then {
			if is, found := now[name]; found {
				kept[name] = StillThere(was, is)
			}
		}
		return kept
	case []any:
		now, _ := now.([]any)
		kept := make([]any, 0, len(now))
		for i, is := range now {
			if i < len(then) {
				is = StillThere(then[i], is)
			}
			kept = append(kept, is)
		}
		return kept
	}
	return now
}
