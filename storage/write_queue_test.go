package storage_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// commitSizes is an observer that records how many jobs share each transaction.
type commitSizes struct {
	storage.Observer
	sizes []int
}

func (c *commitSizes) Committed(writes int, _ time.Duration) { c.sizes = append(c.sizes, writes) }

// crowd is a store whose writer waits until all jobs are in the queue.
type crowd struct {
	*storage.Store
	t       *testing.T
	release chan struct{}
	jobs    sync.WaitGroup
	order   []string // of the jobs; used by the writer only
	commits *commitSizes
}

// stalledStore opens a store and stalls its writer. Call it in a synctest bubble.
func stalledStore(t *testing.T) *crowd {
	t.Helper()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	c := &crowd{t: t, release: make(chan struct{}), commits: &commitSizes{}}
	o.Observer = c.commits
	c.Store, _ = storagetest.OpenWith(t, o)
	c.hold()
	return c
}

// hold makes the writer wait for let.
func (c *crowd) hold() {
	c.jobs.Go(func() {
		if err := c.Write(context.Background(), func(*storage.Tx) error { <-c.release; return nil }); err != nil {
			c.t.Error(err)
		}
	})
	synctest.Wait()
}

// ask queues a job.
func (c *crowd) ask(name string, organization int64, rows int, urgent bool) {
	c.do(func() error {
		return c.WriteFor(context.Background(), organization, rows, urgent, func(t *storage.Tx) error {
			t.OnCommit(func() { c.order = append(c.order, name) })
			return nil
		})
	})
}

// do makes a call that waits for the writer.
func (c *crowd) do(call func() error) {
	c.jobs.Go(func() {
		if err := call(); err != nil {
			c.t.Error(err)
		}
	})
	synctest.Wait()
}

// let runs all waiting jobs and returns their order.
func (c *crowd) let() []string {
	c.commits.sizes = nil
	close(c.release)
	c.jobs.Wait()
	return c.order
}

func TestWriterSharesItsTime(t *testing.T) {
	t.Parallel()
	t.Run("a revocation goes before an earlier flood", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for range 600 {
				c.ask("flood", 7, 8, false)
			}
			c.ask("revocation", 8, 8, true)
			if first := c.let()[0]; first != "revocation" {
				t.Errorf("the %s ran first", first)
			}
		})
	})
	t.Run("the flood of one organization does not delay the job of another behind all of it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for range 1000 {
				c.ask("flood", 7, 8, false)
			}
			c.ask("single", 8, 8, false)
			if place := slices.Index(c.let(), "single"); place > 256/8 {
				t.Errorf("it was number %d", place)
			}
		})
	})
	t.Run("organizations share the writer by the cost of jobs, not by their number", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for range 20 {
				c.ask("large", 7, 10_000, false)
			}
			for range 1000 {
				c.ask("small", 8, 10, false)
			}
			order := c.let()
			last := len(order) - 1
			for order[last] != "small" {
				last--
			}
			if large := count(order[:last], "large"); large > 2 {
				t.Errorf("%d of the large jobs ran before the last small one, which cost as much as one of them together", large)
			}
		})
	})
	t.Run("an organization does not pay for a job that did not fit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for range 1000 {
				c.ask("small", 7, 8, false)
			}
			c.ask("large", 8, 4000, false)
			if place := slices.Index(c.let(), "large"); place > 256/8 {
				t.Errorf("it was number %d", place)
			}
		})
	})
	t.Run("jobs of an organization run in order", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			var want []string
			for i := range 300 {
				want = append(want, strconv.Itoa(i))
				c.ask(strconv.Itoa(i), 7, 1+i%7*1000, false)
			}
			if got := c.let(); !slices.Equal(got, want) {
				t.Errorf("order %v", got)
			}
		})
	})
	t.Run("Keyhook's own work gets as much as all organizations together", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for organization := range int64(50) {
				for range 20 {
					c.ask("customer", 7+organization, 128, false)
				}
			}
			for range 500 {
				c.ask("own", 0, 128, false)
			}
			order := c.let()
			if own := count(order[:600], "own"); own < 250 {
				t.Errorf("of the first 600 jobs %d were Keyhook's own", own)
			}
		})
	})
}

func TestFloodOfRevocations(t *testing.T) {
	t.Parallel()

	t.Run("a flood of revocations does not stop other jobs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			c.ask("large", 7, 10_000, false)
			c.ask("publish", 8, 8, false)
			for range 2000 {
				c.ask("revocation", 9, 8, true)
			}
			order := c.let()
			if publish, large := slices.Index(order, "publish"), slices.Index(order, "large"); publish > 600 || large > 600 {
				t.Errorf("the publish was number %d, the large job %d", publish, large)
			}
		})
	})
	t.Run("revocations that write more than expected do not stop other jobs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			c.ask("publish", 8, 8, false)
			for i := range 40 {
				name := "revocation" + strconv.Itoa(i)
				c.do(func() error {
					return c.WriteFor(context.Background(), 9, 8, true, func(t *storage.Tx) error {
						t.OnCommit(func() { c.order = append(c.order, name) })
						return writeRows(t, name, 2500)
					})
				})
			}
			order := c.let()
			if place := slices.Index(order, "publish"); place > 4 {
				t.Errorf("the publish was number %d", place)
			}
			revocations := slices.DeleteFunc(order, func(name string) bool { return name == "publish" })
			for i, name := range revocations {
				if name != "revocation"+strconv.Itoa(i) {
					t.Fatalf("revocations of one organization ran in the order %v", revocations)
				}
			}
		})
	})
}

func TestWriterTransactions(t *testing.T) {
	t.Parallel()

	t.Run("a large job has a transaction to itself", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			c.ask("small", 7, 8, false)
			c.ask("large", 8, 10_000, false)
			c.ask("small", 9, 8, false)
			c.let()
			if sizes := c.commits.sizes; !slices.Contains(sizes[1:], 1) || slices.Max(sizes) > 2 {
				t.Errorf("jobs in the transactions: %v", sizes)
			}
		})
	})
	t.Run("a transaction ends when its jobs have written more than expected", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			for i := range 3 {
				c.do(func() error {
					return c.WriteFor(context.Background(), 7, 1, false, func(t *storage.Tx) error {
						return writeRows(t, "row"+strconv.Itoa(i), 5000)
					})
				})
			}
			c.let()
			if sizes := c.commits.sizes; slices.Max(sizes) != 1 {
				t.Errorf("jobs in the transactions: %v", sizes)
			}
		})
	})
	t.Run("a job without a caller is not run", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := stalledStore(t)
			ctx, cancel := context.WithCancel(t.Context())
			var gone error
			c.jobs.Go(func() {
				gone = c.WriteFor(ctx, 7, 8, false, func(*storage.Tx) error { t.Error("it was done"); return nil })
			})
			synctest.Wait()
			cancel()
			synctest.Wait()
			c.ask("other", 7, 8, false)
			if order := c.let(); !errors.Is(gone, context.Canceled) || len(order) != 1 {
				t.Errorf("error %v, done %v", gone, order)
			}
		})
	})
}

// writeRows writes n rows with unique names.
func writeRows(t *storage.Tx, name string, n int) error {
	return t.Run(`
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO instance (name, value) SELECT ? || '.' || i, x'00' FROM n`, n, name)
}

func count(order []string, name string) (n int) {
	for _, o := range order {
		if o == name {
			n++
		}
	}
	return n
}

// Row ids of events show the order of the calls, because each change publishes its audit event.
func TestRightsAreWithdrawnFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, release: make(chan struct{}), commits: &commitSizes{}}
		c.Store = storagetest.Open(t)
		neighbour, _ := storagetest.Organization(t, c.Store, "neighbour", "growth", access.RoleOwner)
		victim, _ := storagetest.Organization(t, c.Store, "victim", "growth", access.RoleOwner)
		key, _ := storagetest.Key(t, c.Store, victim, access.EventsRead)
		storagetest.Subscription(t, c.Store, neighbour, "https://example.com/", "a")
		c.hold()
		for range 300 {
			c.do(func() error { storagetest.Publish(t, c.Store, neighbour, "a"); return nil })
		}
		c.do(func() error { storagetest.Publish(t, c.Store, victim, "a"); return nil })
		c.do(func() error {
			return c.Directory.RevokeKey(t.Context(), victim.Actor("", ""), victim.Organization.RowID, key.ID)
		})
		c.let()
		mine, err := c.Events(t.Context(), victim.Organization.RowID, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		flood, err := c.Events(t.Context(), neighbour.Organization.RowID, 0, 300)
		if err != nil {
			t.Fatal(err)
		}
		published, revoked := mine[0], mine[1]
		if first := flood[len(flood)-1].RowID; revoked.Type != access.KeyRevoked || revoked.RowID > first {
			t.Errorf("%s is event %d, the flood began with %d", revoked.Type, revoked.RowID, first)
		}
		if later := flood[0].RowID - published.RowID; later < 100 {
			t.Errorf("only %d events of the flood came after the victim's", later)
		}
	})
}

// TestLockedFile unlocks the file as soon as one job is answered. If the others were retried, they would succeed.
func TestLockedFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, Store: storagetest.Open(t)}
		other := sqlx.MustOpen("sqlite", c.Path())
		defer other.Close()
		other.SetMaxOpenConns(1)
		all := make(chan struct{})
		c.do(func() error {
			return c.Write(t.Context(), func(t *storage.Tx) error {
				<-all
				t.OnCommit(func() { other.MustExec("BEGIN IMMEDIATE") })
				return t.Run("PRAGMA busy_timeout = 20")
			})
		})
		errs := make([]error, 256)
		let := sync.OnceFunc(func() { other.MustExec("ROLLBACK") })
		for i := range errs {
			c.jobs.Go(func() {
				errs[i] = c.WriteFor(t.Context(), int64(i), 1, false, note(strconv.Itoa(i)))
				let()
			})
		}
		synctest.Wait()
		close(all)
		c.jobs.Wait()
		for i, err := range errs {
			if fault.KindOf(err) != fault.Unavailable {
				t.Fatalf("job %d: error %v", i, err)
			}
		}
		if err := c.Write(t.Context(), note("after")); err != nil {
			t.Errorf("once the file is free: %v", err)
		}
	})
}

// TestReadyWhileWritesAreBlocked has a transaction that does not end, like a disk that hangs.
func TestReadyWhileWritesAreBlocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := stalledStore(t)
		time.Sleep(time.Minute)
		if warning, err := c.Ready(t.Context()); err != nil || warning != "" || c.Degraded()["blocked"] {
			t.Errorf("after a minute: %q, %v, reasons %v", warning, err, c.Degraded())
		}
		time.Sleep(time.Minute + time.Second)
		if _, err := c.Ready(t.Context()); err == nil || !c.Degraded()["blocked"] {
			t.Errorf("nobody can write: error %v, reasons %v", err, c.Degraded())
		}
		c.let()
		if warning, err := c.Ready(t.Context()); err != nil || warning != "" || c.Degraded()["blocked"] {
			t.Errorf("once writes go on: %q, %v, reasons %v", warning, err, c.Degraded())
		}
		time.Sleep(10 * time.Minute)
		if _, err := c.Ready(t.Context()); err != nil {
			t.Errorf("while nobody writes: %v", err)
		}
	})
}

// note is a job that succeeds only once.
func note(name string) func(*storage.Tx) error {
	return func(t *storage.Tx) error { return t.Run("INSERT INTO instance (name, value) VALUES (?, x'00')", name) }
}

// TestOnlyAPauseGoesFirst pauses subscriptions while a flood of another organization waits.
func TestOnlyAPauseGoesFirst(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change webhook.SubscriptionChange
		first  bool
	}{
		"a pause goes first":                          {webhook.SubscriptionChange{IsActive: new(false)}, true},
		"a pause with a new order does not":           {webhook.SubscriptionChange{IsActive: new(false), Ordered: new(true)}, false},
		"a pause with other types does not":           {webhook.SubscriptionChange{IsActive: new(false), EventTypes: &webhook.Types{"b"}}, false},
		"a pause that ends the audit events does not": {webhook.SubscriptionChange{IsActive: new(false), AuditEvents: new(false)}, false},
		"an activation does not":                      {webhook.SubscriptionChange{IsActive: new(true)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &crowd{t: t, release: make(chan struct{}), commits: &commitSizes{}}
				c.Store = storagetest.Open(t)
				owner, _ := storagetest.Organization(t, c.Store, "acme", "growth", access.RoleOwner)
				sub, _ := storagetest.Subscription(t, c.Store, owner, "https://example.com/", "a")
				c.hold()
				for range 100 {
					c.ask("flood", owner.Organization.RowID+1, 8, false)
				}
				c.do(func() error {
					_, err := c.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID, sub.ID, tt.change)
					return err
				})
				c.Queue.Watch(changed{c})
				if order := c.let(); slices.Index(order, "change") == 0 != tt.first {
					t.Errorf("the change was number %d", slices.Index(order, "change"))
				}
			})
		})
	}
}

// changed appends to the order of a crowd when a subscription has changed.
type changed struct{ c *crowd }

func (changed) TakePlace(int64, int64) bool     { return false }
func (changed) ReturnPlace(int64, int64)        {}
func (changed) DeliveriesCreated([]webhook.Job) {}
func (changed) BodiesChanged([]int64)           {}
func (w changed) SubscriptionsChanged(...int64) {
	if !slices.Contains(w.c.order, "change") {
		w.c.order = append(w.c.order, "change")
	}
}
