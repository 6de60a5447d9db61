package dispatch

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// noop answers at once.
type noop struct{ response http.Response }

func (n *noop) RoundTrip(*http.Request) (*http.Response, error) { return &n.response, nil }

// Inside the package, because it measures an attempt without the store, the scheduler and the network.
func BenchmarkSend(b *testing.B) {
	s := &sender{
		transport: &noop{http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}},
		names:     newHeaderNames("X-Service"), timeout: 15 * time.Second, log: slog.New(slog.DiscardHandler),
	}
	t := s.prepare(webhook.Target{
		ID: "sub_1", URL: "https://example.com/hook", Secret: webhook.NewSecret(), Open: true,
	})
	j := webhook.Job{EventID: "evt_01kh2m3n4p5q6r7s8t9v0w1x2y", EventType: "order.paid", Body: bytes.Repeat([]byte("x"), 1<<10)}
	b.ReportAllocs()
	for b.Loop() {
		if end := s.send(context.Background(), t, j); !end.failure.IsZero() {
			b.Fatal(end.failure)
		}
	}
}
