package storage_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// published appends to the order of a crowd for each event that is announced.
type published struct{ c *crowd }

func (published) TakePlace(int64, int64) bool { return false }
func (published) ReturnPlace(int64, int64)    {}
func (p published) DeliveriesCreated(jobs []webhook.Job) {
	var event int64
	for _, j := range jobs {
		if j.Event != event {
			event, p.c.order = j.Event, append(p.c.order, "costly")
		}
	}
}
func (published) BodiesChanged([]int64)         {}
func (published) SubscriptionsChanged(...int64) {}

// TestAPayerPaysForWhatItWrites has an organization whose jobs cost far more than they said, and another whose jobs are
// cheap. All wait at once.
func TestAPayerPaysForWhatItWrites(t *testing.T) {
	t.Parallel()
	const costly, cheap = 60, 60
	// check expects the cheap jobs to end while most of the costly ones wait.
	check := func(t *testing.T, order []string) {
		t.Helper()
		if n := count(order, "costly"); n != costly {
			t.Fatalf("%d costly jobs have run", n)
		}
		slices.Reverse(order)
		last := slices.Index(order, "cheap")
		if waiting := count(order[:last], "costly"); waiting < costly/2 {
			t.Errorf("%d of %d costly jobs ran before the last cheap one", costly-waiting, costly)
		}
	}

	t.Run("where a job writes more than it said", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for range costly {
				c.do(func() error {
					return c.WriteFor(context.Background(), 7, 100, false, func(t *storage.Tx) error {
						t.OnCommit(func() { c.order = append(c.order, "costly") })
						t.Delay(2500, func() error { return nil })
						return nil
					})
				})
			}
			for range cheap {
				c.ask("cheap", 8, 128, false)
			}
			check(t, c.let())
		})
	})

	t.Run("and its other jobs do not overtake those of others meanwhile", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for range costly {
				c.do(func() error {
					return c.WriteFor(context.Background(), 7, 8, false, func(t *storage.Tx) error {
						t.OnCommit(func() { c.order = append(c.order, "costly") })
						t.Delay(9500, func() error { return nil })
						return nil
					})
				})
			}
			for range cheap {
				c.ask("cheap", 8, 128, false)
			}
			order := c.let()
			if n := count(order[:costly], "costly"); n > 2 {
				t.Errorf("%d costly jobs ran before the cheap ones", n)
			}
		})
	})

	t.Run("where only the writer knows how many deliveries an event makes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{t: t, Store: storagetest.Open(t), release: make(chan struct{}), commits: &commitSizes{}}
			owner, _ := storagetest.Organization(t, c.Store, "acme", "enterprise", access.RoleOwner)
			for range 400 {
				storagetest.Subscription(t, c.Store, owner, "https://example.com/", "a")
			}
			c.Queue.Watch(published{c})
			c.hold()
			for range costly {
				c.do(func() error { storagetest.Publish(t, c.Store, owner, "a"); return nil })
			}
			for range cheap {
				c.ask("cheap", owner.Organization.RowID+1, 128, false)
			}
			check(t, c.let())
		})
	})
}

// A key may be created, and a subscription changed, with an audit event that many subscriptions want. The other organizations do not wait
// until the writer has found that out.
func TestAuditEventsHaveAPrice(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(c *crowd, by access.Principal, sub webhook.Subscription) error{
		"a new key": func(c *crowd, by access.Principal, _ webhook.Subscription) error {
			_, err := c.Directory.CreateKey(context.Background(), by, by.Actor("", ""), access.NewKey{
				Credential: access.Mint("svc"), Name: "k", Scope: access.NewScope("events:read"),
			})
			return err
		},
		"a changed subscription": func(c *crowd, by access.Principal, sub webhook.Subscription) error {
			_, err := c.Subscriptions.UpdateSubscription(context.Background(), by.Actor("", ""), by.Organization.RowID, sub.ID, webhook.SubscriptionChange{Description: new("x")})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &crowd{t: t, Store: storagetest.Open(t), release: make(chan struct{}), commits: &commitSizes{}}
				owner, _ := storagetest.Organization(t, c.Store, "acme", "enterprise", access.RoleOwner)
				var sub webhook.Subscription
				for range 400 {
					var err error
					if sub, _, err = c.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID, webhook.SubscriptionChange{
						URL: new("https://example.com/"), EventTypes: &webhook.Types{access.KeyCreated, access.SubscriptionUpdated}, AuditEvents: new(true),
					}); err != nil {
						t.Fatal(err)
					}
				}
				c.Queue.Watch(published{c})
				c.hold()
				for range 20 {
					c.do(func() error { return do(c, owner, sub) })
				}
				c.ask("cheap", owner.Organization.RowID+1, 8, false)
				if before := slices.Index(c.let(), "cheap"); before > 1 {
					t.Errorf("%d writes with 400 deliveries each ran before a cheap one", before)
				}
			})
		})
	}
}
