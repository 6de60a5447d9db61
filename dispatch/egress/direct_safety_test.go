package egress_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
)

func TestDirectEndOfContext(t *testing.T) {
	t.Parallel()
	t.Run("a connection whose context ended before its complete response was read is not used again", func(t *testing.T) {
		t.Parallel()
		d, s := newDirect(t, egress.Options{}), script(t, respond("HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nok", true))
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := d.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		cancel() // the body came together with the header, so it can still be read
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		checkPosts(t, d, s, 2, 1)
	})
}

func TestDirectLongHeader(t *testing.T) {
	t.Parallel()
	header := func(status string, kib int) string {
		return "HTTP/1.1 " + status + "\r\nX: " + strings.Repeat("x", kib<<10) + "\r\n"
	}
	body := strings.Repeat("y", 16<<10)
	for name, c := range map[string]struct {
		text string
		fits bool
	}{
		"a header of 60 KiB and a long body is complete":           {header("200 Fine", 60) + "Content-Length: 16384\r\n\r\n" + body, true},
		"a header of 65 KiB is refused":                            {header("200 Fine", 65) + "Content-Length: 16384\r\n\r\n" + body, false},
		"two early hints of 40 KiB are refused":                    {strings.Repeat(header("103 Hints", 40)+"\r\n", 2) + "HTTP/1.1 204 Fine\r\n\r\n", false},
		"a thousand early hints instead of a response are refused": {strings.Repeat(header("103 Hints", 1)+"\r\n", 1000), false},
	} {
		t.Run("a response with "+name, func(t *testing.T) {
			t.Parallel()
			d, s := newDirect(t, egress.Options{}), script(t, respond(c.text, true))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			status, got, err := postBody(ctx, d, s.url, "{}")
			switch {
			case c.fits && (err != nil || status != 200 || got != body):
				t.Errorf("%d, %d bytes, %v", status, len(got), err)
			case !c.fits && (err == nil || !strings.Contains(err.Error(), "too long")):
				t.Errorf("%d, %v", status, err)
			}
		})
	}
}

func TestDirectEndpoints(t *testing.T) {
	t.Parallel()

	t.Run("an https request does not use a plain connection to the same port", func(t *testing.T) {
		t.Parallel()
		var requests atomic.Int64
		d, s := newDirect(t, egress.Options{}), script(t, func(c net.Conn, r *http.Request) bool {
			requests.Add(1)
			return respond("HTTP/1.1 204 Fine\r\n\r\n", true)(c, r)
		})
		checkPosts(t, d, s, 1, 1)
		if status, _, err := postBody(t.Context(), d, strings.Replace(s.url, "http:", "https:", 1), "{}"); err == nil {
			t.Errorf("status %d without TLS", status)
		}
		if requests.Load() != 1 {
			t.Errorf("%d plain requests", requests.Load())
		}
	})

	t.Run("each host must have a certificate for its own name", func(t *testing.T) {
		t.Parallel()
		s, pool := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, nil)
		configured := egress.NewTransport(egress.Options{Policy: loopback, Roots: pool})
		dial := configured.DialContext
		configured.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, s.Listener.Addr().String())
		}
		d := egress.NewDirect(configured)
		t.Cleanup(d.CloseIdleConnections)
		for _, host := range []string{"example.com", "other.test", "example.com"} { // the certificate is for example.com
			_, _, err := postBody(t.Context(), d, "https://"+host+"/", "{}")
			if (err == nil) != (host == "example.com") {
				t.Errorf("%s: %v", host, err)
			}
		}
	})
}

func TestDirectBodyLength(t *testing.T) {
	t.Parallel()
	post := func(t *testing.T, d *egress.Direct, s *scripted, body string) (err error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, io.NopCloser(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 2
		response, err := d.RoundTrip(r)
		if err == nil {
			response.Body.Close()
		}
		return err
	}

	t.Run("a body that is longer than its Content-Length does not become a second request", func(t *testing.T) {
		t.Parallel()
		var paths []string
		d, s := newDirect(t, egress.Options{}), script(t, func(c net.Conn, r *http.Request) bool {
			paths = append(paths, r.URL.Path)
			return respond("HTTP/1.1 204 Fine\r\n\r\n", true)(c, r)
		})
		if err := post(t, d, s, "{}POST /smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Error(err)
		}
		checkPosts(t, d, s, 1, 0) // its response comes after the receiver has read all of the first request
		if len(paths) != 2 || paths[1] != "/hook" {
			t.Errorf("the receiver got requests for %q", paths)
		}
	})

	t.Run("a body that is shorter than its Content-Length ends the request and its connection", func(t *testing.T) {
		t.Parallel()
		d, s := newDirect(t, egress.Options{}), script(t, respond("HTTP/1.1 204 Fine\r\n\r\n", true))
		if err := post(t, d, s, "{"); err == nil || !strings.Contains(err.Error(), "body") {
			t.Errorf("error %v", err)
		}
		checkPosts(t, d, s, 1, 1)
	})
}

// realConn is a connection over a socket.
type realConn interface {
	net.Conn
	syscall.Conn
}

// countedConn is a connection that counts its close.
type countedConn struct {
	realConn
	open *atomic.Int64
}

func (c countedConn) Close() error {
	c.open.Add(-1)
	return c.realConn.Close()
}

func TestDirectClosesConnections(t *testing.T) {
	t.Parallel()
	counted := func(t *testing.T) (*egress.Direct, *atomic.Int64) {
		t.Helper()
		var open atomic.Int64
		configured := egress.NewTransport(egress.Options{Policy: loopback})
		dial := configured.DialContext
		configured.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return countedConn{c.(realConn), &open}, nil
		}
		d := egress.NewDirect(configured)
		t.Cleanup(d.CloseIdleConnections)
		return d, &open
	}

	t.Run("a connection is closed after a failed TLS handshake", func(t *testing.T) {
		t.Parallel()
		s, _ := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, nil)
		d, open := counted(t)
		if _, _, err := postBody(t.Context(), d, s.URL, "{}"); err == nil {
			t.Error("the certificate was trusted")
		}
		if open.Load() != 0 {
			t.Errorf("%d connections are open", open.Load())
		}
	})

	t.Run("an idle connection that the receiver has closed is closed too", func(t *testing.T) {
		t.Parallel()
		s := script(t, respond("HTTP/1.1 204 Fine\r\n\r\n", false))
		d, open := counted(t)
		for range 3 {
			checkPosts(t, d, s, 1, 1)
			<-s.ended
		}
		if open.Load() != 1 {
			t.Errorf("%d connections are open", open.Load())
		}
	})

	t.Run("connections are closed after their idle time, also after all were closed before", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			configured := egress.NewTransport(egress.Options{})
			var open atomic.Int64
			configured.DialContext = func(context.Context, string, string) (net.Conn, error) {
				client, receiver := net.Pipe()
				open.Add(1)
				go func() {
					defer open.Add(-1)
					in := bufio.NewReader(receiver)
					for r, err := http.ReadRequest(in); err == nil; r, err = http.ReadRequest(in) {
						respond("HTTP/1.1 204 Fine\r\n\r\n", true)(receiver, r)
					}
				}()
				return client, nil
			}
			d := egress.NewDirect(configured)
			defer d.CloseIdleConnections()
			for range 2 {
				if _, _, err := postBody(t.Context(), d, "http://receiver.test/", "{}"); err != nil {
					t.Fatal(err)
				}
				if open.Load() != 1 {
					t.Errorf("%d connections are open", open.Load())
				}
				d.CloseIdleConnections()
				synctest.Wait()
			}
			if _, _, err := postBody(t.Context(), d, "http://receiver.test/", "{}"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if open.Load() != 0 {
				t.Errorf("%d connections are open after two minutes", open.Load())
			}
		})
	})
}
