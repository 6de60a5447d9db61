package server_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// engine is a server with a real store and a real dispatcher, in virtual time. Receivers replace the network.
type engine struct {
	*testServer
	*receivers
	owner access.Principal
	token string // an Authorization header of the owner
}

// newEngine makes an engine in a synctest bubble.
func newEngine(t *testing.T, change func(*storage.Options)) *engine {
	t.Helper()
	of := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	if change != nil {
		change(&of)
	}
	store, _ := storagetest.OpenWith(t, of)
	e := &engine{receivers: &receivers{answers: map[string]string{}, sent: map[string][]sentRequest{}}}
	d := dispatch.New(store, dispatch.Options{Transport: e.receivers, Policy: of.Policy, Logger: slog.New(slog.DiscardHandler)})
	store.Queue.Watch(d)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	e.testServer = build(t, func(o *server.Options) { o.Store, o.Tester, o.TokenRate = store, d, 100_000 })
	e.Store = store
	owner, token := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	e.owner, e.token = owner, servertest.Bearer(token)
	return e
}

// subscribe makes a subscription to a receiver. answer is "ok", "fails" or "hangs".
func (e *engine) subscribe(t *testing.T, host, answer string, types ...string) string {
	t.Helper()
	e.answer(host, answer)
	sub, _ := storagetest.Subscription(t, e.Store, e.owner, "https://"+host+"/hook", types...)
	pass(time.Second)
	return sub.ID
}

// publish publishes an event and gives it a second.
func (e *engine) publish(t *testing.T, eventType string) string {
	t.Helper()
	id := storagetest.Publish(t, e.Store, e.owner, eventType).ID
	pass(time.Second)
	return id
}

// patch changes a subscription.
func (e *engine) patch(t *testing.T, sub, change string) {
	t.Helper()
	e.Do(t, "PATCH /api/v1/webhooks/subscriptions/"+sub+"/", e.token, change).Want(t, 200, "")
	pass(time.Second)
}

// operate makes a request of the operator.
func (e *engine) operate(t *testing.T, line, body string) {
	t.Helper()
	if r := e.Do(t, line, servertest.Operator, body); r.StatusCode >= 300 {
		t.Fatalf("%s: %s", line, r.Text)
	}
	pass(time.Second)
}

// setPlan gives the organization a plan.
func (e *engine) setPlan(t *testing.T, plan string) {
	t.Helper()
	e.operate(t, "PATCH /api/v1/organizations/"+e.owner.Organization.ID+"/", `{"plan":"`+plan+`"}`)
}

// explained is an item of the response.
type explained struct {
	SubscriptionID string     `json:"subscription_id"`
	Host           string     `json:"url_host"`
	Verdict        string     `json:"verdict"`
	Detail         string     `json:"detail"`
	Action         *string    `json:"action"`
	Advice         *string    `json:"advice"`
	NextAttemptAt  *time.Time `json:"next_attempt_at"`
	Attempts       int        `json:"attempts"`
}

// states returns the states that the list of events counts for an event, if it has a delivery to one subscription.
func (e *engine) states(t *testing.T, event string) (found []string) {
	t.Helper()
	for _, row := range e.List(t, e.token, "/api/v1/events/?limit=200").Data {
		if row["id"] != event {
			continue
		}
		counts, _ := row["states"].(map[string]any)
		for state, n := range counts {
			if n != 0.0 && state != "held" { // those are pending too
				found = append(found, state)
			}
		}
	}
	return found
}

// advice returns the advice, or "" if it is null.
func (x explained) advice() string {
	if x.Advice == nil {
		return ""
	}
	return *x.Advice
}

// explainAll explains an event for all subscriptions, by id. It is empty if there is no such event.
func (e *engine) explainAll(t *testing.T, event string) map[string]explained {
	t.Helper()
	synctest.Wait()
	found := map[string]explained{}
	for cursor := ""; ; {
		r := e.Do(t, "GET /api/v1/events/"+event+"/explain/?limit=5"+cursor, e.token, "")
		if r.StatusCode == http.StatusNotFound {
			return nil
		}
		var page struct {
			Data []explained
			Next *string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(r.Text), &page); err != nil || r.StatusCode != 200 {
			t.Fatalf("explain: %d %s", r.StatusCode, r.Text)
		}
		for _, x := range page.Data {
			found[x.SubscriptionID] = x
			if x.NextAttemptAt != nil && x.NextAttemptAt.Before(time.Now()) {
				t.Errorf("the next attempt is in the past: %+v", x)
			}
		}
		if page.Next == nil {
			return found
		}
		cursor = "&cursor=" + *page.Next
	}
}

// explain explains an event for one subscription.
func (e *engine) explain(t *testing.T, event, sub string) explained {
	t.Helper()
	synctest.Wait()
	r := e.Do(t, "GET /api/v1/events/"+event+"/explain/?subscription_id="+sub, e.token, "").Want(t, 200, "")
	var page struct{ Data []explained }
	if err := json.Unmarshal([]byte(r.Text), &page); err != nil || len(page.Data) != 1 {
		t.Fatalf("explain: %s", r.Text)
	}
	return page.Data[0]
}

// follow does what an advice says, as the command would do it.
func (e *engine) follow(t *testing.T, advice string) {
	t.Helper()
	words := strings.Fields(advice)
	if len(words) < 4 && advice != "keyhook queue release" {
		t.Fatalf("advice %q", advice)
	}
	flags := map[string]string{}
	for i, word := range words {
		if name, value, joined := strings.Cut(word, "="); joined {
			flags[name] = value
		} else if strings.HasPrefix(word, "--") && i+1 < len(words) {
			flags[word] = strings.Trim(words[i+1], "'") // as a shell does
		}
	}
	const path = "/api/v1/webhooks/subscriptions/"
	as, line, body := e.token, "", ""
	switch strings.Join(words[1:3], " ") {
	case "queue release":
		as, line = servertest.Operator, "POST /api/v1/queue/release/"
	case "organizations update":
		as, line, body = servertest.Operator, "PATCH /api/v1/organizations/"+words[3]+"/", `{"plan":"`+flags["--plan"]+`"}`
	case "subscriptions recover":
		line, body = "POST "+path+words[3]+"/recover/", `{}`
	case "subscriptions reactivate":
		line, body = "PATCH "+path+words[3]+"/", `{"is_active":true}`
	case "subscriptions test":
		line = "POST " + path + words[3] + "/test/"
	case "subscriptions replay":
		line, body = "POST "+path+words[3]+"/replay/", `{"since":"`+flags["--since"]+`","only":"`+flags["--only"]+`"}`
	case "events redeliver":
		line = "POST /api/v1/webhooks/redeliver/"
		body = `{"state":"` + flags["--state"] + `","since":"` + flags["--since"] + `","subscription_id":"` + flags["--subscription"] + `"}`
	case "deliveries redeliver":
		line = "POST " + path + words[3] + "/deliveries/" + words[4] + "/redeliver/"
	case "subscriptions update":
		line = "PATCH " + path + words[3] + "/"
		switch {
		case flags["--event-types"] != "":
			body = `{"event_types":["` + strings.ReplaceAll(flags["--event-types"], ",", `","`) + `"]}`
		case flags["--rate-limit-per-second"] != "":
			body = `{"rate_limit_per_second":` + flags["--rate-limit-per-second"] + `}`
		case flags["--audit-events"] != "":
			body = `{"audit_events":` + flags["--audit-events"] + `}`
		}
	default:
		t.Fatalf("unknown advice %q", advice)
	}
	if r := e.Do(t, line, as, body); r.StatusCode >= 300 {
		t.Errorf("%s was refused: %s", advice, r.Text)
	}
}

// sentRequest is a request that a receiver got, and whether it accepted it.
type sentRequest struct {
	at       time.Time
	accepted bool
}

// receivers are a transport that finds receivers by host name.
type receivers struct {
	mu      sync.Mutex
	answers map[string]string
	sent    map[string][]sentRequest // by "event host"
}

// answer sets how a receiver answers.
func (r *receivers) answer(host, answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[host] = answer
}

// requests returns the requests about an event that a host got.
func (r *receivers) requests(event, host string) []sentRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]sentRequest{}, r.sent[event+" "+host]...)
}

// RoundTrip implements http.RoundTripper.
func (r *receivers) RoundTrip(q *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, q.Body); err != nil {
		return nil, err
	}
	key := q.Header.Get("Webhook-Id") + " " + q.URL.Host
	r.mu.Lock()
	answer := r.answers[q.URL.Host]
	r.sent[key] = append(r.sent[key], sentRequest{time.Now(), answer == "ok"})
	r.mu.Unlock()
	status := map[string]int{"ok": 200, "fails": 500}[answer]
	if answer == "hangs" {
		<-q.Context().Done()
		return nil, q.Context().Err()
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: q,
	}, nil
}

// policy has short series of failures.
var policy = webhook.Policy{MaxAttempts: 3, FailingAfter: 4, DisabledAfter: 6}

// pass lets time pass.
func pass(d time.Duration) { time.Sleep(d) }
