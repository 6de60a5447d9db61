package server_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// requestLines returns how many lines of the log are about requests with a status, and the numbers of omitted lines that the
// log reports. It empties the log.
func requestLines(l *servertest.Lines, t *testing.T, status int) (written int, omitted []int) {
	t.Helper()
	text := l.String()
	l.Mu.Lock()
	l.Text.Reset()
	l.Mu.Unlock()
	for line := range strings.Lines(text) {
		var entry struct {
			Msg     string
			Status  int
			Omitted int
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Msg == "request" && entry.Status == status {
			written++
		}
		if entry.Omitted > 0 {
			omitted = append(omitted, entry.Omitted)
		}
	}
	return written, omitted
}

func TestLogOfAnonymousFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		ask := func(path, authorization string, times int) {
			for range times {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Authorization", authorization)
				f.Server.ServeHTTP(httptest.NewRecorder(), r)
			}
		}
		total := func(numbers []int) (n int) {
			for _, m := range numbers {
				n += m
			}
			return n
		}
		time.Sleep(time.Hour)
		requestLines(f.Log, t, 0)

		ask("/no/such/path", "", 1000)
		written, omitted := requestLines(f.Log, t, 401)
		if written != 100 || len(omitted) != 1 {
			t.Errorf("of 1000 requests at once %d have lines, and %v were reported", written, omitted)
		}
		reported := total(omitted)

		ask("/api/v1/whoami/", servertest.Bearer(token), 50)
		if written, _ := requestLines(f.Log, t, 200); written != 50 {
			t.Errorf("of 50 requests with a credential %d have lines", written)
		}

		for range 20 {
			time.Sleep(time.Second)
			ask("/no/such/path", "", 30)
		}
		written, omitted = requestLines(f.Log, t, 401)
		if written != 400 || len(omitted) != 2 {
			t.Errorf("of 30 requests a second for 20 s %d have lines, and %v were reported", written, omitted)
		}
		reported += total(omitted)

		ctx, stop := context.WithCancel(t.Context())
		stop()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Server.Serve(ctx, l); err != nil {
			t.Fatal(err)
		}
		_, omitted = requestLines(f.Log, t, 401)
		if reported += total(omitted); reported != 900+200 {
			t.Errorf("%d omitted lines were reported, want 1100", reported)
		}
	})
}

// TestLogOfAFloodWithoutTLS sends plain requests to a server with TLS.
func TestLogOfAFloodWithoutTLS(t *testing.T) {
	t.Parallel()
	withTLS := withTLS(t)
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, withTLS)
		for range 1000 {
			conn := s.pipes.connect("203.0.113.9")
			responds(conn, "/healthz")
			conn.Close()
			synctest.Wait()
		}
		s.stop()
		<-s.done
		log := s.Log.String()
		if lines, reported := strings.Count(log, "TLS handshake error"), strings.Count(log, `"omitted"`); lines != 100 || reported == 0 {
			t.Errorf("%d of 1000 connections without TLS have lines, want 100; %d reports", lines, reported)
		}
	})
}

func TestLogOfAFloodOverTheRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		_, key := f.key(t, "limited", "10")
		for range 1000 {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/whoami/", nil)
			r.Header.Set("Authorization", servertest.APIKey(key))
			f.Server.ServeHTTP(httptest.NewRecorder(), r)
		}
		log := f.Log.String()
		if n := strings.Count(log, `"status":200`); n != 10 {
			t.Errorf("%d of 10 requests within the limit have lines", n)
		}
		if n := strings.Count(log, `"status":429`); n != 100 {
			t.Errorf("%d of 990 requests over the limit have lines, want 100", n)
		}
	})
}
