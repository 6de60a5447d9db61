package bench_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/cli/bench"
)

func TestPublishRequest(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 123_456_789)
	type event struct {
		Type string
		Data struct {
			Text string
			At   json.Number
		}
	}
	read := func(t *testing.T, text, path string, into any) int {
		t.Helper()
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != path || r.Header.Get("Authorization") != "ApiKey k" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("error %v, %s with %v", err, r.URL, r.Header)
		}
		if err := json.Unmarshal(body, into); err != nil {
			t.Error(err)
		}
		return len(body)
	}
	for _, size := range []int{128, 1024, 256 << 10} {
		t.Run(fmt.Sprintf("one event of %d bytes has that size and the time", size), func(t *testing.T) {
			t.Parallel()
			var got event
			length := read(t, bench.PublishRequest("k", "bench.one", size, 1, at), "/api/v1/events/", &got)
			if length != size || got.Type != "bench.one" || got.Data.At != "1800000000123456789" {
				t.Errorf("%d bytes, %s at %s", length, got.Type, got.Data.At)
			}
		})
	}
	t.Run("each event of a batch has the time", func(t *testing.T) {
		t.Parallel()
		var got struct{ Events []event }
		read(t, bench.PublishRequest("k", "a", 128, 3, at), "/api/v1/events/batch/", &got)
		if len(got.Events) != 3 {
			t.Fatalf("%d events", len(got.Events))
		}
		for _, e := range got.Events {
			if e.Data.At != "1800000000123456789" {
				t.Errorf("at %s", e.Data.At)
			}
		}
	})
}

func TestReceiver(t *testing.T) {
	t.Parallel()
	receiver := bench.NewReceiver()
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	post := func(path, body string) {
		t.Helper()
		resp, err := server.Client().Post(server.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	for i := range 100 { // published 1 s, 2 s, … 100 s ago
		request := bench.PublishRequest("k", "bench.one", 300, 1, time.Now().Add(-time.Duration(i+1)*time.Second))
		_, body, _ := strings.Cut(request, "\r\n\r\n")
		post("/one", body)
	}
	post("/other", `{"no":"time"}`)
	if _, _, err := receiver.Latency("other", 2); err == nil || err.Error() != "the receiver got 1 deliveries instead of 2" {
		t.Errorf("error %v", err)
	}
	if p50, p99, err := receiver.Latency("one", 100); err != nil || p50 < 50_000 || p50 > 51_000 || p99 < 99_000 || p99 > 100_000 {
		t.Errorf("p50 %g, p99 %g, error %v", p50, p99, err)
	}
	if p50, p99, err := receiver.Latency("none", 0); err != nil || p50 != 0 || p99 != 0 {
		t.Errorf("without a delivery: p50 %g, p99 %g, error %v", p50, p99, err)
	}
}

func TestSignificant(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{12345.6: "12346", 100.4: "100", 9.996: "10", 0.0417: "0.0417", 0.28: "0.28", 1.5: "1.5", 0: "0"} {
		if got := bench.Significant(v); got != want {
			t.Errorf("%g is %s, not %s", v, got, want)
		}
	}
}
