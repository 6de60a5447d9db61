package alert_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestMain has the machine in a zone west of Greenwich: times and days are those of UTC all the same.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("west", -8*60*60)
	os.Exit(m.Run())
}

const (
	interval = 15 * time.Minute
	long     = 40 * time.Minute // more than two intervals
)

// fixture is an Alerter on a real store, with a channel in memory.
type fixture struct {
	*server
	path    string
	store   *storage.Store
	end     func() // ends the store
	stop    func() // ends the alerter
	options alert.Options
	log     *logs

	mu   sync.Mutex
	sent []sentMessage
	ends map[string]int // by kind and result
	fail map[string]func() error
}

type sentMessage struct {
	at                   time.Time
	channel, title, body string
	members              map[string]any
}

// server has the conditions of a fixture.
type server struct {
	*storage.Store

	mu  sync.Mutex
	now conditions
}

// conditions are the present conditions of a server.
type conditions struct {
	refuses, late error
	unread        error // of the reads of subscriptions, but not of credentials
	free          uint64
	unsaved       int64
	clock         clock.State
}

// healthy is a server without a condition to tell.
var healthy = conditions{free: 1 << 40}

func (s *server) set(c conditions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = c
}

func (s *server) get() conditions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *server) Ready(context.Context) (string, error) { return "", s.get().refuses }
func (s *server) Free() (uint64, bool)                  { return s.get().free, true }
func (s *server) Clock() clock.State                    { return s.get().clock }

func (s *server) Untold(ctx context.Context, failingBefore int64, limit int) ([]webhook.Untold, error) {
	if err := s.get().unread; err != nil {
		return nil, err
	}
	return s.Store.Untold(ctx, failingBefore, limit)
}

func (s *server) MarkTold(ctx context.Context, told []webhook.Untold) error {
	if err := s.get().refuses; err != nil {
		return err
	}
	return s.Store.MarkTold(ctx, told)
}

func (s *server) SaveAlertState(ctx context.Context, state any) error {
	if err := s.get().refuses; err != nil {
		return err
	}
	return s.Store.SaveAlertState(ctx, state)
}

// deliveries is the dispatcher of a fixture.
type deliveries struct{ s *server }

func (d deliveries) Ready(context.Context) (string, error) { return "", d.s.get().late }
func (d deliveries) Unsaved() int64                        { return d.s.get().unsaved }

// logs is a log that many goroutines write.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// command stands for a command of the CLI.
func command(m webhook.Mend) string {
	return strings.Join(slices.DeleteFunc([]string{"do", string(m.Action), m.Organization, m.Subscription, m.With}, func(s string) bool { return s == "" }), " ")
}

// inVirtualTime runs a parallel test with a running fixture in a bubble of virtual time.
func inVirtualTime(t *testing.T, urls []string, test func(t *testing.T, x *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := &fixture{
			server: &server{now: healthy}, path: filepath.Join(t.TempDir(), "keyhook.db"), log: &logs{},
			ends: map[string]int{}, fail: map[string]func() error{},
		}
		x.options = alert.Options{Interval: interval, From: "https://keys.example.com", Command: command, Logger: slog.New(slog.NewTextHandler(x.log, nil))}
		for _, url := range urls {
			x.options.URLs = append(x.options.URLs, redact.New(url))
		}
		x.start(t)
		t.Cleanup(func() { x.stop(); x.end() })
		test(t, x)
	})
}

// start opens the store and runs an Alerter.
func (x *fixture) start(t *testing.T) {
	t.Helper()
	o := storagetest.Options(t, x.path)
	o.ExpiryNotice = []time.Duration{2 * time.Hour}
	o.Policy = webhook.Policy{MaxAttempts: 250, FailingAfter: 1, DisabledAfter: 2}
	x.store, x.end = storagetest.OpenWith(t, o)
	x.Store = x.store
	x.options.Store, x.options.Deliveries = x.server, deliveries{x.server}
	x.options.OnEnd = func(kind alert.Kind, sent bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ends[fmt.Sprint(kind, " ", sent)]++
	}
	a, err := alert.New(x.options)
	if err != nil {
		t.Fatal(err)
	}
	a.Intercept(x.send)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	x.stop = func() { cancel(); running.Wait() }
}

// restart ends everything, as a stop of the server does, and starts it on the same file.
func (x *fixture) restart(t *testing.T) {
	t.Helper()
	x.restartAfter(t, 0)
}

// restartAfter starts the server again after it was stopped for that long.
func (x *fixture) restartAfter(t *testing.T, pause time.Duration) {
	t.Helper()
	x.stop()
	x.end()
	time.Sleep(pause)
	x.start(t)
}

func (x *fixture) send(channel, title, body string, members map[string]any) error {
	x.mu.Lock()
	fail := x.fail[channel]
	x.mu.Unlock()
	if fail != nil {
		if err := fail(); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = append(x.sent, sentMessage{time.Now(), channel, title, body, members})
	return nil
}

// breaks makes a channel fail from now on; nil repairs it.
func (x *fixture) breaks(channel string, fail func() error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fail[channel] = fail
}

// take waits, and returns the messages since the last call.
func (x *fixture) take(wait time.Duration) []sentMessage {
	time.Sleep(wait)
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	sent := x.sent
	x.sent = nil
	return sent
}

// one waits, and expects one message with these texts.
func (x *fixture) one(t *testing.T, wait time.Duration, texts ...string) sentMessage {
	t.Helper()
	sent := x.take(wait)
	if len(sent) != 1 {
		t.Fatalf("%d messages, want one: %+v\nlog:\n%s", len(sent), sent, x.log.text.String())
	}
	for _, text := range texts {
		if !strings.Contains(sent[0].title+"\n"+sent[0].body, text) {
			t.Errorf("no %q in %q:\n%s", text, sent[0].title, sent[0].body)
		}
	}
	return sent[0]
}

// none waits, and expects no message.
func (x *fixture) none(t *testing.T, wait time.Duration) {
	t.Helper()
	if sent := x.take(wait); len(sent) > 0 {
		t.Errorf("%d messages, want none: %+v", len(sent), sent)
	}
}

// subscribe makes an organization with n subscriptions.
func (x *fixture) subscribe(t *testing.T, name string, n int) (owner access.Principal, subs []webhook.Subscription) {
	t.Helper()
	owner, _ = storagetest.Organization(t, x.store, name, "enterprise", access.RoleOwner)
	for i := range n {
		sub, _ := storagetest.Subscription(t, x.store, owner, fmt.Sprintf("https://%s-%d.example/secretpath?secretquery=1", name, i), "order.*")
		subs = append(subs, sub)
	}
	return owner, subs
}

// disable publishes an event and fails its attempts until all subscriptions of the organization are disabled.
func (x *fixture) disable(t *testing.T, owner access.Principal, subs ...webhook.Subscription) {
	t.Helper()
	storagetest.Publish(t, x.store, owner, "order.created")
	for _, sub := range subs {
		jobs, err := x.store.Queue.PendingJobs(t.Context(), sub.RowID, 0, 1, nil)
		if err != nil || len(jobs) == 0 {
			t.Fatalf("%d jobs, error %v", len(jobs), err)
		}
		for n := range 2 {
			x.attempt(t, sub, jobs[0].Delivery, jobs[0].Attempts+n+1)
		}
	}
}

// failOnce publishes an event and fails its first attempt at each subscription.
func (x *fixture) failOnce(t *testing.T, owner access.Principal, subs ...webhook.Subscription) {
	t.Helper()
	storagetest.Publish(t, x.store, owner, "order.created")
	for _, sub := range subs {
		jobs, err := x.store.Queue.PendingJobs(t.Context(), sub.RowID, 0, 1, nil)
		if err != nil || len(jobs) == 0 {
			t.Fatalf("%d jobs, error %v", len(jobs), err)
		}
		x.attempt(t, sub, jobs[0].Delivery, jobs[0].Attempts+1)
	}
}

// attempt fails one attempt of a delivery.
func (x *fixture) attempt(t *testing.T, sub webhook.Subscription, delivery int64, number int) {
	t.Helper()
	target, err := x.store.Queue.Target(t.Context(), sub.RowID)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := x.store.Queue.Begin(t.Context(), []webhook.Start{{Delivery: delivery, Subscription: sub.RowID, Epoch: target.Epoch, Number: number, Trigger: webhook.ByEvent}})
	if err != nil || rows[0] == 0 {
		t.Fatalf("rows %v, error %v", rows, err)
	}
	_, err = x.store.Queue.Record(t.Context(), webhook.Result{
		Attempt: rows[0], Delivery: delivery, Subscription: sub.RowID, Epoch: target.Epoch, Number: number, Trigger: webhook.ByEvent,
		Failure: webhook.Failure{Class: webhook.TimeoutError, Text: "no response"}, RetryAt: time.Now().UnixMilli(), ProbeAt: time.Now().UnixMilli(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reactivate sets is_active.
func (x *fixture) reactivate(t *testing.T, owner access.Principal, subs ...webhook.Subscription) {
	t.Helper()
	for _, sub := range subs {
		if _, err := x.store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("127.0.0.1", "test"), owner.Organization.RowID, sub.ID, webhook.SubscriptionChange{IsActive: new(true)}); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	oneChannel  = []string{"ntfy://ntfy.example/canarytopic"}
	twoChannels = []string{"ntfy://ntfy.example/canarytopic", "gotify://gotify.example/Acanarytoken123"}
	errBroken   = errors.New("broken: https://ntfy.example/canarytopic")
)
