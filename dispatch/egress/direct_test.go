package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// scripted is a receiver that calls serve for each request of a connection, until serve returns false.
type scripted struct {
	url   string
	conns atomic.Int64
	ended chan struct{} // gets a value for each connection that the receiver has ended
}

func script(t *testing.T, serve func(c net.Conn, r *http.Request) bool) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{url: "http://" + l.Addr().String() + "/hook?a=b", ended: make(chan struct{}, 64)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			s.conns.Add(1)
			context.AfterFunc(ctx, func() { c.Close() })
			running.Go(func() {
				defer func() { c.Close(); s.ended <- struct{}{} }()
				in := bufio.NewReader(c)
				for r, err := http.ReadRequest(in); err == nil && serve(c, r); r, err = http.ReadRequest(in) {
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); running.Wait() })
	return s
}

func newDirect(t *testing.T, o egress.Options) *egress.Direct {
	t.Helper()
	o.Policy = loopback
	d := egress.NewDirect(egress.NewTransport(o))
	t.Cleanup(d.CloseIdleConnections)
	return d
}

// postBody posts a body, and returns the status and the body of the response.
func postBody(ctx context.Context, d http.RoundTripper, url, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("User-Agent", "test")
	response, err := d.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return response.StatusCode, string(got), err
}

// checkPosts posts n times, one after another, and checks the responses and the number of connections.
func checkPosts(t *testing.T, d *egress.Direct, s *scripted, n, conns int) {
	t.Helper()
	before := s.conns.Load()
	for range n {
		if status, _, err := postBody(t.Context(), d, s.url, "{}"); err != nil || status/100 != 2 {
			t.Errorf("%d, %v", status, err)
		}
	}
	if got := s.conns.Load() - before; got != int64(conns) {
		t.Errorf("%d connections for %d requests, want %d", got, n, conns)
	}
}

func TestDirectRequest(t *testing.T) {
	t.Parallel()
	configured := egress.NewTransport(egress.Options{Policy: loopback})
	t.Cleanup(configured.CloseIdleConnections)
	direct := egress.NewDirect(configured)

	for name, body := range map[string]string{"a body": `{"n":1}`, "no body": "", "8 KiB": strings.Repeat("x", 8<<10), "1 MiB": strings.Repeat("x", 1<<20)} {
		t.Run("a request with "+name+" has the lines that http.Transport writes", func(t *testing.T) {
			t.Parallel()
			var sent []string
			for _, transport := range []http.RoundTripper{configured, direct} {
				s := script(t, func(c net.Conn, r *http.Request) bool {
					got, err := io.ReadAll(r.Body)
					if err != nil || string(got) != body {
						t.Errorf("%d bytes, %v", len(got), err)
					}
					r.Body = io.NopCloser(bytes.NewReader(got))
					var text bytes.Buffer
					r.Host = "receiver.test" // the port differs
					if err := r.Write(&text); err != nil {
						t.Error(err)
					}
					lines := strings.Split(text.String(), "\r\n")
					slices.Sort(lines[1:])
					sent = append(sent, strings.Join(lines, "\n"))
					_, err = io.WriteString(c, "HTTP/1.1 204 Fine\r\n\r\n")
					return err == nil
				})
				if status, _, err := postBody(t.Context(), transport, s.url, body); err != nil || status != 204 {
					t.Errorf("%d, %v", status, err)
				}
			}
			if diff := cmp.Diff(sent[0], sent[1]); diff != "" {
				t.Error(diff)
			}
		})
	}

	t.Run("a header that would change the request is refused", func(t *testing.T) {
		t.Parallel()
		s := script(t, func(net.Conn, *http.Request) bool { return false })
		for name, value := range map[string]string{"X-A": "b\r\nX-C: d", "X-B\r\nX-C": "d", "X-D": "\x00", "Content-Length": "1", "Transfer-Encoding": "chunked"} {
			body := &closable{Reader: strings.NewReader("{}")}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = 2
			r.Header[name] = []string{value}
			if _, err := direct.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "is not valid") {
				t.Errorf("%q: %v", name, err)
			}
			if !body.closed {
				t.Error("the body of the request was not closed")
			}
		}
		if s.conns.Load() != 0 {
			t.Error("it connected")
		}
	})

	t.Run("a response that comes before a large body was read is returned", func(t *testing.T) {
		t.Parallel()
		over := make(chan struct{})
		s := script(t, func(c net.Conn, _ *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
			<-over
			return false
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if status, _, err := postBody(ctx, direct, s.url, strings.Repeat("x", 16<<20)); err != nil || status != 413 {
			t.Errorf("%d, %v", status, err)
		}
		close(over)
	})

	t.Run("the guard holds for small and for large requests", func(t *testing.T) {
		t.Parallel()
		strict := egress.NewDirect(egress.NewTransport(egress.Options{}))
		for _, body := range []string{"{}", strings.Repeat("x", 1<<20)} {
			if _, _, err := postBody(t.Context(), strict, "http://127.0.0.1:1/", body); !errors.Is(err, egress.ErrBlocked) {
				t.Errorf("%d bytes: %v", len(body), err)
			}
		}
	})
}

// closable is a body that notes that it was closed.
type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// respond sends the same response to each request. open says whether the receiver then waits for another request.
func respond(text string, open bool) func(net.Conn, *http.Request) bool {
	return func(c net.Conn, r *http.Request) bool {
		io.Copy(io.Discard, r.Body)
		_, err := io.WriteString(c, text)
		return open && err == nil
	}
}

func TestDirectReuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		open  bool // the receiver waits for another request
		conns int  // for three requests
	}{
		"nothing":                {"HTTP/1.1 204 Fine\r\n\r\n", true, 1},
		"an empty body":          {"HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n", true, 1},
		"a body":                 {"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nok", true, 1},
		"chunks and a trailer":   {"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", true, 1},
		"early hints before it":  {"HTTP/1.1 103 Hints\r\nX: y\r\n\r\nHTTP/1.1 204 Fine\r\n\r\n", true, 1},
		"Connection: close":      {"HTTP/1.1 200 Fine\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", true, 3},
		"HTTP/1.0":               {"HTTP/1.0 200 Fine\r\nContent-Length: 0\r\n\r\n", true, 3},
		"a body until the end":   {"HTTP/1.1 200 Fine\r\n\r\nok", false, 3},
		"more than the response": {"HTTP/1.1 204 Fine\r\n\r\nHTTP/1.1 500 Stale\r\n\r\n", true, 3},
		"a switch of protocols":  {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", true, 3},
		"an end without notice":  {"HTTP/1.1 204 Fine\r\n\r\n", false, 3},
	} {
		t.Run(fmt.Sprintf("after a response with %s, three requests use %d connections", name, c.conns), func(t *testing.T) {
			t.Parallel()
			d, s := newDirect(t, egress.Options{}), script(t, respond(c.text, c.open))
			for range 3 {
				if status, _, err := postBody(t.Context(), d, s.url, "{}"); err != nil || status/100 != 2 && status != 101 {
					t.Errorf("%d, %v", status, err)
				}
				if !c.open {
					<-s.ended
				}
			}
			if got := s.conns.Load(); got != int64(c.conns) {
				t.Errorf("%d connections", got)
			}
		})
	}

	t.Run("a connection whose response was not read to its end is not used again", func(t *testing.T) {
		t.Parallel()
		d, s := newDirect(t, egress.Options{}), script(t, respond("HTTP/1.1 200 Fine\r\nContent-Length: 4\r\n\r\nha", true))
		for range 2 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := d.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(response.Body, make([]byte, 2)); err != nil {
				t.Error(err)
			}
			response.Body.Close()
			if _, err := response.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("read after close: %v", err)
			}
		}
		if s.conns.Load() != 2 {
			t.Errorf("%d connections", s.conns.Load())
		}
	})

	t.Run("a context that ends in the middle gives its cause, and the connection is not used again", func(t *testing.T) {
		t.Parallel()
		impatient := errors.New("impatient")
		for _, text := range []string{"", "HTTP/1.1 200 Fine\r\nContent-Length: 9\r\n\r\nhalf"} {
			var requests atomic.Int64
			d, s := newDirect(t, egress.Options{}), script(t, func(c net.Conn, r *http.Request) bool {
				if requests.Add(1) == 1 {
					return respond(text, true)(c, r)
				}
				return respond("HTTP/1.1 204 Fine\r\n\r\n", true)(c, r)
			})
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, impatient)
			if _, _, err := postBody(ctx, d, s.url, "{}"); !errors.Is(err, impatient) {
				t.Errorf("after %q: %v", text, err)
			}
			cancel()
			checkPosts(t, d, s, 3, 1)
		}
	})

}

func TestDirectIdleLimits(t *testing.T) {
	t.Parallel()

	t.Run("of too many idle connections to a host, one is closed", func(t *testing.T) {
		t.Parallel()
		d, s := newDirect(t, egress.Options{MaxIdlePerHost: 1}), script(t, respond("HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nok", true))
		for conns := int64(2); conns < 5; conns++ { // two for the first two requests, and one more for each further pair
			var open []io.ReadCloser
			for range 2 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				response, err := d.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, response.Body)
			}
			for _, body := range open {
				if got, err := io.ReadAll(body); err != nil || string(got) != "ok" {
					t.Errorf("%q, %v", got, err)
				}
			}
			if s.conns.Load() != conns {
				t.Errorf("%d connections, want %d", s.conns.Load(), conns)
			}
		}
	})

	t.Run("of too many idle connections, the oldest is closed", func(t *testing.T) {
		t.Parallel()
		d := newDirect(t, egress.Options{MaxIdle: 2})
		var all []*scripted
		for range 3 {
			s := script(t, respond("HTTP/1.1 204 Fine\r\n\r\n", true))
			all = append(all, s)
			checkPosts(t, d, s, 2, 1)
		}
		checkPosts(t, d, all[2], 1, 0)
		checkPosts(t, d, all[1], 1, 0)
		checkPosts(t, d, all[0], 1, 1)
	})
}

func TestDirectIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		configured := egress.NewTransport(egress.Options{})
		var closedAfter []time.Duration
		begin := time.Now()
		var running sync.WaitGroup
		configured.DialContext = func(context.Context, string, string) (net.Conn, error) {
			client, receiver := net.Pipe()
			running.Go(func() {
				in := bufio.NewReader(receiver)
				for r, err := http.ReadRequest(in); err == nil; r, err = http.ReadRequest(in) {
					io.Copy(io.Discard, r.Body)
					io.WriteString(receiver, "HTTP/1.1 204 Fine\r\n\r\n")
				}
				closedAfter = append(closedAfter, time.Since(begin))
			})
			return client, nil
		}
		d := egress.NewDirect(configured)
		for range 2 { // at 0 and 40 seconds
			if _, _, err := postBody(t.Context(), d, "http://receiver.test/", "{}"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(40 * time.Second)
		}
		running.Wait()
		if len(closedAfter) != 1 || closedAfter[0] < 100*time.Second || closedAfter[0] > 115*time.Second {
			t.Errorf("connections were closed after %v", closedAfter)
		}
	})
}

// heldConn collects what is written until flush.
type heldConn struct {
	net.Conn
	held bytes.Buffer
	hold bool
}

func (c *heldConn) Write(p []byte) (int, error) {
	if c.hold {
		return c.held.Write(p)
	}
	return c.Conn.Write(p)
}

// A receiver may end TLS together with its response. The end is then in memory, and not in the socket.
func TestDirectEndOfTLS(t *testing.T) {
	t.Parallel()
	certified, pool := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, nil)
	config := &tls.Config{Certificates: certified.TLS.Certificates}
	for _, together := range []bool{true, false} {
		closed := make(chan struct{}, 3)
		s := script(t, func(net.Conn, *http.Request) bool { return false })
		l := httptest.NewUnstartedServer(nil).Listener
		t.Cleanup(func() { l.Close() })
		go func() {
			for plain, err := l.Accept(); err == nil; plain, err = l.Accept() {
				s.conns.Add(1)
				go func() {
					defer plain.Close()
					held := &heldConn{Conn: plain}
					c := tls.Server(held, config)
					r, err := http.ReadRequest(bufio.NewReader(c))
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					held.hold = together
					io.WriteString(c, "HTTP/1.1 204 Fine\r\n\r\n")
					c.CloseWrite()
					plain.SetWriteDeadline(time.Time{}) // CloseWrite has set one
					plain.Write(held.held.Bytes())
					s.ended <- struct{}{}
					io.Copy(io.Discard, plain) // until the other end closes the connection
					closed <- struct{}{}
				}()
			}
		}()
		s.url = "https://" + l.Addr().String() + "/"
		d := newDirect(t, egress.Options{Roots: pool})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if status, _, err := postBody(ctx, d, s.url, "{}"); err != nil || status != 204 {
				t.Errorf("together: %t: %d, %v", together, status, err)
			}
			cancel()
			<-s.ended
		}
		if s.conns.Load() != 3 {
			t.Errorf("together: %t: %d connections", together, s.conns.Load())
		}
		<-closed
		<-closed // both that could not be used again
	}

	t.Run("otherwise a TLS connection is used again", func(t *testing.T) {
		t.Parallel()
		var conns atomic.Int64
		s, pool := serveTLS(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }, func(s *httptest.Server) {
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					conns.Add(1)
				}
			}
		})
		d := newDirect(t, egress.Options{Roots: pool})
		for range 3 {
			if status, body, err := postBody(t.Context(), d, s.URL, "{}"); err != nil || status != 200 || body != "ok" {
				t.Errorf("%d %q, %v", status, body, err)
			}
		}
		if conns.Load() != 1 {
			t.Errorf("%d connections for 3 requests", conns.Load())
		}
	})
}
