package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keyhook/keyhook/server/cli/child"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/webhook"
)

// company is a customer in the data of the demo.
type company struct {
	name, plan string
	perHour    float64 // events at the busiest time
	keys       []string
	endpoints  []endpoint
}

// endpoint is a subscription in the data of the demo. Its path at the receiver says how the receiver answers.
type endpoint struct {
	path, description string
	types             []string
	filter            string
	ordered           bool
	down, paused      time.Duration // how long before now it began to fail, or a person paused it; 0: it did not
	failure           string        // what the receiver says when it is down
	row               int64         // of the subscription, once it exists
}

var companies = []company{
	{"Brightwater Logistics", "enterprise", 9, []string{"Warehouse back end", "Nightly report"}, []endpoint{
		{path: "warehouse", description: "Orders to the warehouse", types: []string{"order.*"}},
		{path: "tracking", description: "Parcel tracking, in the order of the events", types: []string{"order.shipped"}, ordered: true},
		{path: "service", description: "Customer service", types: []string{"order.shipped", "order.returned"}, down: 3 * time.Hour, failure: "Down for maintenance"},
	}},
	{"Tallgrass Books", "growth", 5, []string{"Shop"}, []endpoint{
		{path: "large-orders", description: "Orders of 100 and more", types: []string{"order.paid"}, filter: `[{"path":"data.total","op":"gte","value":100}]`},
		{path: "stock", description: "Stock keeping", types: []string{"order.shipped", "stock.low"}, down: 52 * time.Hour, failure: "panic: no such table: stock"},
	}},
	{"Kestrel Cycles", "growth", 3, []string{"Workshop", "Price comparison"}, []endpoint{
		{path: "accounting", description: "Invoices to accounting", types: []string{"invoice.*"}},
		{path: "loyalty", description: "Loyalty points", types: []string{"order.paid"}, paused: 26 * time.Hour},
	}},
	{"Juniper Kitchens", "growth", 1, []string{"Shop"}, []endpoint{
		{path: "kitchen", description: "New orders to the kitchen", types: []string{"order.created"}},
	}},
}

// eventTypes are the types of the product, with their groups, descriptions and examples.
var eventTypes = [][4]string{
	{"order.created", "Orders", "A customer placed an order.", orderExample}, {"order.paid", "Orders", "The payment of an order arrived.", orderExample},
	{"order.shipped", "Orders", "An order left the warehouse.", orderExample}, {"order.returned", "Orders", "A customer sent an order back.", orderExample},
	{"invoice.created", "Invoices", "An invoice was written.", orderExample}, {"invoice.paid", "Invoices", "An invoice was paid.", orderExample},
	{"stock.low", "Stock", "Few pieces of an article are left.", `{"lines":[{"article":"A-217","pieces":3}]}`},
}

const orderExample = `{"number":1001,"total":64.90,"currency":"EUR","lines":[{"article":"A-217","pieces":2}]}`

// week writes a week of data into a new database, before a server opens it.
type week struct {
	store   *storage.Store
	at      atomic.Int64 // the time of writes, in milliseconds
	end     time.Time
	rand    *rand.Rand // always the same data
	moments []moment   // what happens in the week
}

type moment struct {
	at time.Time
	do func() error
}

const days = 7

// writeWeek writes the week that ends now, and returns the operator's access token. Subscriptions go to paths below receiver.
func writeWeek(ctx context.Context, path, schema, receiver string) (operator access.Credential, err error) {
	w := &week{end: time.Now().Truncate(time.Second), rand: rand.New(rand.NewPCG(1, 2))}
	w.at.Store(w.end.AddDate(0, 0, -days-1).UnixMilli())
	operator = access.Mint(access.TokenPrefix)
	w.store, err = storage.Open(ctx, storage.Options{
		Path: path, Schema: schema, Synchronous: storage.Normal, Bootstrap: operator,
		Now: func() time.Time { return time.UnixMilli(w.at.Load()) }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return operator, err
	}
	running, stop := context.WithCancel(ctx)
	var parts errgroup.Group
	parts.Go(func() error { return w.store.Run(running) })
	err = w.write(ctx, operator, receiver)
	stop()
	return operator, errors.Join(err, parts.Wait(), w.store.Close())
}

func (w *week) write(ctx context.Context, first access.Credential, receiver string) error {
	operator, err := w.store.Directory.PrincipalByToken(ctx, first.Digest())
	if err != nil {
		return err
	}
	by := operator.Actor("", "")
	for _, t := range eventTypes {
		change := webhook.EventTypeChange{Group: &t[1], Description: &t[2], Example: new([]byte(t[3]))}
		if _, err := w.store.Catalogue.PutEventType(ctx, by, t[0], change); err != nil {
			return err
		}
	}
	for _, c := range companies {
		if err := w.company(ctx, by, c, receiver); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	slices.SortStableFunc(w.moments, func(a, b moment) int { return a.at.Compare(b.at) })
	for _, m := range w.moments {
		w.at.Store(m.at.UnixMilli())
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// company creates a customer, and plans what happens to it.
func (w *week) company(ctx context.Context, by access.Actor, c company, receiver string) error {
	people := w.store.Directory
	name := strings.ToLower(strings.Fields(c.name)[0])
	token := access.Mint(access.TokenPrefix)
	organization, err1 := people.CreateOrganization(ctx, by, access.Organization{Name: c.name, Plan: c.plan, ExternalID: &name})
	user, err2 := people.CreateUser(ctx, by, access.User{Email: "dev@" + name + ".example", Name: "Developers of " + c.name, IsActive: true})
	_, err3 := people.SetMember(ctx, by, organization.ID, user.ID, "owner")
	_, err4 := people.CreateToken(ctx, by, user.ID, organization.ID, token, "Laptop", nil)
	owner, err5 := people.PrincipalByToken(ctx, token.Digest())
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	var keys []access.Principal
	for i, name := range c.keys {
		key := access.Mint(access.DefaultKeyPrefix)
		wanted := access.NewKey{Credential: key, Name: name, Scope: access.NewScope(access.EventsWrite, access.WebhooksRead)}
		if i == 1 { // a second key is for a program at a known place, and for a limited time
			wanted.ExpiresAt, wanted.AllowedNetworks = new(w.end.AddDate(0, 0, 60).UnixMilli()), access.Networks{netip.MustParsePrefix("192.0.2.0/24")}
		}
		_, err1 := people.CreateKey(ctx, owner, owner.Actor("", ""), wanted)
		principal, err2 := people.PrincipalByKey(ctx, key.Digest())
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		keys = append(keys, principal)
	}
	var receivers []endpoint
	for _, e := range c.endpoints {
		var err error
		if e.row, err = w.subscribe(ctx, owner, e, receiver+name+"/"); err != nil {
			return err
		}
		receivers = append(receivers, e)
	}
	for _, at := range w.times(c.perHour) {
		w.moments = append(w.moments, moment{at, func() error { return w.publish(ctx, owner.Organization.RowID, receivers) }})
	}
	for day := range days {
		w.moments = append(w.moments, moment{w.end.Add(time.Duration(-24*day)*time.Hour - time.Minute), func() error {
			for i, key := range keys {
				people.Used(key, access.KeyUse{Allowed: 200 + w.rand.Int64N(int64(300+2000*i)), RateLimited: w.rand.Int64N(3)})
			}
			return people.KeepUses(ctx, true)
		}})
	}
	return nil
}

func (w *week) subscribe(ctx context.Context, owner access.Principal, e endpoint, receiver string) (row int64, err error) {
	url, types := receiver+e.path, webhook.Types(e.types)
	change := webhook.SubscriptionChange{URL: &url, EventTypes: &types, Description: &e.description, Ordered: &e.ordered}
	if e.filter != "" {
		parsed, err := filter.Parse(e.filter)
		if err != nil {
			return 0, err
		}
		change.Filter = &parsed
	}
	by := owner.Actor("", "")
	sub, _, err := w.store.Subscriptions.CreateSubscription(ctx, by, owner.Organization.RowID, change)
	if e.paused > 0 {
		w.moments = append(w.moments, moment{w.end.Add(-e.paused), func() error {
			_, err := w.store.Subscriptions.UpdateSubscription(ctx, by, owner.Organization.RowID, sub.ID, webhook.SubscriptionChange{IsActive: new(false)})
			return err
		}}, moment{w.end.Add(-e.paused / 2), func() error {
			_, err := w.store.Queue.Discard(ctx, by, owner.Organization.RowID, sub.ID, 0)
			return err
		}})
	}
	return sub.RowID, err
}

// times returns when a company publishes: much by day and little by night. Its week always ends by day, and so has one shape.
func (w *week) times(perHour float64) (list []time.Time) {
	for at := w.end.AddDate(0, 0, -days); ; {
		ago := w.end.Sub(at).Hours() / 24
		busy := 0.08 + math.Pow(math.Cos(math.Pi*(ago-0.1)), 4)
		at = at.Add(time.Duration(w.rand.ExpFloat64() / (perHour * busy) * float64(time.Hour)))
		if !at.Before(w.end) {
			return list
		}
		list = append(list, at)
	}
}

// publish publishes an event, and makes the attempts that are due.
func (w *week) publish(ctx context.Context, organization int64, to []endpoint) error {
	number := 1000 + w.rand.IntN(9000)
	total := fmt.Sprintf("%d.%02d", 5+w.rand.IntN(200), w.rand.IntN(100))
	data := fmt.Sprintf(`{"number":%d,"total":%s,"currency":"EUR","lines":[{"article":"A-%d","pieces":%d}]}`, number, total, 100+w.rand.IntN(900), 1+w.rand.IntN(4))
	eventType := eventTypes[w.rand.IntN(len(eventTypes))][0]
	if _, err := w.store.Queue.PublishEvents(ctx, organization, []webhook.NewEvent{{Type: eventType, Data: []byte(data)}}); err != nil {
		return err
	}
	for _, s := range to {
		if err := w.deliver(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// deliver makes the attempts that are due at a subscription. To a failing one, it makes only one.
func (w *week) deliver(ctx context.Context, s endpoint) error {
	for range 20 {
		now := w.at.Load()
		target, err := w.store.Queue.Target(ctx, s.row)
		if err != nil || !target.Sends(now) || target.Status == webhook.Failing && target.ProbeAt > now {
			return err
		}
		jobs, err := w.store.Queue.PendingJobs(ctx, s.row, 0, 1, nil)
		if s.ordered && err == nil {
			jobs, err = w.store.Queue.OrderedJobs(ctx, s.row, 1)
		}
		if err != nil || len(jobs) == 0 || jobs[0].DueAt > now {
			return err
		}
		job := jobs[0]
		start := webhook.Start{Delivery: job.Delivery, Subscription: s.row, Epoch: target.Epoch, Number: job.Attempts + 1, Trigger: job.Cause}
		attempts, err := w.store.Queue.Begin(ctx, []webhook.Start{start})
		if err != nil || attempts[0] == 0 {
			return err
		}
		r := webhook.Result{
			Attempt: attempts[0], Delivery: job.Delivery, Subscription: s.row, Epoch: target.Epoch, Number: start.Number, Trigger: start.Trigger,
			DurationMS: 20 + int64(60*w.rand.ExpFloat64()), RetryAt: now + time.Minute.Milliseconds(), ProbeAt: now + 45*time.Minute.Milliseconds(),
			Succeeded: true, ResponseStatus: new(204),
		}
		isDown := s.down > 0 && now > w.end.Add(-s.down).UnixMilli()
		if isDown || w.rand.IntN(80) == 0 {
			r.Succeeded, r.ResponseStatus, r.ResponseBody = false, new(503), cmp.Or(s.failure, "Try again")
			r.Failure = webhook.Failure{Class: webhook.HTTPStatus, Text: "503"}
		}
		w.at.Add(r.DurationMS)
		if _, err := w.store.Queue.Record(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// leaveRunning runs a server with a week of data until ctx ends.
func leaveRunning(ctx context.Context, schema string, out io.Writer) error {
	dir, err := child.Directory("keyhook-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	receiver := httptest.NewServer(http.HandlerFunc(receive))
	defer receiver.Close()
	fmt.Fprintln(out, "Writing a week of data. It takes a few seconds.")
	token, err := writeWeek(ctx, filepath.Join(dir, "keyhook.db"), schema, receiver.URL+"/")
	if err != nil {
		return fmt.Errorf("cannot write the data of the demo: %w", err)
	}
	server, err := child.Start(ctx, dir, "KEYHOOK_EGRESS_ALLOW_HTTP=true")
	if err != nil {
		return err
	}
	defer server.Kill()
	fmt.Fprintf(out, "\nConsole:  %s/console/\nSign in:  %s\nStop:     press Ctrl C. The data is in %s, and is removed then.\n", server.URL, token.Reveal(), dir)
	<-ctx.Done()
	return server.Stop(context.WithoutCancel(ctx))
}

// receive is what the receivers of the companies do: those that are down answer with 503.
func receive(w http.ResponseWriter, r *http.Request) {
	for _, c := range companies {
		for _, e := range c.endpoints {
			if e.down > 0 && filepath.Base(r.URL.Path) == e.path {
				http.Error(w, e.failure, http.StatusServiceUnavailable)
				return
			}
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
