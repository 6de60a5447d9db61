package metrics_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/metrics"
)

func TestServe(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- metrics.New().Serve(ctx, l) }()
	url := "http://" + l.Addr().String()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	for _, tt := range []struct {
		line   string
		status int
		body   bool
		host   string
	}{
		{"GET /metrics", 200, true, ""}, {"GET /metrics/", 200, true, ""}, {"HEAD /metrics", 200, false, ""},
		{"GET /", 404, false, ""}, {"GET /metrics/x", 404, false, ""}, {"GET /healthz/", 404, false, ""}, {"GET /api/v1/whoami/", 404, false, ""},
		{"GET /metrics", 200, true, "localhost:9090"}, {"GET /metrics", 403, false, "evil.example"}, {"GET /metrics/", 403, false, "evil.example:9090"},
		{"POST /metrics", 405, false, ""}, {"DELETE /metrics/", 405, false, ""},
	} {
		method, path, _ := strings.Cut(tt.line, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tt.host
		r.Header.Set("X-Forwarded-For", "192.0.2.1") // this listener asks for no credential
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != tt.status ||
			strings.Contains(string(body), "keyhook_build_info") != tt.body {
			t.Errorf("%s from host %q: status %d, %.200s", tt.line, tt.host, response.StatusCode, body)
		}
	}

	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on after it was told to stop")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("somebody listens still")
	}
}
