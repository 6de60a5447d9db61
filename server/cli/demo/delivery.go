package demo

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
)

// publish publishes an event with the API key and returns its id.
func (s *demo) publish(ctx context.Context, eventType string, data object) (id string) {
	event := s.call(ctx, s.holder, "POST", "events/", object{"type": eventType, "data": data}, http.StatusAccepted)
	s.check(event.Deliveries == 1, "the event went to %d subscriptions instead of 1", event.Deliveries)
	return event.ID
}

// next waits for a delivery.
func (s *demo) next(ctx context.Context) (got delivery) {
	if s.err != nil {
		return got
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("no delivery arrived within %s", wait))
	defer cancel()
	select {
	case got = <-s.receiver.got:
	case <-ctx.Done():
		s.err = context.Cause(ctx)
	}
	return got
}

func (s *demo) deliver(ctx context.Context) {
	began := time.Now()
	id := s.publish(ctx, "order.created", object{"number": 1001, "total": "19.90"})
	s.say("Published order.created with the API key: %s", id)
	got := s.next(ctx)
	s.say("The receiver got it %.1f ms later:", time.Since(began).Seconds()*1000)
	s.say("    X-Service-Signature  %s", output.Shorten(got.header.Get("X-Service-Signature"), 25))
	s.say("    webhook-signature    %s", output.Shorten(got.header.Get("webhook-signature"), 25))
	s.say("    %s", got.body)
	delivered := got.header.Get("X-Service-Event-Id")
	s.check(delivered == id, "the event is %q instead of %q", delivered, id)
	s.verify(got)
	s.say("Checked: both signatures are right. They are wrong for a body with one changed byte.")
}

// verify checks the signatures of a delivery in both schemes, and that they are wrong for a body with one changed byte.
func (s *demo) verify(got delivery) {
	if s.err != nil {
		return
	}
	forged := slices.Clone(got.body)
	forged[len(forged)/2] ^= 1
	verifier := signature.Verifier{Secrets: []string{s.secret}}
	for name, verify := range map[string]func(http.Header, []byte, time.Time) error{
		"hex": verifier.Verify, "Standard Webhooks": verifier.VerifyStandard,
	} {
		err := verify(got.header, got.body, time.Now())
		s.check(err == nil, "the %s signature of attempt %s: %w", name, got.header.Get("X-Service-Attempt"), err)
		s.check(verify(got.header, forged, time.Now()) != nil, "the %s signature is right for a changed body", name)
	}
}

func (s *demo) retry(ctx context.Context) {
	s.receiver.failures.Store(2)
	id := s.publish(ctx, "order.paid", object{"number": 1001})
	s.say("Published order.paid: %s. The receiver responds with 503 twice.", id)
	for range 3 {
		got := s.next(ctx)
		s.verify(got)
		s.say("    attempt %s: status %d", got.header.Get("X-Service-Attempt"), got.status)
	}
	outcomes := []string{}
	for _, a := range s.log(ctx, id, 3) { // newest first
		outcomes = append(outcomes, fmt.Sprintf("attempt %d %s", a.Number, a.Outcome))
	}
	found := strings.Join(outcomes, ", ")
	s.check(found == "attempt 3 succeeded, attempt 2 failed, attempt 1 failed", "the log is %q", found)
	sub := s.call(ctx, s.owner, "GET", s.subscription, nil, http.StatusOK)
	s.check(sub.Status == "healthy" && sub.Failures == 0, "the subscription is %s with %d failures", sub.Status, sub.Failures)
	s.say("Checked: each attempt is in the log (%s), and the subscription is healthy again.", found)
}

// attempt is one line of the delivery log.
type attempt struct {
	Number  int    `json:"attempt_number"`
	Outcome string `json:"outcome"`
}

// log returns the attempts for an event. It waits until the last of n has a result, which is recorded after the response.
func (s *demo) log(ctx context.Context, event string, n int) []attempt {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("the log does not show %d attempts after %s", n, wait))
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); s.err == nil; {
		page := s.call(ctx, s.owner, "GET", s.subscription+"deliveries/?event_id="+event, nil, http.StatusOK)
		if len(page.Data) == n && page.Data[0].Outcome != "sending" {
			return page.Data
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.err = context.Cause(ctx)
		}
	}
	return nil
}

// delivery is one request that the receiver got.
type delivery struct {
	header http.Header
	body   []byte
	status int // of the response
}

// receiver is an HTTPS server that keeps the deliveries it gets, and fails on demand.
type receiver struct {
	*httptest.Server
	got      chan delivery
	failures atomic.Int64 // so many more deliveries fail
}

// newReceiver starts a receiver, and writes its certificate to a file for the server to trust. The certificate is that of the standard
// library for the loopback address.
func newReceiver(file string) (*receiver, error) {
	r := &receiver{got: make(chan delivery, 16)}
	r.Server = httptest.NewTLSServer(r)
	return r, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}), 0o600)
}

// ServeHTTP keeps the delivery and responds with 204, or with 503 while failures last.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status := http.StatusNoContent
	if r.failures.Add(-1) >= 0 {
		status = http.StatusServiceUnavailable
	}
	r.got <- delivery{req.Header.Clone(), body, status}
	w.WriteHeader(status)
}
