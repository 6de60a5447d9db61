package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// checked is the response of /readyz: its status, and the problem of each check.
type checked struct {
	Status string
	Checks map[string]struct {
		OK      bool
		Problem string
		Warning string
	}
}

func (f *testServer) ready(t *testing.T, status int) (checked, map[string]string) {
	t.Helper()
	got := f.Do(t, "GET /readyz", "", "").Want(t, status, "")
	if (status == 503) != (got.Header.Get("Retry-After") != "") {
		t.Errorf("status %d with Retry-After %q", status, got.Header.Get("Retry-After"))
	}
	var c checked
	if err := json.Unmarshal([]byte(got.Text), &c); err != nil {
		t.Fatal(err)
	}
	wrong := map[string]string{}
	for name, check := range c.Checks {
		if check.OK != (check.Problem == "") {
			t.Errorf("%s: ok is %v, but the problem is %q", name, check.OK, check.Problem)
		}
		if !check.OK {
			wrong[name] = check.Problem
		}
	}
	return c, wrong
}

func TestReady(t *testing.T) {
	t.Parallel()

	t.Run("names each check and its problem", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ticked := time.Now()
			var stuck error
			f := build(t, func(o *server.Options) {
				o.Checks = []server.ReadinessCheck{server.Ticking("scheduler", func() time.Time { return ticked }, 10*time.Second)}
				o.Deliveries = func(context.Context) (string, error) { return "", stuck }
			})
			want := func(wrong map[string]string, expected map[string]string) {
				t.Helper()
				if diff := cmp.Diff(expected, wrong); diff != "" {
					t.Errorf("what is wrong (-want +got):\n%s", diff)
				}
			}
			if got, wrong := f.ready(t, 200); got.Status != "ready" || len(got.Checks) != 4 {
				t.Errorf("%+v %v", got, wrong)
			}
			stuck = errors.New("nothing is sent")
			time.Sleep(time.Second)
			got, wrong := f.ready(t, 503)
			want(wrong, map[string]string{"deliveries": "nothing is sent"})
			if got.Status != "not_ready" {
				t.Errorf("status %s", got.Status)
			}
			if log := f.Log.String(); !strings.Contains(log, `"code":"not_ready","cause":"deliveries: nothing is sent"`) {
				t.Errorf("the log does not have the cause:\n%s", log)
			}
			stuck = nil
			time.Sleep(10 * time.Second)
			_, wrong = f.ready(t, 503)
			want(wrong, map[string]string{"scheduler": "has not ticked for 11s"})
			ticked = time.Time{}
			time.Sleep(time.Second)
			_, wrong = f.ready(t, 503)
			want(wrong, map[string]string{"scheduler": "has not ticked yet"})
			f.Do(t, "GET /healthz", "", "").Want(t, 200, "")
		})
	})

	t.Run("runs the checks once a second for all callers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var looks atomic.Int64
			var wrong error
			f := build(t, func(o *server.Options) {
				o.Deliveries = func(context.Context) (string, error) {
					looks.Add(1)
					time.Sleep(10 * time.Millisecond)
					return "", wrong
				}
			})
			for _, c := range []struct {
				err    error
				status int
				most   int64
			}{{nil, 200, 2}, {errors.New("nothing is sent"), 503, 2}} {
				wrong = c.err
				time.Sleep(2 * time.Second)
				looks.Store(0)
				var asking sync.WaitGroup
				for range 20 {
					asking.Go(func() {
						for range 20 {
							f.ready(t, c.status)
							time.Sleep(95 * time.Millisecond)
						}
					})
				}
				asking.Wait()
				if n := looks.Load(); n < c.most/2 || n > c.most {
					t.Errorf("%d looks in two seconds with status %d, want at most %d", n, c.status, c.most)
				}
			}
		})
	})

	t.Run("a request that ends early does not affect others", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(gone, "GET", "/readyz", nil)
		f.Server.ServeHTTP(httptest.NewRecorder(), r)
		f.ready(t, 200)
	})
}

// dispatching is a store whose Begin may block.
type dispatching struct {
	*storage.Store
	stuck atomic.Bool
}

func (d *dispatching) Begin(ctx context.Context, starts []webhook.Start) ([]int64, error) {
	if d.stuck.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Store.Queue.Begin(ctx, starts)
}

// slowly is a receiver that takes five seconds.
type slowly struct{}

func (slowly) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Second)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Header: http.Header{}}, nil
}

// run runs a dispatcher on the store until the test ends.
func (d *dispatching) run(t *testing.T) *dispatch.Dispatcher {
	t.Helper()
	dispatcher := dispatch.New(d, dispatch.Options{Transport: slowly{}, Logger: slog.New(slog.DiscardHandler), Grace: time.Second})
	d.Queue.Watch(dispatcher)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = dispatcher.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return dispatcher
}

func TestReadyWithDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d dispatching
		f := build(t, func(o *server.Options) {
			d.Store = o.Store.(*storage.Store)
			o.Deliveries = d.run(t).Ready
		})
		owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.created")
		for range 1000 {
			storagetest.Publish(t, f.Store, owner, "user.created")
		}
		time.Sleep(59 * time.Second)
		if got, _ := f.ready(t, 200); got.Checks["deliveries"].Warning != "" {
			t.Errorf("a warning too early: %+v", got)
		}
		// A slow receiver is not a problem of the process, however long its deliveries wait.
		for range 3 {
			time.Sleep(75 * time.Second)
			if got, _ := f.ready(t, 200); !strings.Contains(got.Checks["deliveries"].Warning, "for more than 1m0s for a slow receiver or a free slot: 1") {
				t.Errorf("no warning: %+v", got)
			}
		}
		time.Sleep(2 * time.Minute)
		if got, wrong := f.ready(t, 200); got.Checks["deliveries"].Warning != "" {
			t.Errorf("a warning though nothing waits: %+v, %v", got, wrong)
		}

		// Behind a rate limit, attempts do not begin with their deliveries, once the scheduler has read the change.
		if _, err := f.Store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("127.0.0.1", "test"), owner.Organization.RowID, sub.ID, webhook.SubscriptionChange{
			RateLimitPerSecond: new(new(int64(100))),
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.stuck.Store(true)
		storagetest.Publish(t, f.Store, owner, "user.created")
		time.Sleep(59 * time.Second)
		f.ready(t, 200)
		time.Sleep(4 * time.Second)
		_, wrong := f.ready(t, 503)
		if !strings.Contains(wrong["deliveries"], "have waited for 1m3s: the database does not take new attempts") {
			t.Errorf("what is wrong: %v", wrong)
		}
	})
}

// silent is a store whose database does not respond.
type silent struct{ server.Store }

func (silent) Ping(context.Context) error { return errors.New("secret path") }

func TestReadyWithoutDatabase(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.Store = silent{o.Store} })
	_, wrong := f.ready(t, 503)
	if diff := cmp.Diff(map[string]string{"database": "does not answer"}, wrong); diff != "" {
		t.Errorf("what is wrong (-want +got):\n%s", diff)
	}
	if got := f.Do(t, "GET /readyz", "", ""); strings.Contains(got.Text, "secret") {
		t.Errorf("the response says too much: %s", got.Text)
	}
	f.Do(t, "GET /healthz", "", "").Want(t, 200, "")
}
