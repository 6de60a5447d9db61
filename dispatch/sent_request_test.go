package dispatch_test

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestSentHeaders compares the headers that a receiver got with those that are computed from the record of the attempt.
func TestSentHeaders(t *testing.T) {
	t.Parallel()
	got, _, _ := deliver(t, newOneTestStore(""), dispatch.Options{HeaderPrefix: "x-aCME"})
	d, err := dispatch.New(nil, dispatch.Options{HeaderPrefix: "x-aCME", Transport: http.DefaultTransport, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseInt(got.Get("Webhook-Timestamp"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	shown := d.SentHeaders(webhook.Attempt{EventID: "evt_1", EventType: "order.paid", Number: 1, AttemptedAt: seconds*1000 + 999})
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
