// Package storagetest provides stores for the tests of all packages: a real file with organizations in it. It does not
// know what is tested. Only tests import it.
package storagetest

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
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
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "schema.sql"))
	if err != nil {
		tb.Fatalf("read schema: %v", err)
	}
	return string(text)
}

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

// OpenWith opens and runs a store. stop ends and closes it, and may be called more than once. The end of the test calls
// it too.
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

// Organization makes an organization on the given plan with one member of the given role. It returns that member with an
// access token.
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

// Subscription makes a subscription of the principal's organization to the given types. Without types it gets every
// type.
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
