package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func policy(attempts, failing, disabled int) webhook.Policy {
	return webhook.Policy{MaxAttempts: attempts, FailingAfter: failing, DisabledAfter: disabled}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}

// fixture is a dispatcher on a real store, with receivers in place of the network.
type fixture struct {
	*storage.Store
	*dispatch.Dispatcher
	*receivers
	owner access.Principal
	stop  func() // returns after Run has returned
}

// inVirtualTime runs a parallel test in a bubble of virtual time.
func inVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// newFixture makes a fixture whose dispatcher runs until the test ends.
func newFixture(tb testing.TB, o dispatch.Options) *fixture {
	tb.Helper()
	x := stoppedFixture(tb, nil, o)
	x.run(tb)
	return x
}

// stoppedFixture makes a fixture whose dispatcher does not run yet. If f is not nil, the store fails as f says.
func stoppedFixture(tb testing.TB, f *faults, o dispatch.Options) *fixture {
	tb.Helper()
	of := storagetest.Options(tb, filepath.Join(tb.TempDir(), "keyhook.db"))
	of.Policy = o.Policy
	store, _ := storagetest.OpenWith(tb, of)
	return fixtureOn(tb, store, f, o)
}

// fixtureOn is stoppedFixture on an open store.
func fixtureOn(tb testing.TB, store *storage.Store, f *faults, o dispatch.Options) *fixture {
	tb.Helper()
	x := &fixture{receivers: &receivers{handlers: map[string]handler{}}}
	if f != nil {
		x.trace = f.trace
	}
	x.connect(tb, store, f, o)
	x.owner, _ = storagetest.Organization(tb, store, "acme", "enterprise", access.RoleOwner)
	return x
}

// connect gives the fixture a dispatcher on an open store. It is also for a store that was closed and opened again.
func (x *fixture) connect(tb testing.TB, store *storage.Store, f *faults, o dispatch.Options) {
	tb.Helper()
	x.Store, x.stop = store, func() {}
	if o.Transport == nil {
		o.Transport = x.receivers
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if f != nil {
		x.Dispatcher = dispatch.New(faultyStore{store, f}, o)
	} else {
		x.Dispatcher = dispatch.New(store, o)
	}
	if _, benchmark := tb.(*testing.B); !benchmark {
		x.CheckRounds(tb)
	}
	store.Queue.Watch(x.Dispatcher)
}

func (x *fixture) run(tb testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.Dispatcher.Run(ctx); err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	x.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	tb.Cleanup(x.stop)
}

func (x *fixture) actor() access.Actor { return x.owner.Actor("127.0.0.1", "test") }

func (x *fixture) org() int64 { return x.owner.Organization.RowID }

// subscribe makes a subscription and its receiver.
func (x *fixture) subscribe(tb testing.TB, host string, a handler) webhook.Subscription {
	tb.Helper()
	sub, _ := x.subscribeWithSecret(tb, host, a)
	return sub
}

func (x *fixture) subscribeWithSecret(tb testing.TB, host string, a handler) (webhook.Subscription, webhook.Secret) {
	tb.Helper()
	x.setReceiver(host, a)
	return storagetest.Subscription(tb, x.Store, x.owner, "https://"+host+"/hook", "order.paid")
}

// publish publishes n events in one transaction and returns their ids.
func (x *fixture) publish(tb testing.TB, n int) []string {
	tb.Helper()
	events := make([]webhook.NewEvent, n)
	for i := range events {
		events[i] = webhook.NewEvent{Type: "order.paid", Data: []byte(`{"n":` + strconv.Itoa(i) + `}`)}
	}
	published, err := x.Queue.PublishEvents(context.Background(), x.org(), events)
	if err != nil {
		tb.Fatal(err)
	}
	ids := make([]string, n)
	for i, p := range published {
		ids[i] = p.ID
	}
	return ids
}

// health returns the subscription as it is now.
func (x *fixture) health(tb testing.TB, sub webhook.Subscription) webhook.Subscription {
	tb.Helper()
	now, err := x.History.Subscription(context.Background(), x.org(), sub.ID)
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// attempts returns the records of a subscription, the oldest first.
func (x *fixture) attempts(tb testing.TB, sub webhook.Subscription) []webhook.Attempt {
	tb.Helper()
	var all []webhook.Attempt
	f := webhook.AttemptFilter{Limit: 500}
	for {
		page, err := x.History.AttemptPage(context.Background(), x.org(), sub.ID, f)
		if err != nil {
			tb.Fatal(err)
		}
		for _, a := range page.Attempts {
			all = append([]webhook.Attempt{a}, all...)
		}
		if len(page.Attempts) < f.Limit {
			return all
		}
		last := page.Attempts[len(page.Attempts)-1]
		f.Before, f.BeforeAt = last.RowID, last.AttemptedAt
	}
}

// outcomes counts the records of a subscription by outcome.
func (x *fixture) outcomes(tb testing.TB, sub webhook.Subscription) map[webhook.Outcome]int {
	tb.Helper()
	count := map[webhook.Outcome]int{}
	for _, a := range x.attempts(tb, sub) {
		count[a.Outcome]++
	}
	return count
}

// received is a request that a receiver got.
type received struct {
	at     time.Time
	host   string
	header http.Header
	body   string // the start of it
}

// handler is how a receiver answers a request.
type handler func(*http.Request) (*http.Response, error)

// receivers is a transport that finds handlers by host name.
type receivers struct {
	mu           sync.Mutex
	handlers     map[string]handler
	received     []received
	running      map[string]int // requests in progress, by host
	peakOf       map[string]int
	runningInAll int
	peakInAll    int    // for all hosts together
	trace        *trace // of a simulation, or nil
}

func (r *receivers) setReceiver(host string, a handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers[host] = a
}

// RoundTrip gives the request to its receiver.
func (r *receivers) RoundTrip(q *http.Request) (*http.Response, error) {
	body := make([]byte, q.ContentLength)
	if _, err := io.ReadFull(q.Body, body); err != nil {
		return nil, err
	}
	q.Body = io.NopCloser(bytes.NewReader(body)) // for the handler
	host := q.URL.Host
	r.mu.Lock()
	a := r.handlers[host]
	r.received = append(r.received, received{time.Now(), host, q.Header, string(body[:min(len(body), 4<<10)])})
	if r.running == nil {
		r.running, r.peakOf = map[string]int{}, map[string]int{}
	}
	r.running[host]++
	r.runningInAll++
	r.peakOf[host], r.peakInAll = max(r.peakOf[host], r.running[host]), max(r.peakInAll, r.runningInAll)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running[host]--
		r.runningInAll--
		r.mu.Unlock()
	}()
	if a == nil {
		return nil, errors.New("no such host " + host)
	}
	return r.trace.exchange(q, body, a)
}

// requests returns the requests that the host got, the earliest first.
func (r *receivers) requests(host string) []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	var of []received
	for _, q := range r.received {
		if q.host == host {
			of = append(of, q)
		}
	}
	return of
}

// peak returns the largest number of requests in progress, to the host and to all hosts.
func (r *receivers) peak(host string) (one, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peakOf[host], r.peakInAll
}

func newResponse(status int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}

// respond answers every request with the same response.
func respond(status int, headers ...string) handler {
	return func(*http.Request) (*http.Response, error) {
		return newResponse(status, "said "+strconv.Itoa(status), headers...), nil
	}
}

// hang never answers; it ends with the request's context.
func hang(q *http.Request) (*http.Response, error) {
	<-q.Context().Done()
	return nil, q.Context().Err()
}

// respondAfter answers like a, but d later.
func respondAfter(d time.Duration, a handler) handler {
	return func(q *http.Request) (*http.Response, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return a(q)
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
}

// logBuffer collects log lines.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
