package egress_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// postBody posts a body, and returns the status of the response.
func postBody(ctx context.Context, transport http.RoundTripper, url, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// newTransport returns a transport to this machine whose connections change changes.
func newTransport(t *testing.T, o egress.Options, change func(net.Conn) net.Conn) *http.Transport {
	t.Helper()
	o.Policy = loopback
	transport := egress.NewTransport(o)
	t.Cleanup(transport.CloseIdleConnections)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return change(c), nil
	}
	return transport
}

func TestEndpoints(t *testing.T) {
	t.Parallel()

	t.Run("an https request does not use a plain connection to the same port", func(t *testing.T) {
		t.Parallel()
		var requests atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		t.Cleanup(s.Close)
		tr := newTransport(t, egress.Options{}, func(c net.Conn) net.Conn { return c })
		if _, err := postBody(t.Context(), tr, s.URL, "{}"); err != nil {
			t.Fatal(err)
		}
		if status, err := postBody(t.Context(), tr, strings.Replace(s.URL, "http:", "https:", 1), "{}"); err == nil {
			t.Errorf("status %d without TLS", status)
		}
		if requests.Load() != 1 {
			t.Errorf("%d plain requests", requests.Load())
		}
	})

	t.Run("each host must have a certificate for its own name", func(t *testing.T) {
		t.Parallel()
		s, pool := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, nil)
		tr := egress.NewTransport(egress.Options{Policy: loopback, Roots: pool})
		t.Cleanup(tr.CloseIdleConnections)
		dial := tr.DialContext
		tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, s.Listener.Addr().String())
		}
		for _, host := range []string{"example.com", "other.test", "example.com"} { // the certificate is for example.com
			if _, err := postBody(t.Context(), tr, "https://"+host+"/", "{}"); (err == nil) != (host == "example.com") {
				t.Errorf("%s: %v", host, err)
			}
		}
	})
}

func TestEarlyResponse(t *testing.T) {
	t.Parallel()
	t.Run("a response that comes before a large body was read is returned", func(t *testing.T) {
		t.Parallel()
		over := make(chan struct{})
		s := httptest.NewUnstartedServer(nil)
		t.Cleanup(func() { close(over); s.Listener.Close() })
		go func() {
			c, err := s.Listener.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
				<-over
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		tr := newTransport(t, egress.Options{}, func(c net.Conn) net.Conn { return c })
		if status, err := postBody(ctx, tr, "http://"+s.Listener.Addr().String(), strings.Repeat("x", 16<<20)); err != nil || status != 413 {
			t.Errorf("%d, %v", status, err)
		}
	})

	t.Run("early hints count as part of the header", func(t *testing.T) {
		t.Parallel()
		for size, fits := range map[int]bool{20 << 10: true, 40 << 10: false} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X", strings.Repeat("x", size))
				w.WriteHeader(http.StatusEarlyHints)
			}))
			t.Cleanup(s.Close)
			tr := newTransport(t, egress.Options{}, func(c net.Conn) net.Conn { return c })
			if status, err := postBody(t.Context(), tr, s.URL, "{}"); (err == nil) != fits {
				t.Errorf("twice %d bytes: %d, %v", size, status, err)
			}
		}
	})
}

// countedConn is a connection that counts its close.
type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

func TestConnectionsAreClosed(t *testing.T) {
	t.Parallel()

	t.Run("a connection is closed after a failed TLS handshake", func(t *testing.T) {
		t.Parallel()
		s, _ := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, nil)
		var open atomic.Int64
		tr := newTransport(t, egress.Options{}, func(c net.Conn) net.Conn {
			open.Add(1)
			return &countedConn{Conn: c, open: &open}
		})
		if _, err := postBody(t.Context(), tr, s.URL, "{}"); err == nil {
			t.Error("the certificate was trusted")
		}
		if open.Load() != 0 {
			t.Errorf("%d connections are open", open.Load())
		}
	})

	t.Run("idle connections are closed after a minute, and earlier if there are too many", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			tr := egress.NewTransport(egress.Options{MaxIdle: 2})
			var open atomic.Int64
			tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
				client, receiver := net.Pipe()
				open.Add(1)
				go func() {
					defer open.Add(-1)
					in := bufio.NewReader(receiver)
					for r, err := http.ReadRequest(in); err == nil; r, err = http.ReadRequest(in) {
						io.Copy(io.Discard, r.Body)
						io.WriteString(receiver, "HTTP/1.1 204 Fine\r\n\r\n")
					}
				}()
				return client, nil
			}
			checkOpen := func(after time.Duration, want int64) {
				t.Helper()
				time.Sleep(after)
				synctest.Wait()
				if open.Load() != want {
					t.Errorf("%d connections are open, want %d", open.Load(), want)
				}
			}
			for _, host := range []string{"a.test", "b.test", "c.test", "c.test"} {
				if _, err := postBody(t.Context(), tr, "http://"+host+"/", "{}"); err != nil {
					t.Fatal(err)
				}
			}
			checkOpen(59*time.Second, 2)
			checkOpen(2*time.Second, 0)
		})
	})
}

func TestDeafReceiver(t *testing.T) {
	t.Parallel()
	t.Run("a request ends with its deadline, though the end of TLS cannot be sent", func(t *testing.T) {
		t.Parallel()
		arrived, over := make(chan struct{}), make(chan struct{})
		s, pool := serveTLS(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-over }, nil)
		t.Cleanup(func() { close(over) })
		var conn net.Conn
		tr := newTransport(t, egress.Options{Roots: pool}, func(c net.Conn) net.Conn { conn = c; return c })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var filling sync.WaitGroup
		filling.Go(func() {
			// The receiver has its request and reads only a few bytes more, so the buffers become full.
			for <-arrived; ctx.Err() == nil; {
				conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
				conn.Write(make([]byte, 1<<20))
			}
		})
		_, err := postBody(ctx, tr, s.URL, "{}")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
			t.Errorf("the request took %s and ended with %v", took, err)
		}
		filling.Wait()
	})
}
