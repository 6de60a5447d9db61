// Package demo owns the command that shows the whole of Keyhook in a few seconds. It uses only the HTTP API of a server that
// it starts, and checks everything that it shows.
package demo

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/child"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// New returns the command demo. schema is the text of schema.sql.
func New(schema string) *cobra.Command {
	keep := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show all of Keyhook in a few seconds, in a temporary directory",
		Long: `Show all of Keyhook in a few seconds. The demo starts a server and a receiver in a temporary directory. It creates an
API key and a subscription. It publishes events, and lets deliveries fail and recover. Then it revokes the key. Each
step prints what it did and what it checked. At the end, the demo removes the directory. The exit code is 0 only if
every check passed.

With --keep, the demo checks nothing. It makes a server with a week of data of four invented companies, and leaves it
running until you stop it: to look at the console.`,
		Example: `  keyhook demo
  keyhook demo --keep`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Without this, the server would outlive the demo: it is in a process group of its own.
			stopped, _ := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			if keep {
				return leaveRunning(stopped, schema, cmd.OutOrStdout())
			}
			ctx, cancel := context.WithTimeoutCause(stopped, limit, fmt.Errorf("the demo took longer than %s", limit))
			defer cancel()
			err := run(ctx, cmd.OutOrStdout())
			if err != nil && stopped.Err() != nil {
				return errors.New("the demo was interrupted; its temporary directory is removed")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave a server running that has a week of data")
	return cmd
}

// The time limits of the whole demo, and of each wait in it.
const (
	limit = time.Minute
	wait  = 15 * time.Second
)

// run runs the steps until one fails.
func run(ctx context.Context, out io.Writer) (err error) {
	began := time.Now()
	dir, err := child.Directory("keyhook-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &demo{out: out}
	certificate := filepath.Join(dir, "receiver.pem")
	if s.receiver, err = newReceiver(certificate); err != nil {
		return fmt.Errorf("cannot write the certificate of the receiver: %w", err)
	}
	defer s.receiver.Close()
	s.server, err = child.Start(ctx, dir, "KEYHOOK_EGRESS_CA_FILE="+certificate, "KEYHOOK_WEBHOOKS_RETRY_BASE=300ms")
	if err != nil {
		return err
	}
	defer s.server.Kill()
	s.operator = client.Client{Base: s.server.URL, Authorization: "Bearer " + s.server.Token}
	for i, step := range []struct {
		title string
		run   func(context.Context)
	}{
		{"A server and a receiver", s.begin},
		{"The operator creates a customer", s.customer},
		{"The customer creates an API key with fewer permissions", s.key},
		{"The customer subscribes to events", s.subscribe},
		{"An event is signed and delivered", s.deliver},
		{"The receiver fails twice and recovers", s.retry},
		{"The API key is revoked", s.revoke},
		{"The server stops without losing anything", s.stop},
	} {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, step.title)
		if step.run(ctx); s.err != nil {
			return fmt.Errorf("step %d (%s): %w\n\nThe last lines of the server's log:\n%s", i+1, step.title, s.err, s.server.Tail())
		}
	}
	fmt.Fprintf(out, "\nAll checks passed, in %.1f s.\n", time.Since(began).Seconds())
	return nil
}

// demo is the state that the steps share.
type demo struct {
	out      io.Writer
	server   *child.Server
	receiver *receiver
	err      error // the first failure of a step; call, check, next and say do nothing after it

	operator, owner, holder client.Client // with the operator's token, the customer's token, and the customer's API key
	keyID                   string
	subscription            string
	secret                  string
}

type object = map[string]any

// answer has the members of all responses that the steps look at.
type answer struct {
	ID          string    `json:"id"`
	Token       string    `json:"token"`
	Key         string    `json:"key"`
	Prefix      string    `json:"key_prefix"`
	Scope       string    `json:"scope"`
	Secret      string    `json:"secret"`
	Status      string    `json:"status"`
	Failures    int       `json:"consecutive_failures"`
	Deliveries  int       `json:"deliveries"`
	Data        []attempt `json:"data"`
	Permissions []string  `json:"permissions"`
	User        struct {
		Name string `json:"name"`
	} `json:"user"`
}

// call makes a request with one of the credentials. Any other status than the expected one is a failure.
func (s *demo) call(ctx context.Context, as client.Client, method, path string, body any, status int) (got answer) {
	if s.err == nil {
		s.err = as.Call(ctx, method, "/api/v1/"+path, body, status, &got)
	}
	return got
}

func (s *demo) check(ok bool, format string, args ...any) {
	if s.err == nil && !ok {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *demo) say(format string, args ...any) {
	if s.err == nil {
		fmt.Fprintf(s.out, "   "+format+"\n", args...)
	}
}

func (s *demo) begin(ctx context.Context) {
	me := s.call(ctx, s.operator, "GET", "whoami/", nil, http.StatusOK)
	s.say("One process serves %s from one file, %s.", s.server.URL, filepath.Base(s.server.Database))
	s.say("An HTTPS receiver listens at %s. The server trusts its certificate.", s.receiver.URL)
	s.say("The bootstrap token belongs to the operator %q, who has %d permissions.", me.User.Name, len(me.Permissions))
}

func (s *demo) customer(ctx context.Context) {
	organization := s.call(ctx, s.operator, "POST", "organizations/", object{"name": "Acme", "plan": "growth"}, http.StatusCreated)
	user := s.call(ctx, s.operator, "POST", "users/", object{"email": "dev@acme.example", "name": "Acme's developer"}, http.StatusCreated)
	member := "organizations/" + organization.ID + "/members/" + user.ID + "/"
	s.call(ctx, s.operator, "PUT", member, object{"role": "owner"}, http.StatusOK)
	tokens := "users/" + user.ID + "/access-tokens/"
	token := s.call(ctx, s.operator, "POST", tokens, object{"organization_id": organization.ID}, http.StatusCreated)
	s.owner = client.Client{Base: s.server.URL, Authorization: "Bearer " + token.Token}
	s.say("The organization Acme has the plan growth and one member, with the role owner and an access token.")
	s.call(ctx, s.owner, "GET", "plans/", nil, http.StatusForbidden)
	s.say("Checked: that token works in Acme, but not for the operator's own endpoints (403).")
}

func (s *demo) key(ctx context.Context) {
	wanted := object{"name": "backend", "scope": "events:write platform:write"}
	key := s.call(ctx, s.owner, "POST", "api-keys/", wanted, http.StatusCreated)
	s.check(key.Scope == "events:write", "the granted scope is %q", key.Scope)
	s.keyID = key.ID
	s.holder = client.Client{Base: s.server.URL, Authorization: "ApiKey " + key.Key}
	s.say("Requested the scope %q, got %q. Nobody can grant a permission that they do not have.", wanted["scope"], key.Scope)
	s.say("The key was shown once. From now on only its prefix is shown: %s", key.Prefix)
	s.call(ctx, s.holder, "GET", "webhooks/subscriptions/", nil, http.StatusForbidden)
	s.say("Checked: the key cannot read subscriptions, although its creator can (403).")
}

func (s *demo) subscribe(ctx context.Context) {
	wanted := object{"url": s.receiver.URL, "event_types": []string{"order.*"}}
	sub := s.call(ctx, s.owner, "POST", "webhooks/subscriptions/", wanted, http.StatusCreated)
	s.check(sub.Status == "healthy", "the new subscription is %q", sub.Status)
	s.subscription, s.secret = "webhooks/subscriptions/"+sub.ID+"/", sub.Secret
	s.say("%s receives all events \"order.*\". Its signing secret was shown once.", s.receiver.URL)
}

func (s *demo) revoke(ctx context.Context) {
	s.call(ctx, s.owner, "DELETE", "api-keys/"+s.keyID+"/", nil, http.StatusNoContent)
	s.call(ctx, s.holder, "POST", "events/", object{"type": "order.paid", "data": object{}}, http.StatusUnauthorized)
	s.say("Checked: the next request with the key was refused (401).")
}

func (s *demo) stop(ctx context.Context) {
	s.err = s.server.Stop(ctx)
	s.say("Checked: after SIGTERM the server finished its work and exited with code 0.")
}

// publish publishes an event with the API key and returns its id.
func (s *demo) publish(ctx context.Context, eventType string, data object) (id string) {
	event := s.call(ctx, s.holder, "POST", "events/", object{"type": eventType, "data": data}, http.StatusAccepted)
	s.check(event.Deliveries == 1, "the event went to %d subscriptions instead of 1", event.Deliveries)
	return event.ID
}

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
