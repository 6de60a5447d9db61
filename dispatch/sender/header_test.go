package sender_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/webhook"
)

func ownHeaders(pairs ...string) (list []webhook.Header) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, webhook.Header{Name: pairs[i], Value: redact.New(pairs[i+1])})
	}
	return list
}

func TestOwnHeaders(t *testing.T) {
	t.Parallel()
	t.Run("are sent beside Keyhook's headers, and change none of them", func(t *testing.T) {
		t.Parallel()
		plain, _, _ := deliver(t, newAttempt(""), sender.Options{})
		a := newAttempt("")
		a.target.Headers = ownHeaders("Authorization", "Bearer abc", "x-tenant", "seven", "x-service-signature", "forged", "User-Agent", "forged")
		got, _, _ := deliver(t, a, sender.Options{})
		if got.Get("Authorization") != "Bearer abc" || got.Get("X-Tenant") != "seven" {
			t.Errorf("sent %v", got)
		}
		for _, h := range []http.Header{plain, got} {
			for _, name := range []string{"Authorization", "X-Tenant", "X-Service-Signature", "X-Service-Timestamp", "Webhook-Signature", "Webhook-Timestamp"} {
				if strings.HasSuffix(name, "-Signature") && len(h.Values(name)) != 1 || strings.Contains(h.Get(name), "forged") {
					t.Errorf("%s: %q", name, h.Values(name))
				}
				h.Del(name) // these differ from one attempt to the next
			}
		}
		if d := cmp.Diff(plain, got); d != "" {
			t.Errorf("the other headers (-without own headers +with):\n%s", d)
		}
	})
	t.Run("are masked in the stored response of a receiver that returns the request", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("0123456789abcdef", 256)
		for name, tt := range map[string]struct{ body, want string }{
			"whole value":  {`{"Authorization":"Bearer secret-token-1","X":"short"}`, `{"Authorization":"Bearer ***","X":"short"}`},
			"JSON escapes": {`{"Auth":"Basic QUJDREVG\/SElKS0xN\u003d","sig":"a\"SElKS0xN"}`, `{"Auth":"Basic ***\/***\u003d","sig":"a\"***"}`},
			"token alone":  {`bad token secret-token-1!`, `bad token ***!`},
			"long value":   {"<" + long + ">", "<***>"},
			"cut off":      {"<" + long + long + "tail", "<******"},
		} {
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = w.Write([]byte(tt.body))
			}))
			a := newAttempt(receiver.URL)
			a.target.Headers = ownHeaders("Authorization", "Bearer secret-token-1", "X-Long", long, "X-Short", "short", "X-Basic", "Basic QUJDREVG/SElKS0xN=")
			r := sendOne(t, a, sender.Options{Transport: loopback(t)})
			receiver.Close()
			if !strings.HasPrefix(r.ResponseBody, tt.want) || strings.Contains(r.ResponseBody, "secret-token-1") || strings.Contains(r.ResponseBody, "0123456789abcdef") {
				t.Errorf("%s: stored %.100q, want %q", name, r.ResponseBody, tt.want)
			}
		}
	})
	t.Run("are masked where the connection is lost in the middle of a value", func(t *testing.T) {
		t.Parallel()
		for part, want := range map[string]string{"secret-tok": "***", "secret-t": "***", "secret-": "secret-"} { // 8 characters are no chance
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				w.Header().Set("X-Echo", strings.Repeat("x", 250)+" secret-token-1")
				_, _ = w.Write([]byte("bad token " + part))
			}))
			a := newAttempt(receiver.URL)
			a.target.Headers = ownHeaders("Authorization", "Bearer secret-token-1")
			if r := sendOne(t, a, sender.Options{Transport: loopback(t)}); r.Succeeded || r.ResponseBody != "bad token "+want {
				t.Errorf("stored %q, succeeded: %t", r.ResponseBody, r.Succeeded)
			} else if want := "Content-Type: text/plain; charset=utf-8\nX-Echo: " + strings.Repeat("x", 250) + " ***\n"; r.ResponseHeader != want {
				t.Errorf("stored the header %q", r.ResponseHeader)
			}
			receiver.Close()
		}
	})
	t.Run("that cannot be decrypted fail the attempt", func(t *testing.T) {
		t.Parallel()
		a := newAttempt("https://example.com/")
		a.target.Unusable = "the request headers of the subscription cannot be decrypted; set them again"
		r := sendOne(t, a, sender.Options{Transport: loopback(t)})
		if r.Succeeded || !strings.Contains(r.Failure.String(), "set them again") {
			t.Errorf("%+v", r)
		}
	})
}

// TestTheEndOfAnOverlap signs in its last millisecond, and in the next one.
func TestTheEndOfAnOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, now := sender.New(sender.Options{HeaderPrefix: "X-Service"}), time.Now().UnixMilli()
		for until, want := range map[int64]int{now + 1: 2, now: 1} {
			a := newAttempt("https://example.com")
			a.target.Previous, a.target.PreviousUntil = webhook.KnownSecret(oldSecret), until
			a.target.Headers = ownHeaders("Authorization", "Bearer abc") // they are only sent
			headers, err := s.Headers(a.target, []webhook.Job{a.job})
			if err != nil {
				t.Fatal(err)
			}
			if headers[0].Get("Authorization") != "" {
				t.Errorf("the headers of a reader have the subscription's own: %v", headers[0])
			}
			if n := len(strings.Fields(headers[0].Get("Webhook-Signature"))); n != want || (headers[0].Get("X-Service-Signature-Previous") != "") != (want == 2) {
				t.Errorf("%d ms before the end: %v", until-now, headers[0])
			}
		}
	})
}

// TestSentHeaders compares the headers that a receiver got with those that are computed from the record of the attempt.
func TestSentHeaders(t *testing.T) {
	t.Parallel()
	a := newAttempt("")
	a.job.Attempts = 2
	got, _, _ := deliver(t, a, sender.Options{HeaderPrefix: "x-aCME"})
	seconds, err := strconv.ParseInt(got.Get("Webhook-Timestamp"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	shown := sender.New(sender.Options{HeaderPrefix: "x-aCME"}).SentHeaders(webhook.Attempt{EventID: "evt_1", EventType: "order.paid", Number: 3, AttemptedAt: seconds*1000 + 999})
	got.Del("Content-Length")
	for name, masked := range map[string]string{"X-Acme-Signature": "***", "Webhook-Signature": "v1,***"} {
		if value := shown.Get(name); value != masked || strings.Contains(value, got.Get(name)) {
			t.Errorf("%s is shown as %q", name, value)
		}
		got.Set(name, masked)
	}
	if d := cmp.Diff(got, shown); d != "" {
		t.Errorf("headers (-received +shown):\n%s", d)
	}
}
