package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The times of the table, in milliseconds.
const (
	published = int64(946_684_800_000) // 2000-01-01T00:00:00.000Z
	now       = published + 60_000
	later     = now + 30_000
)

// given returns a healthy subscription to every type with these deliveries of an event.
func given(deliveries ...webhook.DeliveryFacts) explain.Receiver {
	r := explain.Receiver{
		Event: webhook.EventFacts{RowID: 9, Type: "order.paid", At: published, Plan: "growth", Kept: 24 * time.Hour}, Now: now,
	}
	r.Deliveries = deliveries
	r.Subscription = webhook.Subscription{
		RowID: 5, ID: "sub_5", OrganizationID: "org_3", URL: "https://Hooks.example.com:8443/path", AuditEvents: true,
		Gate: webhook.Gate{Health: webhook.Health{Status: webhook.Healthy, Epoch: 1}, Webhooks: true}, CreatedAt: published - 1000,
	}
	r.Birth = 1
	return r
}

// pending returns a pending delivery.
func pending(due int64) webhook.DeliveryFacts {
	return webhook.DeliveryFacts{RowID: 1, State: webhook.Pending, DueAt: due}
}

// inFront makes the subscription ordered, with a delivery in front: of the event 8, if it names no other.
func inFront(f webhook.FrontFacts) func(*explain.Receiver) {
	if f.Event == 0 {
		f.Event = 8
	}
	f.EventID = fmt.Sprintf("evt_%d", f.Event)
	return func(r *explain.Receiver) { r.Ordered, r.Front = true, &f }
}

// filtered is for an event that does not fulfil a condition of a filter, which has changed at that time.
func filtered(changedAt int64) func(*explain.Receiver) {
	return func(r *explain.Receiver) {
		r.Missed = &filter.Miss{Condition: filter.Condition{Path: "amount", Op: filter.GreaterOrEqual, Value: []byte("100")}, Seen: "99"}
		r.FilterChangedAt = &changedAt
	}
}

// attempt returns an attempt that ended.
func attempt(number int, outcome webhook.Outcome, text string) *webhook.Attempt {
	return &webhook.Attempt{ID: fmt.Sprintf("att_%d", number), Number: number, Outcome: outcome, Error: text, AttemptedAt: published + int64(number)*1000}
}

// ended returns a delivery that ended with a failed attempt.
func ended(state webhook.DeliveryState) webhook.DeliveryFacts {
	return webhook.DeliveryFacts{State: state, Attempts: 5, DueAt: published + 5_003, Last: attempt(5, webhook.Failed, "timeout")}
}

// with changes a subscription.
func with(r explain.Receiver, change func(*explain.Receiver)) explain.Receiver {
	change(&r)
	return r
}

func paused(r *explain.Receiver) {
	r.Health, r.DisabledAt = r.Deactivate("ana"), new(published+2000)
}

func disabled(r *explain.Receiver) {
	r.Health = webhook.Health{Status: webhook.Disabled, ConsecutiveFailures: 15, LastError: "timeout"}
}
func failing(r *explain.Receiver) {
	r.Health = webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 7, LastError: "timeout", ProbeAt: later}
}
func planless(r *explain.Receiver) {
	r.Webhooks, r.Event.Plan, r.Event.WebhookPlan = false, "free", "gold"
}

func held(r *explain.Receiver) {
	r.QueueHeld, r.Event.Hold = true, &webhook.Hold{Since: published, Reason: "a restored backup."}
}
func old(r *explain.Receiver)     { r.Event.Kept = time.Second }
func deleted(r *explain.Receiver) { r.DeletedAt = new(published + 5000) }

// explained is a receiver, and what its explanation must be. The detail is a part of it.
type explained struct {
	receiver explain.Receiver
	verdict  explain.Verdict
	detail   string
	advice   string
	next     *int64
	attempts int
}

const replay = "keyhook subscriptions replay sub_5 --since 2000-01-01T00:00:00.000Z --only "

func TestDeliveryOf(t *testing.T) {
	t.Parallel()
	checkExplained(t, map[string]explained{
		"a delivery that is due waits for a slot, and not for a time": {given(pending(now)), explain.Scheduled, "as soon as it has a free slot", "", nil, 0},
		"a delivery of the future has a time":                         {given(pending(later)), explain.Scheduled, "Attempt 1 follows at 2000-01-01T00:01:30.000Z.", "", new(later), 0},
		"an interrupted attempt is not the receiver's": {given(webhook.DeliveryFacts{State: webhook.Pending, DueAt: now, Attempts: 1, Last: attempt(1, webhook.Interrupted, "interrupted")}),
			explain.Scheduled, "A stop of Keyhook interrupted attempt 1", "", nil, 1},
		"what arrived has arrived, even if it is sent again": {given(pending(now), ended(webhook.Exhausted), webhook.DeliveryFacts{State: webhook.Delivered, Attempts: 2, Last: attempt(2, webhook.Succeeded, "")}),
			explain.Delivered, "Another delivery of the same event", "", nil, 7},
		"what is sent again after its last attempt is on its way":   {given(pending(later), ended(webhook.Exhausted)), explain.Scheduled, "Attempt 5 failed at 2000-01-01T00:00:05.000Z: timeout.", "", new(later), 5},
		"an attempt in progress comes before what waits and counts": {given(pending(later), webhook.DeliveryFacts{State: webhook.Pending, Sending: true, DueAt: now, Attempts: 1}), explain.Sending, "Attempt 2 began at 2000-01-01T00:01:00.000Z", "", nil, 2},
		"the first of several pending ones decides":                 {given(pending(later+1), pending(later)), explain.Scheduled, "2000-01-01T00:01:30.000Z", "", new(later), 0},

		"a pause comes before a plan and a held queue": {with(with(with(given(pending(now)), paused), planless), held), explain.HeldPaused,
			"paused at 2000-01-01T00:00:02.000Z by ana. The delivery waits until the subscription is resumed. Keyhook keeps it until 2000-01-02T00:00:00.000Z. Besides, the plan free has no webhooks. Besides, an operator has stopped all sending at 2000-01-01T00:00:00.000Z: a restored backup.",
			"keyhook subscriptions reactivate sub_5", nil, 0},
		"who pauses what failures have disabled is not in its last error": {with(with(given(pending(now)), disabled), paused), explain.HeldPaused,
			"The subscription was paused at 2000-01-01T00:00:02.000Z. The delivery waits", "keyhook subscriptions reactivate sub_5", nil, 0},
		"a plan comes before a held queue":                   {with(with(given(pending(now)), planless), held), explain.BlockedByPlan, "Besides, an operator", "keyhook organizations update org_3 --plan gold", nil, 0},
		"what is held says how long it waits":                {with(given(pending(now)), disabled), explain.HeldDisabled, "Keyhook keeps it until 2000-01-02T00:00:00.000Z.", "keyhook subscriptions recover sub_5", nil, 0},
		"without webhooks, the plan comes before a recovery": {with(with(given(pending(now)), disabled), planless), explain.HeldDisabled, "Besides, the plan free has no webhooks.", "keyhook organizations update org_3 --plan gold", nil, 0},
		"a command names the organization that one acts in":  {with(with(given(pending(now)), disabled), func(r *explain.Receiver) { r.ActFor = "org_3" }), explain.HeldDisabled, "15 failures", "keyhook subscriptions recover sub_5 --organization org_3", nil, 0},
		"a probe of a disabled subscription has a time": {with(given(pending(now)), func(r *explain.Receiver) {
			disabled(r)
			r.First, r.ProbedEvery, r.ProbeAt = new(int64(1)), time.Hour, later
		}), explain.HeldDisabled, "Keyhook tries this delivery soon after 2000-01-01T00:01:30.000Z. A success recovers the subscription.", "keyhook subscriptions recover sub_5", new(later), 0},
		"what waits for the probe of a disabled one has none": {with(given(pending(now)), func(r *explain.Receiver) {
			disabled(r)
			r.First, r.ProbedEvery, r.ProbeAt = new(int64(2)), time.Hour, later
		}), explain.HeldDisabled, "Keyhook tries one delivery soon after 2000-01-01T00:01:30.000Z.", "keyhook subscriptions recover sub_5", nil, 0},
		"the next probe has a time":              {with(given(pending(now)), func(r *explain.Receiver) { failing(r); r.First = new(int64(1)) }), explain.WaitingForProbe, "This delivery is the next one.", "keyhook subscriptions recover sub_5", new(later), 0},
		"the older of two is the next probe":     {with(given(webhook.DeliveryFacts{RowID: 2, State: webhook.Pending, DueAt: now}, pending(now)), func(r *explain.Receiver) { failing(r); r.First = new(int64(1)) }), explain.WaitingForProbe, "This delivery is the next one.", "keyhook subscriptions recover sub_5", new(later), 0},
		"what waits for another probe has none":  {with(given(pending(now)), func(r *explain.Receiver) { failing(r); r.First = new(int64(2)) }), explain.WaitingForProbe, "not before 2000-01-01T00:01:30.000Z", "keyhook subscriptions recover sub_5", nil, 0},
		"the highest pace is not raised further": {with(given(pending(now)), func(r *explain.Receiver) { r.RateLimitPerSecond = new(int64(webhook.MaxRateLimit)) }), explain.WaitingForPace, "10000 requests a second", "", nil, 0},
		"a pace is raised to the highest one":    {with(given(pending(now)), func(r *explain.Receiver) { r.RateLimitPerSecond = new(int64(9000)) }), explain.WaitingForPace, "9000 requests a second", "keyhook subscriptions update sub_5 --rate-limit-per-second 10000", nil, 0},
		"a retry with a pace has a time":         {with(given(pending(later)), func(r *explain.Receiver) { r.RateLimitPerSecond = new(int64(1)) }), explain.Scheduled, "", "", new(later), 0},

		"what failed is replayed":                         {given(ended(webhook.Exhausted)), explain.Exhausted, "Attempt 5 failed", replay + "failed", nil, 5},
		"what failed at a failing receiver is recovered":  {with(given(ended(webhook.Exhausted)), failing), explain.Exhausted, "The subscription is failing.", "keyhook subscriptions recover sub_5", nil, 5},
		"the failure that began the outage is recovered":  {with(given(ended(webhook.Exhausted)), func(r *explain.Receiver) { failing(r); r.FailingSince = published + 5_003 }), explain.Exhausted, "", "keyhook subscriptions recover sub_5", nil, 5},
		"what failed before the outage is replayed":       {with(given(ended(webhook.Exhausted)), func(r *explain.Receiver) { failing(r); r.FailingSince = now }), explain.Exhausted, "", replay + "failed", nil, 5},
		"what failed before a pause is replayed":          {with(given(ended(webhook.Exhausted)), paused), explain.Exhausted, "", replay + "failed", nil, 5},
		"what failed long ago is delivered again by hand": {with(with(given(ended(webhook.Exhausted)), failing), old), explain.Exhausted, "", "keyhook deliveries redeliver sub_5 att_5", nil, 5},
		"what failed and is unwanted now is redelivered":  {with(given(ended(webhook.Exhausted)), func(r *explain.Receiver) { r.EventTypes = webhook.Types{"user.created"} }), explain.Exhausted, "", "keyhook deliveries redeliver sub_5 att_5", nil, 5},
		"what failed and is filtered now is redelivered":  {with(given(ended(webhook.Exhausted)), filtered(now)), explain.Exhausted, "", "keyhook deliveries redeliver sub_5 att_5", nil, 5},
		"what failed needs a plan first":                  {with(given(ended(webhook.Exhausted)), planless), explain.Exhausted, "The plan free has no webhooks.", "keyhook organizations update org_3 --plan gold", nil, 5},
		"a failed test is tested again":                   {with(given(ended(webhook.Exhausted)), func(r *explain.Receiver) { r.Event.IsTest = true }), explain.Exhausted, "tests are not repeated", "keyhook subscriptions test sub_5", nil, 5},
		"what was discarded is delivered again":           {given(ended(webhook.Dropped)), explain.Dropped, "discarded", "keyhook deliveries redeliver sub_5 att_5", nil, 5},
		"what was discarded without an attempt is redelivered": {given(webhook.DeliveryFacts{State: webhook.Dropped}), explain.Dropped, "discarded while it waited.",
			"keyhook events redeliver --state dropped --subscription sub_5 --since 2000-01-01T00:00:00.000Z --audit", nil, 0},
		"audit events are dropped with audit_events": {with(given(webhook.DeliveryFacts{State: webhook.Dropped}), func(r *explain.Receiver) { r.Event.Type, r.AuditEvents = access.KeyCreated, false }),
			explain.Dropped, "stopped receiving audit events", "", nil, 0},
		"nothing mends a deleted subscription":               {with(given(ended(webhook.Exhausted)), deleted), explain.Exhausted, "timeout. The subscription was deleted at 2000-01-01T00:00:05.000Z.", "", nil, 5},
		"a deleted subscription is not changed":              {with(with(given(), deleted), func(r *explain.Receiver) { r.EventTypes = webhook.Types{"a"} }), explain.NotWanted, "wants a, but not order.paid. It was deleted at 2000-01-01T00:00:05.000Z.", "", nil, 0},
		"a deleted subscription gets no replay":              {with(with(given(), deleted), func(r *explain.Receiver) { r.Event.PlanLacked = true }), explain.PlanLackedWebhooks, "The plan growth has webhooks now.", "", nil, 0},
		"what waits for a deleted subscription is dropped":   {with(given(pending(later)), deleted), explain.Dropped, "deleted at 2000-01-01T00:00:05.000Z", "", nil, 0},
		"what failed before a deletion decides, as in lists": {with(given(pending(later), ended(webhook.Exhausted)), deleted), explain.Exhausted, "All attempts failed", "", nil, 5},
		"what a deletion dropped says so":                    {with(given(webhook.DeliveryFacts{State: webhook.Dropped}), deleted), explain.Dropped, "deleted at 2000-01-01T00:00:05.000Z, so its pending deliveries were dropped.", "", nil, 0},
		"what a closed subscription waits for too long goes": {with(with(given(pending(now)), paused), func(r *explain.Receiver) { r.Event.Expired = true }), explain.Expired, "longer than storage.retention_events", "", nil, 0},

		"an ordered subscription waits for a retry of the event in front": {with(given(pending(now)), inFront(webhook.FrontFacts{EventAt: published - 1000, Attempts: 1, DueAt: later})), explain.Scheduled,
			"in the order of publication. Event evt_8 is in front: its attempt 2 follows at 2000-01-01T00:01:30.000Z. " +
				"To send the later events without it, drop what was published up to then with `keyhook subscriptions discard sub_5 --before 1999-12-31T23:59:59.001Z`.", "", nil, 0},
		"an ordered subscription waits for the event that is being sent": {with(given(pending(now)), inFront(webhook.FrontFacts{Sending: true, DueAt: now})), explain.Scheduled,
			"Event evt_8 is in front: its attempt 1 began at 2000-01-01T00:01:00.000Z and is in progress.", "", nil, 0},
		"an ordered subscription waits for the turn of the event in front": {with(given(pending(now)), inFront(webhook.FrontFacts{DueAt: published})), explain.Scheduled,
			"its attempt 1 has been due since 2000-01-01T00:00:00.000Z.", "", nil, 0},
		"an ordered subscription with a pace": {with(with(given(pending(now)), inFront(webhook.FrontFacts{DueAt: published})), func(r *explain.Receiver) { r.RateLimitPerSecond = new(int64(2)) }),
			explain.WaitingForPace, "Event evt_8 is in front", "keyhook subscriptions update sub_5 --rate-limit-per-second 4", nil, 0},
		"an ordered subscription with a pace that waits for a retry": {with(with(given(pending(now)), inFront(webhook.FrontFacts{DueAt: later})), func(r *explain.Receiver) { r.RateLimitPerSecond = new(int64(2)) }),
			explain.Scheduled, "The delivery waits for its turn. The subscription is ordered", "", nil, 0},
		"an ordered subscription that is failing": {with(with(given(pending(now)), inFront(webhook.FrontFacts{DueAt: now})), func(r *explain.Receiver) { failing(r); r.ProbeAt = later }), explain.WaitingForProbe,
			"Event evt_8 is in front: its attempt 1 follows at 2000-01-01T00:01:30.000Z.", "keyhook subscriptions recover sub_5", nil, 0},
		"the event in front of an ordered subscription": {with(given(pending(later)), inFront(webhook.FrontFacts{Event: 9, DueAt: later})), explain.Scheduled,
			"Attempt 1 follows at 2000-01-01T00:01:30.000Z.", "", new(later), 0},
		"a redelivery does not wait for the event in front": {with(given(pending(now)), func(r *explain.Receiver) {
			inFront(webhook.FrontFacts{DueAt: later})(r)
			r.Deliveries[0].OutOfOrder = true
		}), explain.Scheduled, "as soon as it has a free slot", "", nil, 0},
	})
}

func TestWhatArrivedSaysWhen(t *testing.T) {
	t.Parallel()
	r := given(webhook.DeliveryFacts{State: webhook.Delivered, Attempts: 2, Last: attempt(2, webhook.Succeeded, "")})
	const want = "Delivered to Hooks.example.com:8443 at 2000-01-01T00:00:02.000Z: the receiver answered attempt 2 with 2xx."
	if got := r.Explain().Text(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNoDelivery has events that made no delivery.
func TestNoDelivery(t *testing.T) {
	t.Parallel()
	checkExplained(t, map[string]explained{
		"a subscription that was deleted before": {with(given(), func(r *explain.Receiver) { r.DeletedAt = new(published - 1) }), explain.NotWanted, "before the event", "", nil, 0},
		"a feed that the plan refuses": {with(given(), func(r *explain.Receiver) { r.URL = ""; planless(r) }), explain.InFeed,
			"The plan free has no webhooks, and the feed is refused", "keyhook organizations update org_3 --plan gold", nil, 0},
		"a test of another subscription": {with(given(), func(r *explain.Receiver) { r.Event.IsTest = true }), explain.NotWanted, "a test of another subscription", "", nil, 0},
		"the event about the creation":   {with(given(), func(r *explain.Receiver) { r.Event.About, r.Birth = 5, 9 }), explain.AboutItself, "about this subscription", "", nil, 0},
		"an event before the creation":   {with(given(), func(r *explain.Receiver) { r.Birth = 10 }), explain.CreatedLater, "created at 1999-12-31T23:59:59.000Z", "", nil, 0},
		"a type that is not wanted comes before a plan that had no webhooks": {with(given(), func(r *explain.Receiver) { r.EventTypes, r.Event.PlanLacked = webhook.Types{"a"}, true }),
			explain.NotWanted, "wants a, but not order.paid", "keyhook subscriptions update sub_5 --event-types a,order.paid", nil, 0},
		"a type with a star is quoted, so that no shell expands it": {with(given(), func(r *explain.Receiver) { r.EventTypes = webhook.Types{"user.*"} }),
			explain.NotWanted, "wants user.*, but not order.paid", "keyhook subscriptions update sub_5 --event-types 'user.*,order.paid'", nil, 0},
		"many types do not fit into a command": {with(given(), func(r *explain.Receiver) { r.EventTypes = webhook.Types(strings.Fields("a b c d e f g h i j k l")) }),
			explain.NotWanted, "wants a, b, c, d, e, f, g, h, i, j and 2 more types, but not order.paid. Add the type", "", nil, 0},
		"an audit event to a subscription without them": {with(given(), func(r *explain.Receiver) { r.Event.Type, r.AuditEvents = access.KeyCreated, false }),
			explain.NotWanted, "does not receive audit events", "keyhook subscriptions update sub_5 --audit-events=true", nil, 0},
		"a type that was added later":                                   {given(), explain.NotWanted, "wants order.paid now, but it did not", replay + "missed", nil, 0},
		"a type that was added later, and a plan without webhook":       {with(given(), planless), explain.NotWanted, "Nothing can be sent before", "keyhook organizations update org_3 --plan gold", nil, 0},
		"a plan that had no webhooks":                                   {with(given(), func(r *explain.Receiver) { r.Event.PlanLacked = true }), explain.PlanLackedWebhooks, "The plan growth has webhooks now. A replay", replay + "missed", nil, 0},
		"a plan that had no webhooks long ago":                          {with(with(given(), func(r *explain.Receiver) { r.Event.PlanLacked = true }), old), explain.PlanLackedWebhooks, "too old for a replay", "", nil, 0},
		"a type that was added later to an event that is being deleted": {with(with(given(), func(r *explain.Receiver) { r.Event.Expired = true }), old), explain.NotWanted, "too old for a replay", "", nil, 0},
		"an event that the filter stops": {with(given(), filtered(0)), explain.Filtered,
			"does not pass the filter of the subscription: amount gte 100. The event has 99. If the event should pass, change the filter. Then a replay sends this event too.", "", nil, 0},
		"an event that an older filter may have let pass": {with(given(), filtered(published+5)), explain.Filtered, "The filter has changed at 2000-01-01T00:00:00.005Z, after the event. Keyhook does not know", "", nil, 0},
		"an event that passes the present filter": {with(given(), func(r *explain.Receiver) { r.FilterChangedAt = new(published + 5) }), explain.Filtered,
			"after the event. The event passes the present filter. A replay sends what", replay + "missed", nil, 0},
		"a filter that is older than the event does not matter": {with(given(), func(r *explain.Receiver) { r.FilterChangedAt = new(published) }), explain.NotWanted, "wants order.paid now, but it did not", replay + "missed", nil, 0},
		"news about the health of another host": {with(given(), func(r *explain.Receiver) {
			r.Event.Type, r.Event.AboutURL = access.SubscriptionFailing, "https://other.example/"
		}), explain.AboutItself, "only to a limited number in a minute.", "", nil, 0},
		"news about the health of the same host": {with(given(), func(r *explain.Receiver) {
			r.Event.Type, r.Event.AboutURL = access.SubscriptionFailing, "https://hooks.example.com/"
		}), explain.AboutItself, "the same host, hooks.example.com", "", nil, 0},
	})
}

func checkExplained(t *testing.T, cases map[string]explained) {
	t.Helper()
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.receiver.Explain()
			if !strings.Contains(got.Text(), tt.detail) {
				t.Errorf("detail %q, want %q", got.Text(), tt.detail)
			}
			want := explain.Delivery{Verdict: tt.verdict, Detail: got.Detail, LastError: got.LastError, Hint: got.Hint, Mend: got.Mend, NextAttemptAt: tt.next, Attempts: tt.attempts}
			if command := explain.Command(got.Mend); command != tt.advice || got.Mend.Action != actionOf(tt.advice) {
				t.Errorf("the command of %s is %q, want %q", got.Mend.Action, command, tt.advice)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestAnExplanationHasAHint(t *testing.T) {
	t.Parallel()
	arrived := webhook.DeliveryFacts{State: webhook.Delivered, Last: attempt(1, webhook.Succeeded, "")}
	for name, tt := range map[string]struct {
		receiver explain.Receiver
		last     string
		hint     explain.Hint
	}{
		"of the last attempt":                      {given(ended(webhook.Exhausted)), "timeout", explain.TooSlow},
		"of a subscription without an attempt":     {with(given(pending(now)), failing), "timeout", explain.TooSlow},
		"but not of a pause":                       {with(given(pending(now)), paused), "", ""},
		"but not of an event that arrived":         {given(arrived), "", ""},
		"but not of one that is sent again":        {given(ended(webhook.Exhausted), arrived), "timeout", ""},
		"but not of an event that nobody wanted":   {with(given(), func(r *explain.Receiver) { failing(r); r.EventTypes = webhook.Types{"a"} }), "", ""},
		"but not of an attempt that was cut short": {given(webhook.DeliveryFacts{State: webhook.Pending, Last: attempt(1, webhook.Interrupted, "interrupted")}), "interrupted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tt.receiver.Explain(); got.LastError != tt.last || got.Hint != tt.hint {
				t.Errorf("%q with the hint %q", got.LastError, got.Hint)
			}
		})
	}
}

// TestPartsOfADetail: a page shows the cause and the remedy apart.
func TestPartsOfADetail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		receiver explain.Receiver
		want     string
	}{
		"what waits for a disabled subscription": {with(given(pending(now)), disabled), "what cause more remedy more"},
		"what waits for a failing one":           {with(given(pending(later)), failing), "what cause more more remedy"},
		"a pace":                                 {with(given(pending(now)), func(r *explain.Receiver) { r.RateLimitPerSecond = new(int64(2)) }), "what more remedy"},
		"a retry":                                {given(webhook.DeliveryFacts{State: webhook.Pending, DueAt: later, Attempts: 1, Last: attempt(1, webhook.Failed, "timeout")}), "what cause"},
		"what was given up":                      {with(given(ended(webhook.Exhausted)), failing), "what cause more remedy"},
		"what the plan lacks":                    {with(given(ended(webhook.Dropped)), planless), "what cause remedy"},
		"an event before the subscription":       {with(given(), func(r *explain.Receiver) { r.Birth = 10 }), "what more remedy"},
		"another type":                           {with(given(), func(r *explain.Receiver) { r.EventTypes = webhook.Types{"a"} }), "what remedy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := tt.receiver.Explain()
			kinds := []string{}
			for _, p := range d.Detail {
				kinds = append(kinds, string(p.Kind))
				if p.Text != strings.TrimSpace(p.Text) || !strings.HasSuffix(p.Text, ".") {
					t.Errorf("%s: %q is no sentence", p.Kind, p.Text)
				}
			}
			if got := strings.Join(kinds, " "); got != tt.want {
				t.Errorf("the parts are %s, want %s: %q", got, tt.want, d.Text())
			}
		})
	}
}

// TestDiscardKeepsLaterEvents checks that no discard is named that would drop the event itself, or one between it and the front.
func TestDiscardKeepsLaterEvents(t *testing.T) {
	t.Parallel()
	for front, want := range map[webhook.FrontFacts]bool{{EventAt: published - 1}: true, {EventAt: published - 1, SharesAt: true}: false, {EventAt: published}: false} {
		front.Attempts, front.DueAt = 1, later
		r := with(given(pending(now)), inFront(front))
		if detail := r.Explain().Text(); strings.Contains(detail, "subscriptions discard") != want || strings.Contains(detail, "A discard would drop a later event too") == want {
			t.Errorf("the event in front is from %d, the event from %d: %q", front.EventAt, published, detail)
		}
	}
}

// TestAnEventOfAClockThatWasAhead checks that no command has a time in the future, which the server refuses.
func TestAnEventOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	ahead := func(r *explain.Receiver) { r.Event.At = later }
	for name, r := range map[string]explain.Receiver{
		"exhausted": given(ended(webhook.Exhausted)), "dropped": given(webhook.DeliveryFacts{State: webhook.Dropped}), "missed": given(),
	} {
		r = with(r, ahead)
		if command := explain.Command(r.Explain().Mend); !strings.Contains(command, "--since 2000-01-01T00:01:00.000Z") {
			t.Errorf("%s: %q", name, command)
		}
	}
}

// actionOf returns the action that belongs to a command.
func actionOf(advice string) webhook.Action {
	for _, known := range []struct {
		part   string
		action webhook.Action
	}{
		{"subscriptions recover ", webhook.ActionRecover}, {"subscriptions reactivate ", webhook.ActionReactivate}, {"subscriptions test ", webhook.ActionTest},
		{"--plan ", webhook.ActionChangePlan}, {"queue release", webhook.ActionReleaseQueue}, {"--rate-limit-per-second ", webhook.ActionRaiseRateLimit},
		{"deliveries redeliver ", webhook.ActionRedeliver}, {"--state dropped ", webhook.ActionRedeliverDropped}, {"--only failed", webhook.ActionReplayFailed}, {"--only missed", webhook.ActionReplayMissed},
		{"--event-types ", webhook.ActionAddEventType}, {"--audit-events", webhook.ActionReceiveAuditEvents},
	} {
		if strings.Contains(advice, known.part) {
			return known.action
		}
	}
	return ""
}
