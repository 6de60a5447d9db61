package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// BenchmarkServed measures whole requests over loopback, from 32 connections: go test -run '^$' -bench Served -benchmem ./server.
// It has no disk and no dispatcher. cpu-ns/op is the processor time of both sides. "bare" is a handler of httprouter in a server of
// net/http without timeouts, and "bare-headers" sets as many response headers as "gate". Compare the others with them within one
// run. The suffix "logged" means one log line for each request.
func BenchmarkServed(b *testing.B) {
	bare := httprouter.New()
	bare.GET("/", func(w http.ResponseWriter, _ *http.Request, _ httprouter.Params) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}\n")
	})
	bare.GET("/headers", func(w http.ResponseWriter, _ *http.Request, _ httprouter.Params) {
		for _, name := range []string{"X-Content-Type-Options", "X-Request-Id", "X-Service-Key-Id", "X-Service-Organization-Id", "X-Service-Plan", "X-Service-Scope",
			"X-Service-User-Id", "Ratelimit", "Ratelimit-Policy"} {
			w.Header().Set(name, "key_01h455vb4pex5vsknk084sn02q")
		}
	})
	bare.POST("/", func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "{}\n")
	})
	event := `{"type":"user.created",` + kilobyte + `}`
	for _, bench := range []struct{ name, method, path, body string }{
		{"bare", http.MethodGet, "/", ""},
		{"bare-headers", http.MethodGet, "/headers", ""},
		{"gate", http.MethodGet, "/api/v1/authz/forward/", ""},
		{"get", http.MethodGet, "/api/v1/whoami/", ""},
		{"bare-post", http.MethodPost, "/", event},
		{"publish", http.MethodPost, "/api/v1/events/", event},
	} {
		if strings.HasPrefix(bench.name, "bare") {
			b.Run(bench.name, func(b *testing.B) {
				plain := &http.Server{Handler: bare}
				b.Cleanup(func() { _ = plain.Close() })
				l := loopback(b)
				go func() { _ = plain.Serve(l) }()
				request(b, l, bench.method, bench.path, "ApiKey "+strings.Repeat("x", 40), bench.body)
			})
			continue
		}
		for _, log := range []struct {
			suffix string
			level  slog.Level
		}{{"", slog.LevelWarn}, {"-logged", slog.LevelInfo}} {
			b.Run(bench.name+log.suffix, func(b *testing.B) {
				l, as := serveFast(b, log.level)
				request(b, l, bench.method, bench.path, as, bench.body)
			})
		}
	}
}

func loopback(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// serveFast serves with metrics, and with a log in a file. It returns the header Authorization of a key with a high rate limit.
func serveFast(b *testing.B, level slog.Level) (l net.Listener, as string) {
	b.Helper()
	file, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	f := build(b, measured, func(o *server.Options) {
		o.Store = sink{o.Store}
		o.Logger = slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: level}))
	})
	owner, _ := storagetest.Organization(b, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(b, f.Store, owner, access.EventsWrite)
	f.Plan(b, "fast", true, true, "1000000000")
	f.Move(b, owner.Organization.ID, "fast")
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	l = loopback(b)
	go func() { ended <- f.Server.Serve(ctx, l) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return l, servertest.APIKey(key)
}

// request sends a request b.N times. It writes bytes, because the client of net/http would take more time than the server.
func request(b *testing.B, l net.Listener, method, path, as, body string) {
	b.Helper()
	text := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + as + "\r\n"
	if body != "" {
		text += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	bytes := []byte(text + "\r\n" + body)
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		buffer := make([]byte, 4096) // the server writes a response at once
		for pb.Next() {
			if _, err := conn.Write(bytes); err != nil {
				b.Error(err)
				return
			}
			n, err := conn.Read(buffer)
			if err != nil || !strings.HasPrefix(string(buffer[:n]), "HTTP/1.1 20") {
				b.Errorf("error %v: %s", err, buffer[:n])
				return
			}
		}
	})
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processorTime is how long this process has run on any processor.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
