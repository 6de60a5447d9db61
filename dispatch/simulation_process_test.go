package dispatch_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/storagetest/seeds"
	"github.com/keyhook/keyhook/storage/webhook"
)

// A simulation replays: the same seed gives the same trace, byte for byte. For this,
//
//   - the steps, the jitter of retries and crypto/rand (so ids, secrets and signatures) come from the seed. crypto/rand has one seed for
//     the whole process, so each simulation runs in a process of its own. It has one processor;
//   - each request, each response and each call of the store by the dispatcher first takes up to 10 ms of virtual time, computed from
//     its name to the nanosecond. So two of them hardly ever happen at the same instant, at which Go wakes goroutines in a random order;
//   - the harness waits until all goroutines rest between changes that it makes at the same instant;
//   - the harness sorts the list of lanes, which has the random order of a map.
//
// The trace contains the steps, the requests with their headers, signatures and hashes of the bodies, the responses, and at the end
// the records of the attempts, all with virtual times.
//
// The trace does not contain the log, and not the order of reads and of upkeep in the store at the same instant. Nothing makes that
// order repeatable. Each call of the store has its own instant, so calls of the dispatcher never share a commit here. Only events that
// are published at once share one (see publishSome). Under the race detector a seed does not replay, because the detector makes Go's
// scheduler random. So there nothing is delayed, all processors run, and calls share commits as they do in production.

// simulate runs simulations of the test; see seeds.Run.
func simulate(t *testing.T, run func(t *testing.T, seed int, r *trace)) {
	t.Helper()
	seeds.Run(t, 3, func(t *testing.T, seed int, r *seeds.Trace) { run(t, seed, &trace{r}) })
}

// trace is what a simulation did. The methods of a nil trace do nothing: only simulations have one.
type trace struct{ of *seeds.Trace }

func (r *trace) note(format string, args ...any) {
	if r != nil {
		r.of.Note(format, args...)
	}
}

// delay takes up to 10 ms of virtual time, by the name of what is to happen.
func (r *trace) delay(name ...any) {
	if r != nil {
		r.of.Delay(name...)
	}
}

// exchange lets a receiver answer a request, and notes both.
func (r *trace) exchange(q *http.Request, body []byte, a handler) (*http.Response, error) {
	if r == nil {
		return a(q)
	}
	event, attempt := q.Header.Get("X-Service-Event-Id"), q.Header.Get("X-Service-Attempt")
	r.delay("request", q.URL.Host, event, attempt)
	var headers strings.Builder
	for _, name := range slices.Sorted(maps.Keys(q.Header)) {
		fmt.Fprintf(&headers, " %s=%s", name, strings.Join(q.Header[name], ","))
	}
	r.note("request %s%s %x", q.URL, headers.String(), sha256.Sum256(body))
	p, err := a(q)
	r.delay("response", q.URL.Host, event, attempt)
	status := 0
	if p != nil {
		status = p.StatusCode
	}
	r.note("response %s %s %s %d %v", q.URL.Host, event, attempt, status, err)
	return p, err
}

// records notes the records of the subscription's attempts.
func (r *trace) records(t *testing.T, x *fixture, host string, sub webhook.Subscription) {
	for _, a := range x.attempts(t, sub) {
		r.note("record %s %s %d %s %s %d", host, a.EventID, a.Number, a.Trigger, a.Outcome, a.AttemptedAt)
	}
}
