package dispatch_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Secrets that only the request may show. Each is part of the subscription's URL or signs the request.
const (
	secretPath    = "path-token-f00d"
	secretQuery   = "query-token-beef"
	currentSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldSecret     = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// oneTestStore is a store with one test attempt.
type oneTestStore struct {
	target webhook.Target
	job    webhook.Job
	result webhook.Result
}

func (l *oneTestStore) BeginTest(context.Context, int64, string) (webhook.Target, webhook.Job, int64, error) {
	return l.target, l.job, 1, nil
}

func (l *oneTestStore) SubscriptionRow(context.Context, int64, string) (int64, error) { return 1, nil }

func (l *oneTestStore) Record(_ context.Context, results ...webhook.Result) ([]webhook.Settled, error) {
	l.result = results[0]
	return []webhook.Settled{{State: webhook.Exhausted}}, nil
}

func (l *oneTestStore) Attempt(context.Context, int64) (webhook.Attempt, error) {
	return webhook.Attempt{}, nil
}
func (l *oneTestStore) Lanes(context.Context) ([]webhook.Lane, error) { return nil, nil }
func (l *oneTestStore) UndoBegin(context.Context, []int64) error      { return nil }
func (l *oneTestStore) Begin(context.Context, []webhook.Start) ([]int64, error) {
	panic("nothing is due")
}
func (l *oneTestStore) Target(context.Context, int64) (webhook.Target, error) {
	panic("nothing is due")
}
func (l *oneTestStore) OrderedJobs(context.Context, int64, int) ([]webhook.Job, error) {
	panic("nothing is due")
}
func (l *oneTestStore) PendingJobs(context.Context, int64, int, []int64) ([]webhook.Job, error) {
	panic("nothing is due")
}

// newOneTestStore makes the store for one attempt to a URL.
func newOneTestStore(url string) *oneTestStore {
	return &oneTestStore{
		target: webhook.Target{
			Subscription: 7, ID: "sub_1", OrganizationID: "org_1", URL: url, Secret: webhook.KnownSecret(currentSecret), Open: true,
			Health: webhook.Health{Status: webhook.Healthy, Epoch: 1},
		},
		job: webhook.Job{
			Delivery: 3, Subscription: 7, EventID: "evt_1", EventType: "order.paid", Body: []byte(`{"n":1}`), Cause: webhook.ByTest,
		},
	}
}

// sendOne sends one attempt and checks that neither its record nor the log holds a secret.
func sendOne(t *testing.T, l *oneTestStore, o dispatch.Options) webhook.Result {
	t.Helper()
	if configured, ok := o.Transport.(*http.Transport); ok {
		o.Transport = egress.NewDirect(configured) // as main does
	}
	var log logBuffer
	o.Logger = log.logger()
	o.AllowHTTP = true
	d, err := dispatch.New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	_, err = d.Test(ctx, 1, "sub_1")
	cancel()
	running.Wait()
	if err != nil {
		t.Fatal(err)
	}
	checkNoSecrets(t, l.result.Failure.String(), log.String())
	return l.result
}

// checkNoSecrets fails the test if a text holds a secret.
func checkNoSecrets(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, secret := range []string{secretPath, secretQuery, currentSecret, oldSecret, "127.0.0.1", "::1", "Authorization"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in %q", secret, text)
			}
		}
	}
}

func secretURL(base string) string { return base + "/" + secretPath + "?token=" + secretQuery }

func loopback(tb testing.TB) *http.Transport {
	tb.Helper()
	transport := egress.NewTransport(egress.Options{Policy: egress.Policy{AllowedNetworks: loopbackNetworks, AllowHTTP: true}})
	tb.Cleanup(transport.CloseIdleConnections)
	return transport
}

// rawServer reads a request from each connection and passes both to serve.
func rawServer(tb testing.TB, serve func(c net.Conn, r *http.Request)) (url string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				serve(c, r)
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return "http://" + l.Addr().String()
}

func TestStatus(t *testing.T) {
	t.Parallel()

	t.Run("only statuses from 200 to 299 are success", func(t *testing.T) {
		t.Parallel()
		url := rawServer(t, func(c net.Conn, r *http.Request) {
			fmt.Fprintf(c, "HTTP/1.1 %s Whatever\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", r.URL.Query().Get("status"))
		})
		transport := loopback(t)
		for status := 100; status <= 599; status++ {
			r := sendOne(t, newOneTestStore(url+"/?status="+strconv.Itoa(status)), dispatch.Options{Transport: transport})
			switch {
			case status < 200 && status != http.StatusSwitchingProtocols: // announces another response, which never comes
				if r.Succeeded || r.ResponseStatus != nil || !strings.HasPrefix(r.Failure.String(), "connect_error: ") {
					t.Errorf("%d: %+v", status, r)
				}
			case status >= 200 && status <= 299:
				if !r.Succeeded || *r.ResponseStatus != status || r.Failure.String() != "" {
					t.Errorf("%d: %+v", status, r)
				}
			default:
				if r.Succeeded || *r.ResponseStatus != status || r.Failure.String() != "http_status: "+strconv.Itoa(status) {
					t.Errorf("%d: %+v", status, r)
				}
			}
		}
	})

	t.Run("a redirect is a failure and is not followed", func(t *testing.T) {
		t.Parallel()
		var followed atomic.Int64
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
		defer elsewhere.Close()
		for _, location := range []string{elsewhere.URL, "http://169.254.169.254/latest/meta-data", "/again"} {
			for _, status := range []int{301, 302, 303, 307, 308} {
				var got atomic.Int64
				receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got.Add(1)
					http.Redirect(w, r, location, status)
				}))
				r := sendOne(t, newOneTestStore(secretURL(receiver.URL)), dispatch.Options{Transport: loopback(t)})
				receiver.Close()
				if r.Succeeded || r.Failure.String() != "http_status: "+strconv.Itoa(status) || got.Load() != 1 || followed.Load() != 0 {
					t.Errorf("%d to %s: %q, %d requests, %d followed", status, location, r.Failure.String(), got.Load(), followed.Load())
				}
			}
		}
	})
}

// deliver sends the store's attempt to a receiver and returns what the receiver got.
func deliver(t *testing.T, l *oneTestStore, o dispatch.Options) (header http.Header, r *http.Request, body string) {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		b, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		header, r, body = q.Header, q, string(b)
	}))
	defer receiver.Close()
	l.target.URL = receiver.URL + "/hook?a=b"
	o.Transport = loopback(t)
	if got := sendOne(t, l, o); !got.Succeeded {
		t.Fatal(got.Failure.String())
	}
	return header, r, body
}

func TestRequest(t *testing.T) {
	t.Parallel()

	t.Run("a request has exactly the headers of the contract", func(t *testing.T) {
		t.Parallel()
		l := newOneTestStore("")
		l.job.Attempts = 2
		h, r, body := deliver(t, l, dispatch.Options{})
		if r.Method != http.MethodPost || r.ProtoMajor != 1 || r.URL.String() != "/hook?a=b" || body != string(l.job.Body) {
			t.Errorf("got %s %s %s: %s", r.Method, r.URL, r.Proto, body)
		}
		at, err := strconv.ParseInt(h.Get("X-Service-Timestamp"), 10, 64)
		if now := time.Now().Unix(); err != nil || at > now || at < now-10 {
			t.Errorf("timestamp %q, now it is %d", h.Get("X-Service-Timestamp"), now)
		}
		if err := signature.Verify(currentSecret, h, []byte(body), time.Unix(at, 0), 0); err != nil {
			t.Error(err)
		}
		if err := signature.VerifyStandard(currentSecret, h, []byte(body), time.Unix(at, 0), 0); err != nil {
			t.Error(err)
		}
		want := http.Header{
			"Content-Type": {"application/json"}, "User-Agent": {"Keyhook/1 (webhooks)"}, "Content-Length": {strconv.Itoa(len(body))},
			"X-Service-Event-Id": {"evt_1"}, "Webhook-Id": {"evt_1"}, "X-Service-Event-Type": {"order.paid"}, "X-Service-Attempt": {"3"},
			"X-Service-Timestamp": {strconv.FormatInt(at, 10)}, "Webhook-Timestamp": {strconv.FormatInt(at, 10)},
			"X-Service-Signature": h["X-Service-Signature"], "Webhook-Signature": h["Webhook-Signature"],
		}
		if diff := cmp.Diff(want, h); diff != "" {
			t.Error(diff)
		}
		if sig := h.Get("X-Service-Signature"); len(sig) != 64 || strings.Trim(sig, "0123456789abcdef") != "" {
			t.Errorf("signature %q is not lower-case hex", sig)
		}
	})

	t.Run("a request is signed with both secrets in an overlap, then only with the new one", func(t *testing.T) {
		t.Parallel()
		l := newOneTestStore("")
		l.target.Previous, l.target.PreviousUntil = webhook.KnownSecret(oldSecret), time.Now().Add(time.Hour).UnixMilli()
		h, _, body := deliver(t, l, dispatch.Options{})
		for _, secret := range []string{currentSecret, oldSecret} {
			if err := signature.VerifyStandard(secret, h, []byte(body), time.Now(), time.Minute); err != nil {
				t.Error(err)
			}
			if err := signature.Verify(secret, h, []byte(body), time.Now(), time.Minute); err != nil {
				t.Error(err)
			}
		}
		if n := len(strings.Fields(h.Get("Webhook-Signature"))); n != 2 {
			t.Errorf("%d signatures, want 2", n)
		}
		if len(h.Get("X-Service-Signature-Previous")) != 64 || h.Get("X-Service-Signature-Previous") == h.Get("X-Service-Signature") {
			t.Errorf("previous signature %q", h.Get("X-Service-Signature-Previous"))
		}

		l.target.PreviousUntil = time.Now().UnixMilli()
		h, _, _ = deliver(t, l, dispatch.Options{})
		if _, there := h["X-Service-Signature-Previous"]; there || len(strings.Fields(h.Get("Webhook-Signature"))) != 1 {
			t.Errorf("after the overlap: %v", h)
		}
	})

	t.Run("the header prefix is that of the settings", func(t *testing.T) {
		t.Parallel()
		h, _, _ := deliver(t, newOneTestStore(""), dispatch.Options{HeaderPrefix: "x-aCME"})
		if diff := cmp.Diff([]string{
			"Content-Length", "Content-Type", "User-Agent", "Webhook-Id", "Webhook-Signature", "Webhook-Timestamp",
			"X-Acme-Attempt", "X-Acme-Event-Id", "X-Acme-Event-Type", "X-Acme-Signature", "X-Acme-Timestamp",
		}, slices.Sorted(maps.Keys(h))); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("the body is the stored bytes", func(t *testing.T) {
		t.Parallel()
		for _, body := range []string{"", "x", "{\"a\" : \"\u00e9\\u00e9\"}\n", "\x00\xff\xfe", strings.Repeat("0123456789abcdef", 16<<10)} {
			l := newOneTestStore("")
			l.job.Body = []byte(body)
			h, r, got := deliver(t, l, dispatch.Options{})
			if got != body || r.ContentLength != int64(len(body)) {
				t.Errorf("%d bytes became %d, announced as %d", len(body), len(got), r.ContentLength)
			}
			if err := signature.Verify(currentSecret, h, []byte(body), time.Now(), time.Minute); err != nil {
				t.Error(err)
			}
		}
	})

	t.Run("requests share one connection while the receiver keeps it open", func(t *testing.T) {
		t.Parallel()
		var connections atomic.Int64
		receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, strings.Repeat("x", 8000))
		}))
		receiver.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		}
		receiver.Start()
		defer receiver.Close()
		transport := loopback(t)
		keep := keepIdleConnections{egress.NewDirect(transport)}
		for range 10 {
			if r := sendOne(t, newOneTestStore(secretURL(receiver.URL)), dispatch.Options{Transport: keep}); !r.Succeeded || len(r.ResponseBody) != 2000 {
				t.Fatalf("%q, %d characters", r.Failure.String(), len(r.ResponseBody))
			}
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("%d connections for 10 attempts", n)
		}
	})
}

// keepIdleConnections stops a dispatcher from closing the idle connections of a transport.
type keepIdleConnections struct{ http.RoundTripper }
