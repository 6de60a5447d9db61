package subscription_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// setHeaders replaces the headers of a subscription.
func setHeaders(t *testing.T, store *storage.Store, p access.Principal, id string, headers ...webhook.Header) webhook.Subscription {
	t.Helper()
	return storagetest.Must[webhook.Subscription](t)(store.Subscriptions.UpdateSubscription(t.Context(), p.Actor("", ""), p.Organization.RowID, id,
		webhook.SubscriptionChange{Headers: &headers}))
}

// sent returns the headers of a subscription as "name: value".
func sent(t *testing.T, store *storage.Store, row int64) []string {
	t.Helper()
	lines := []string{}
	for _, h := range storagetest.Must[webhook.Target](t)(store.Queue.Target(t.Context(), row)).Headers {
		lines = append(lines, h.Name+": "+h.Value.Reveal())
	}
	return lines
}

func header(name, value string) webhook.Header {
	return webhook.Header{Name: name, Value: redact.New(value)}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	url := "https://example.com/"
	sub, _, err := store.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, webhook.SubscriptionChange{
		URL: &url, Headers: &[]webhook.Header{header("Authorization", "Bearer one"), header("x-tenant", "seven")},
	})
	if err != nil {
		t.Fatal(err)
	}
	requireNames := func(t *testing.T, sub webhook.Subscription, names ...string) {
		t.Helper()
		read := storagetest.Must[webhook.Subscription](t)(store.History.Subscription(t.Context(), owner.Home.RowID, sub.ID))
		want := append(webhook.HeaderNames{}, names...)
		if d := cmp.Diff(want, sub.HeaderNames) + cmp.Diff(want, read.HeaderNames); d != "" {
			t.Errorf("names (-want +returned, then -want +read):\n%s", d)
		}
	}
	requireSent := func(t *testing.T, want ...string) {
		t.Helper()
		if d := cmp.Diff(append([]string{}, want...), sent(t, store, sub.RowID)); d != "" {
			t.Errorf("sent (-want +got):\n%s", d)
		}
	}
	requireNames(t, sub, "Authorization", "x-tenant")
	requireSent(t, "Authorization: Bearer one", "x-tenant: seven")
	audit := func() string {
		return string(storagetest.Must[access.Page[access.AuditEvent]](t)(store.History.AuditPage(t.Context(), owner.Home.RowID, access.AuditFilter{Limit: 1})).Rows[0].Details)
	}
	if log := audit(); !strings.Contains(log, `"headers":["Authorization","x-tenant"]`) || strings.Contains(log, "seven") {
		t.Errorf("the log has %s", log)
	}

	t.Run("without a value keep the stored one, and the others are replaced", func(t *testing.T) {
		before := storagetest.Must[webhook.Target](t)(store.Queue.Target(t.Context(), sub.RowID)).Epoch
		changed := setHeaders(t, store, owner, sub.ID, header("AUTHORIZATION", ""), header("X-New", "new"))
		requireNames(t, changed, "AUTHORIZATION", "X-New")
		requireSent(t, "AUTHORIZATION: Bearer one", "X-New: new")
		if changed.Epoch <= before {
			t.Error("attempts with the old headers still count for its health")
		}
	})
	t.Run("stay if a change does not name them", func(t *testing.T) {
		changed := storagetest.Must[webhook.Subscription](t)(store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, sub.ID,
			webhook.SubscriptionChange{Description: new("x")}))
		requireNames(t, changed, "AUTHORIZATION", "X-New")
		requireSent(t, "AUTHORIZATION: Bearer one", "X-New: new")
	})
	t.Run("are not sent to another host without their values", func(t *testing.T) {
		change := func(url string, headers ...webhook.Header) error {
			c := webhook.SubscriptionChange{URL: &url}
			if headers != nil {
				c.Headers = &headers
			}
			_, err := store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, sub.ID, c)
			return err
		}
		before := sent(t, store, sub.RowID)
		for _, foreign := range []string{"https://attacker.example/", "https://example.com:8443/", "http://example.com/", "https://example.com.attacker.example/"} {
			storagetest.ExpectFault(t, change(foreign), fault.Invalid, "validation_failed", "headers.AUTHORIZATION missing", "headers.X-New missing")
			storagetest.ExpectFault(t, change(foreign, header("X-New", ""), header("Authorization", "Bearer two")), fault.Invalid, "validation_failed", "headers.X-New missing")
		}
		requireSent(t, before...)
		epoch := storagetest.Must[webhook.Target](t)(store.Queue.Target(t.Context(), sub.RowID)).Epoch
		if err := change("https://example.com/path"); err != nil {
			t.Errorf("the same host: %v", err)
		}
		if after := storagetest.Must[webhook.Target](t)(store.Queue.Target(t.Context(), sub.RowID)).Epoch; after <= epoch {
			t.Error("attempts at the old URL still count for its health")
		}
		requireSent(t, before...)
		if err := change("https://other.example/", header("X-New", "newest")); err != nil {
			t.Errorf("with the values: %v", err)
		}
		requireSent(t, "X-New: newest")
		if err := change(url, header("AUTHORIZATION", "Bearer one"), header("X-New", "new")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("without a value and without a stored one are refused, and nothing changes", func(t *testing.T) {
		_, err := store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, sub.ID,
			webhook.SubscriptionChange{Headers: &[]webhook.Header{header("X-Other", ""), header("X-New", "newer")}})
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "headers.X-Other missing")
		requireSent(t, "AUTHORIZATION: Bearer one", "X-New: new")
		_, _, err = store.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID,
			webhook.SubscriptionChange{URL: &url, Headers: &[]webhook.Header{header("X-Other", "")}})
		storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "headers.X-Other missing")
	})
	t.Run("count for the daily limit of the plan", func(t *testing.T) {
		storagetest.Must[access.Plan](t)(store.Directory.UpdatePlan(t.Context(), storagetest.Operator(t, store).Actor("", ""), "growth",
			access.PlanChange{MaxStoredBytes: new(new(int64(30_000)))}))
		long := header("X-Long", strings.Repeat("x", 4096))
		var err error
		for range 10 {
			if _, err = store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, sub.ID,
				webhook.SubscriptionChange{Headers: &[]webhook.Header{long}}); err != nil {
				break
			}
		}
		storagetest.ExpectFault(t, err, fault.Limited, "storage_quota_exceeded")
	})
	t.Run("are all removed by an empty list", func(t *testing.T) {
		requireNames(t, setHeaders(t, store, owner, sub.ID))
		requireSent(t)
	})
}

// TestHeadersAreSealed searches the file and a backup for the value of a header, and moves sealed texts to other places.
func TestHeadersAreSealed(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	store, stop := storagetest.OpenWith(t, o)
	operator := storagetest.Operator(t, store)
	const canary = "canary-of-a-header"
	one, _ := storagetest.Subscription(t, store, operator, "https://example.com/1")
	other, _ := storagetest.Subscription(t, store, operator, "https://example.com/2")
	gone, _ := storagetest.Subscription(t, store, operator, "https://example.com/3")
	for _, sub := range []webhook.Subscription{one, gone} {
		setHeaders(t, store, operator, sub.ID, header("Authorization", canary))
	}
	setHeaders(t, store, operator, other.ID, header("Authorization", "another value"))
	if err := store.Subscriptions.DeleteSubscription(t.Context(), operator.Actor("", ""), 1, gone.ID); err != nil {
		t.Fatal(err)
	}
	stop()
	storagetest.Alter(t, o.Path, "VACUUM INTO '"+o.Path+".backup'")
	files, err := filepath.Glob(o.Path + "*")
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v: %v", files, err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(canary)) {
			t.Errorf("%s holds the value", filepath.Base(name))
		}
	}
	var left int
	storagetest.Query(t, o.Path, &left, "SELECT count(*) FROM subscription_headers")
	if left != 2 {
		t.Errorf("%d subscriptions have headers, want 2: a deleted one has none", left)
	}
	t.Run("are not taken for a signing secret", func(t *testing.T) {
		var secret []byte
		storagetest.Query(t, o.Path, &secret, "SELECT secret FROM subscriptions WHERE id = 1")
		storagetest.Alter(t, o.Path, "UPDATE subscriptions SET secret = (SELECT sealed FROM subscription_headers WHERE subscription_id = 1) WHERE id = 1")
		store, stop := storagetest.OpenWith(t, o)
		at := storagetest.Must[webhook.Target](t)(store.Queue.Target(t.Context(), one.RowID))
		stop()
		if at.Unusable == "" {
			t.Error("the headers are the secret")
		}
		storagetest.Alter(t, o.Path, "UPDATE subscriptions SET secret = x'"+hex.EncodeToString(secret)+"' WHERE id = 1")
	})
	for name, statement := range map[string]string{
		"of another subscription": "UPDATE subscription_headers SET sealed = (SELECT sealed FROM subscription_headers WHERE subscription_id = 2) WHERE subscription_id = 1",
		"made of a secret":        "UPDATE subscription_headers SET sealed = (SELECT secret FROM subscriptions WHERE id = 1) WHERE subscription_id = 1",
		"cut off":                 "UPDATE subscription_headers SET sealed = substr(sealed, 1, 40) WHERE subscription_id = 1",
		"with too many names":     "UPDATE subscription_headers SET names = 'A B' WHERE subscription_id = 1",
	} {
		t.Run("headers "+name+" are not sent, and can be set again", func(t *testing.T) {
			storagetest.Alter(t, o.Path, statement)
			store, stop := storagetest.OpenWith(t, o)
			defer stop()
			at := storagetest.Must[webhook.Target](t)(store.Queue.Target(t.Context(), one.RowID))
			if len(at.Headers) > 0 || !strings.Contains(at.Unusable, "headers") {
				t.Errorf("%d headers, unusable %q", len(at.Headers), at.Unusable)
			}
			_, err := store.Subscriptions.UpdateSubscription(t.Context(), operator.Actor("", ""), 1, one.ID,
				webhook.SubscriptionChange{Headers: &[]webhook.Header{header("Authorization", "")}})
			storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "headers.Authorization missing")
			setHeaders(t, store, operator, one.ID, header("Authorization", canary))
			if got := storagetest.Must[webhook.Target](t)(store.Queue.Target(t.Context(), one.RowID)); len(got.Headers) != 1 || got.Headers[0].Value.Reveal() != canary || got.Unusable != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestHeadersOfAnOrganizationAreBounded(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	large := make([]webhook.Header, 10) // as many and as long as one subscription may have
	for i := range large {
		large[i] = header("X-"+string(rune('a'+i)), strings.Repeat("x", 4096))
	}
	url, made, last := "https://example.com/", 0, ""
	for range 100 {
		sub, _, err := store.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, webhook.SubscriptionChange{URL: &url, Headers: &large})
		if err != nil {
			storagetest.ExpectFault(t, err, fault.Conflict, "limit_reached")
			break
		}
		made, last = made+1, sub.ID
	}
	if made < 70 || made > 80 { // 55 KB each, sealed
		t.Errorf("%d subscriptions have the longest headers", made)
	}
	setHeaders(t, store, owner, last, large...) // its own do not count twice
	if err := store.Subscriptions.DeleteSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, last); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, webhook.SubscriptionChange{URL: &url, Headers: &large}); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
	other, _ := storagetest.Organization(t, store, "other", "enterprise", access.RoleOwner)
	if _, _, err := store.Subscriptions.CreateSubscription(t.Context(), other.Actor("", ""), other.Home.RowID, webhook.SubscriptionChange{URL: &url, Headers: &large}); err != nil {
		t.Errorf("in another organization: %v", err)
	}
}
