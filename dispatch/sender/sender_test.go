package sender_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Secrets that only the request may show. Each is part of the subscription's URL or signs the request.
const (
	secretPath    = "path-token-f00d"
	secretQuery   = "query-token-beef"
	currentSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldSecret     = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// attempt is what a test sends.
type attempt struct {
	target webhook.Target
	job    webhook.Job
}

// newAttempt makes an attempt to a URL.
func newAttempt(url string) *attempt {
	return &attempt{
		target: webhook.Target{
			Subscription: 7, ID: "sub_1", OrganizationID: "org_1", URL: url, Secret: webhook.KnownSecret(currentSecret),
			Gate: webhook.Gate{Health: webhook.Health{Status: webhook.Healthy, Epoch: 1}, Webhooks: true},
		},
		job: webhook.Job{
			Delivery: 3, Subscription: 7, EventID: "evt_1", EventType: "order.paid", Body: []byte(`{"n":1}`), Cause: webhook.ByTest,
		},
	}
}

// sendOne sends one attempt and checks that neither its record nor the log holds a secret. It may be sent to an http:// URL.
// Without a prefix and a timeout, the options get the usual ones.
func sendOne(t *testing.T, a *attempt, o sender.Options) webhook.Result {
	t.Helper()
	if o.HeaderPrefix == "" {
		o.HeaderPrefix = "X-Service"
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.AllowHTTP = true
	s := sender.New(o)
	sent := sender.Attempt{Target: s.Prepare(a.target), Job: a.job, Row: 1, Epoch: a.target.Epoch}
	s.Send(t.Context(), &sent)
	checkNoSecrets(t, sent.Result.Failure.String(), log.String())
	return sent.Result
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
	networks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	transport := egress.NewTransport(egress.Options{Policy: egress.Policy{AllowedNetworks: networks, AllowHTTP: true}})
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
			r := sendOne(t, newAttempt(url+"/?status="+strconv.Itoa(status)), sender.Options{Transport: transport})
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
		for location, host := range map[string]string{
			strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) + "/secret?secret": " to localhost" + strings.TrimPrefix(elsewhere.URL, "http://127.0.0.1"),
			"http://user:secret@169.254.169.254/latest/meta-data":                          " to 169.254.169.254", "/again": "", "//%zz": "",
			"https://" + strings.Repeat("a.", 200): "",
		} {
			for _, status := range []int{301, 302, 303, 307, 308} {
				var got atomic.Int64
				receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got.Add(1)
					http.Redirect(w, r, location, status)
				}))
				r := sendOne(t, newAttempt(secretURL(receiver.URL)), sender.Options{Transport: loopback(t)})
				receiver.Close()
				if r.Succeeded || r.Failure.String() != "http_status: "+strconv.Itoa(status)+host || got.Load() != 1 || followed.Load() != 0 {
					t.Errorf("%d to %s: %q, %d requests, %d followed", status, location, r.Failure.String(), got.Load(), followed.Load())
				}
			}
		}
	})
}

// deliver sends the attempt to a receiver and returns what the receiver got.
func deliver(t *testing.T, a *attempt, o sender.Options) (header http.Header, r *http.Request, body string) {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		b, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		header, r, body = q.Header, q, string(b)
	}))
	defer receiver.Close()
	a.target.URL = receiver.URL + "/hook?a=b"
	o.Transport = loopback(t)
	if got := sendOne(t, a, o); !got.Succeeded {
		t.Fatal(got.Failure.String())
	}
	return header, r, body
}

func TestRequest(t *testing.T) {
	t.Parallel()

	t.Run("a request has exactly the headers of the contract", func(t *testing.T) {
		t.Parallel()
		a := newAttempt("")
		a.job.Attempts = 2
		h, r, body := deliver(t, a, sender.Options{})
		if r.Method != http.MethodPost || r.ProtoMajor != 1 || r.URL.String() != "/hook?a=b" || body != string(a.job.Body) {
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
		a := newAttempt("")
		a.target.Previous, a.target.PreviousUntil = webhook.KnownSecret(oldSecret), time.Now().Add(time.Hour).UnixMilli()
		h, _, body := deliver(t, a, sender.Options{})
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

		a.target.PreviousUntil = time.Now().UnixMilli()
		h, _, _ = deliver(t, a, sender.Options{})
		if _, there := h["X-Service-Signature-Previous"]; there || len(strings.Fields(h.Get("Webhook-Signature"))) != 1 {
			t.Errorf("after the overlap: %v", h)
		}
	})

	t.Run("the header prefix is that of the settings", func(t *testing.T) {
		t.Parallel()
		h, _, _ := deliver(t, newAttempt(""), sender.Options{HeaderPrefix: "x-aCME"})
		if diff := cmp.Diff([]string{
			"Content-Length", "Content-Type", "User-Agent", "Webhook-Id", "Webhook-Signature", "Webhook-Timestamp",
			"X-Acme-Attempt", "X-Acme-Event-Id", "X-Acme-Event-Type", "X-Acme-Signature", "X-Acme-Timestamp",
		}, slices.Sorted(maps.Keys(h))); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("the body is the stored bytes", func(t *testing.T) {
		t.Parallel()
		for _, body := range []string{"x", "{\"a\" : \"\u00e9\\u00e9\"}\n", "\x00\xff\xfe", strings.Repeat("0123456789abcdef", 16<<10)} {
			a := newAttempt("")
			a.job.Body = []byte(body)
			h, r, got := deliver(t, a, sender.Options{})
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
		for range 10 {
			if r := sendOne(t, newAttempt(secretURL(receiver.URL)), sender.Options{Transport: transport}); !r.Succeeded || len(r.ResponseBody) != 2000 {
				t.Fatalf("%q, %d characters", r.Failure.String(), len(r.ResponseBody))
			}
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("%d connections for 10 attempts", n)
		}
	})
}
