package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// These benchmarks measure the server without sockets and without the disk: go test -bench . -benchmem ./server. The rest of a
// request over loopback is about 14 µs of net/http. The goal of the project: a GET with an API key reaches 0.85 of the rate of
// a bare handler.

// sink accepts events and drops them.
type sink struct{ server.Store }

func (sink) PublishEvents(_ context.Context, _ int64, events []webhook.NewEvent) ([]webhook.Published, error) {
	published := make([]webhook.Published, len(events))
	for i, e := range events {
		published[i] = webhook.Published{ID: "evt_01h455vb4pex5vsknk084sn02q", Type: e.Type, At: 1_800_000_000_000, Deliveries: 1}
	}
	return published, nil
}

// discard is a ResponseWriter that drops everything.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func benchmark(b *testing.B, method, path, body string, change ...func(*server.Options)) {
	f := build(b, append(change, func(o *server.Options) {
		o.Store = sink{o.Store}
		o.Logger = slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})...)
	owner, _ := storagetest.Organization(b, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(b, f.Store, owner, access.EventsWrite)
	as, handler := servertest.APIKey(key), f.Server
	f.Plan(b, "fast", true, true, "1000000000")
	f.Move(b, owner.Organization.ID, "fast")
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header["Authorization"] = []string{as}
			r.Header["Content-Type"] = []string{"application/json"}
			handler.ServeHTTP(discard{http.Header{}}, r)
		}
	})
}

func BenchmarkAuthenticatedGet(b *testing.B) { benchmark(b, http.MethodGet, "/api/v1/whoami/", "") }

// BenchmarkGate measures forward authentication, the cheapest request with a key.
func BenchmarkGate(b *testing.B) { benchmark(b, http.MethodGet, "/api/v1/authz/forward/", "") }

// BenchmarkGateForPermission also needs a permission.
func BenchmarkGateForPermission(b *testing.B) {
	benchmark(b, http.MethodGet, "/api/v1/authz/forward/events:write/", "")
}

// BenchmarkAuthenticatedGetMeasured also counts the request for Prometheus.
func BenchmarkAuthenticatedGetMeasured(b *testing.B) {
	benchmark(b, http.MethodGet, "/api/v1/whoami/", "", measured)
}

var kilobyte = `"data":{"text":"` + strings.Repeat("x", 900) + `","numbers":[1,2,3],"nested":{"a":true,"b":null}}`

func BenchmarkPublish(b *testing.B) {
	benchmark(b, http.MethodPost, "/api/v1/events/", `{"type":"user.created",`+kilobyte+`}`)
}

func BenchmarkPublishSpaced(b *testing.B) {
	benchmark(b, http.MethodPost, "/api/v1/events/", `{ "type" : "user.created", `+kilobyte+` }`)
}

func BenchmarkPublishBatch20(b *testing.B) {
	benchmark(b, http.MethodPost, "/api/v1/events/batch/", `{"events":[`+strings.TrimSuffix(strings.Repeat(`{"type":"user.created",`+kilobyte+`},`, 20), ",")+`]}`)
}
