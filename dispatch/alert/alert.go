// Package alert owns the messages to the operator: what needs a person, when to say it, and through which channel. It does not
// know SQL, HTTP routes or how deliveries are sent.
//
// One goroutine looks at the store and at the conditions of the server every few seconds. It never waits for a channel: each
// channel has a goroutine of its own. The store, not a queue in memory, knows which subscriptions the operator must still hear about.
// So a restart neither repeats nor forgets an alert, and a thousand subscriptions need no memory.
//
// The first message of a kind waits for collectTime, because what fails together fails within seconds, and a person does not
// react faster. After a message, the next one of its kind waits for the interval and says what is true then.
package alert

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	collectTime = 10 * time.Second
	lookEvery   = 5 * time.Second
	storeLimit  = 5 * time.Second // for the reads and writes of one look
	maxUntold   = 10_000          // subscriptions in one message; the next message has the others
)

// Options configure an Alerter.
type Options struct {
	URLs     []redact.Text // of the channels; none: Run does nothing
	Interval time.Duration // at least this long between two messages of a kind
	Failing  time.Duration // a subscription that fails for longer is told, even if it is not disabled; 0: it is not
	From     string        // the URL of this server, for the messages
	// Command returns the command for a mend. Messages have it.
	Command func(webhook.Mend) string
	// Page returns the URL of the page of a subscription in the console. If subscription is empty, it is the page of the API keys. Page is
	// nil if there is no console.
	Page        func(organization, subscription string) string
	Store       store
	Deliveries  deliveries
	Certificate *tls.Config                // of the server; may be nil
	OnEnd       func(kind Kind, sent bool) // called when a message was sent through a channel, or given up
	Logger      *slog.Logger               // nil: slog.Default
}

// store is what an Alerter needs from package storage.
type store interface {
	// Ready returns an error if the file cannot be written now.
	Ready(ctx context.Context) (warning string, err error)
	Free() (bytes uint64, ok bool)
	Pending() int64
	Clock() clock.State

	// Untold lists subscriptions that the operator must still hear about. Those that only fail do so since failingBefore.
	Untold(ctx context.Context, failingBefore int64, limit int) ([]webhook.Untold, error)
	// Expiring lists organizations with credentials that end soon. No alert has told of them yet.
	Expiring(ctx context.Context, now int64, limit int) ([]webhook.CredentialNews, error)
	// Leaked lists organizations with credentials that were reported as leaked. No alert has told of them yet.
	Leaked(ctx context.Context, now int64, limit int) ([]webhook.CredentialNews, error)
	AlertSubject(ctx context.Context, row int64) (webhook.Subscription, error)
	MarkTold(ctx context.Context, told []webhook.Untold) error
	// AlertState reads what SaveAlertState saved.
	AlertState(ctx context.Context, state any) error
	SaveAlertState(ctx context.Context, state any) error
}

// deliveries is what an Alerter needs from package dispatch.
type deliveries interface {
	// Ready returns an error if deliveries are late because of Keyhook.
	Ready(ctx context.Context) (warning string, err error)
	// Unsaved returns the number of attempts whose result cannot be saved now.
	Unsaved() int64
}

// Alerter tells the operator what needs a person. Use New.
type Alerter struct {
	options    Options
	log        *slog.Logger
	workers    []*worker
	outcomes   chan outcome
	conditions []*condition
	windows    map[Kind]*window
	state      state
	unsaved    bool                          // state has changed since it was saved
	readFails  bool                          // the last look could not read the store
	told       map[subjectKey]webhook.Untold // told, but not yet stored
}

// subjectKey is what an alert is about.
type subjectKey struct {
	concern                    webhook.Concern
	subscription, organization int64
}

func keyOf(u webhook.Untold) subjectKey { return subjectKey{u.Concern, u.Subscription, u.Organization} }

// state is what a restart must know.
type state struct {
	Sent map[Kind]int64 `json:"sent"` // when the last message of a kind was sent
	Told map[Kind]int64 `json:"told"` // conditions that the operator believes to be present, and since when
}

type window struct {
	dueSince time.Time // since when there is something to tell; zero: nothing
	opensAt  time.Time // no message before
	flight   *flight   // the message that no channel has sent yet, or nil
}

// flight is a message on its way through all channels.
type flight struct {
	message
	at       time.Time
	waiting  int  // channels that have not ended
	told     bool // a channel has sent it
	subjects []webhook.Untold
	since    time.Time // of a condition that began; zero: it ended
}

// New makes an Alerter. The error is that of Channels.
func New(o Options) (*Alerter, error) {
	channels, err := Channels(o.URLs)
	if err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	a := &Alerter{
		options: o, log: o.Logger, windows: map[Kind]*window{}, told: map[subjectKey]webhook.Untold{},
		state:    state{Sent: map[Kind]int64{}, Told: map[Kind]int64{}},
		outcomes: make(chan outcome, len(channels)*(maxQueued+1)),
	}
	a.conditions = a.options.conditions()
	for _, c := range channels {
		a.workers = append(a.workers, &worker{Channel: c, queue: make(chan *flight, maxQueued), log: o.Logger})
	}
	return a, nil
}

// Run tells the operator until ctx ends. Without channels it returns at once. It leaves a send alone that does not return.
func (a *Alerter) Run(ctx context.Context) error {
	if len(a.workers) == 0 {
		return nil
	}
	a.load(ctx)
	var running sync.WaitGroup
	for _, w := range a.workers {
		running.Go(func() { w.run(ctx, a.outcomes) })
	}
	tick := time.NewTicker(min(lookEvery, a.options.Interval/10))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case end := <-a.outcomes:
			a.finish(end)
			a.save(ctx)
		case <-tick.C:
			a.look(ctx)
		}
	}
	running.Wait()
	for len(a.outcomes) > 0 {
		a.finish(<-a.outcomes)
	}
	a.save(context.WithoutCancel(ctx))
	return nil
}

func (a *Alerter) load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	if err := a.options.Store.AlertState(ctx, &a.state); err != nil {
		a.log.Warn("cannot read of what alerts have told; some may be repeated", "error", err)
	}
	now := time.Now()
	for _, kind := range Kinds() {
		a.windows[kind] = &window{}
		if sent, was := a.state.Sent[kind]; was {
			// The clock may have been set back, and may be set back later. So the time has a monotonic reading.
			a.windows[kind].opensAt = now.Add(a.options.Interval - max(now.Sub(time.UnixMilli(sent)), 0))
		}
	}
	told := map[Kind]int64{}
	for _, c := range a.conditions { // a condition that was told may exist no more: TLS was turned off
		if since, is := a.state.Told[c.kind]; is {
			c.active, c.since, told[c.kind] = true, time.UnixMilli(since), since
		}
	}
	a.state.Told = told
}

func (a *Alerter) look(ctx context.Context) {
	defer a.save(ctx)
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	now := time.Now()
	refused := false
	for _, c := range a.conditions {
		if refused && (c.kind == DeliveriesLate || c.kind == ResultsUnsaved) {
			continue // a consequence
		}
		c.observe(ctx, now, min(settleTime, a.options.Interval))
		refused = refused || c.kind == WritesRefused && c.begins()
		_, told := a.state.Told[c.kind]
		if a.mayTell(c.kind, !told && c.begins() || told && !c.active, now) {
			f := &flight{at: now}
			if c.begins() {
				f.since = c.since
			}
			a.tell(a.options.conditionMessage(c), f)
		}
	}
	err := errors.Join(a.tellSubscriptions(ctx, now),
		a.tellCredentials(ctx, now, CredentialsLeaked), a.tellCredentials(ctx, now, CredentialsExpire))
	if err != nil && !a.readFails { // the first of several failures
		a.log.Warn("cannot read of what alerts must tell; the server tries again", "error", err)
	}
	a.readFails = err != nil
}

// mayTell reports whether a message of a kind may be sent now. due says that there is something to tell.
func (a *Alerter) mayTell(kind Kind, due bool, now time.Time) bool {
	w := a.windows[kind]
	switch {
	case !due:
		w.dueSince = time.Time{}
		return false
	case w.dueSince.IsZero():
		w.dueSince = now
	}
	return w.flight == nil && !now.Before(w.opensAt) && now.Sub(w.dueSince) >= min(collectTime, a.options.Interval/4)
}

// tellCredentials sends alerts about API keys and access tokens.
func (a *Alerter) tellCredentials(ctx context.Context, now time.Time, kind Kind) error {
	read, concern := a.options.Store.Expiring, webhook.Expiry
	if kind == CredentialsLeaked {
		read, concern = a.options.Store.Leaked, webhook.Leak
	}
	all, err := read(ctx, now.UnixMilli(), maxUntold)
	var due []webhook.CredentialNews
	f := &flight{at: now}
	for _, o := range all {
		u := webhook.Untold{Concern: concern, Organization: o.Row, ReadAt: now.UnixMilli()}
		if told, is := a.told[keyOf(u)]; !is || o.LastAt >= told.ReadAt {
			due, f.subjects = append(due, o), append(f.subjects, u)
		}
	}
	if a.mayTell(kind, len(due) > 0, now) {
		a.tell(a.options.credentialsMessage(kind, due), f)
	}
	return err
}

// tellSubscriptions tells of subscriptions that fail for long, that became disabled or that are active again.
func (a *Alerter) tellSubscriptions(ctx context.Context, now time.Time) error {
	failingBefore := int64(0)
	if a.options.Failing > 0 {
		failingBefore = now.Add(-a.options.Failing).UnixMilli()
	}
	untold, err := a.options.Store.Untold(ctx, failingBefore, maxUntold)
	due := map[Kind][]webhook.Untold{}
	for _, sub := range untold {
		kind := SubscriptionDisabled
		switch {
		case sub.Concern == webhook.LongFailure:
			kind = SubscriptionFailing
		case sub.DisabledAt == nil:
			kind = SubscriptionRecovered
		}
		if !reflect.DeepEqual(a.told[keyOf(sub)], sub) { // nothing was told of it, or of another time
			due[kind] = append(due[kind], sub)
		}
	}
	for _, kind := range []Kind{SubscriptionFailing, SubscriptionDisabled, SubscriptionRecovered} {
		if a.mayTell(kind, len(due[kind]) > 0, now) {
			a.tell(a.options.subscriptionMessage(kind, len(due[kind]), a.subjects(ctx, due[kind])), &flight{at: now, subjects: due[kind]})
		}
	}
	return err
}

// subjects reads what a message says about the subscriptions that it names. A message without names is better than none.
func (a *Alerter) subjects(ctx context.Context, due []webhook.Untold) (named []webhook.Subscription) {
	for _, sub := range choose(due, maxNamed) {
		subject, err := a.options.Store.AlertSubject(ctx, sub.Subscription)
		if err != nil {
			a.log.Warn("cannot read a subscription for an alert", "error", err)
			continue
		}
		named = append(named, subject)
	}
	return named
}

// choose takes up to most subscriptions: one of each organization, then a second one, and so on. So no customer crowds out the others.
func choose(due []webhook.Untold, most int) []webhook.Untold {
	taken := map[int64]int{}
	round := map[int64]int{} // of each subscription: which one it is of its organization
	for _, sub := range due {
		round[sub.Subscription] = taken[sub.Organization]
		taken[sub.Organization]++
	}
	inTurn := slices.SortedStableFunc(slices.Values(due), func(a, b webhook.Untold) int { return round[a.Subscription] - round[b.Subscription] })
	return inTurn[:min(most, len(inTurn))]
}

func (a *Alerter) tell(m message, f *flight) {
	w := a.windows[m.kind]
	w.flight, w.opensAt, w.dueSince = f, f.at.Add(a.options.Interval), time.Time{}
	f.message, f.waiting = m, len(a.workers)
	for _, worker := range a.workers {
		select {
		case worker.queue <- f:
		default: // the channel is dead
			worker.report(m.kind, errFull)
			a.finish(outcome{f, false})
		}
	}
}

// finish notes how a message ended at one channel. The operator is told as soon as one channel has sent it, so a dead channel does
// not delay the next message. If no channel could send it, the next interval tells what is true then.
func (a *Alerter) finish(end outcome) {
	f := end.flight
	a.options.OnEnd(f.kind, end.sent)
	w := a.windows[f.kind]
	if f.waiting--; w.flight == f && (f.waiting == 0 || end.sent) {
		w.flight = nil
	}
	if !end.sent || f.told {
		return
	}
	f.told = true
	a.unsaved = true
	a.state.Sent[f.kind] = f.at.UnixMilli()
	for _, sub := range f.subjects {
		a.told[keyOf(sub)] = sub
	}
	switch {
	case f.subjects != nil:
	case f.since.IsZero():
		delete(a.state.Told, f.kind)
	default:
		a.state.Told[f.kind] = f.since.UnixMilli()
	}
}

// save stores of what the operator was told. While the file refuses writes, memory keeps it, and the next look tries again.
func (a *Alerter) save(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	if len(a.told) > 0 && a.options.Store.MarkTold(ctx, slices.Collect(maps.Values(a.told))) == nil {
		clear(a.told)
	}
	if a.unsaved && a.options.Store.SaveAlertState(ctx, a.state) == nil {
		a.unsaved = false
	}
}
