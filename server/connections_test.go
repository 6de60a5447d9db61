package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// peerConn is a connection whose other end has a made-up address.
type peerConn struct {
	net.Conn
	address netip.Addr
}

func (c peerConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.address, 999))
}

// connect connects from an address. It returns before the server accepts the connection.
func (p *pipes) connect(from string) net.Conn {
	near, far := net.Pipe()
	p.conns <- peerConn{far, netip.MustParseAddr(from)}
	return near
}

// responds makes a request over a connection and reports whether there is a response.
func responds(conn net.Conn, path string) bool {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", path, servertest.Operator); err != nil {
		return false
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

// isClosed reports whether the server has closed a connection.
func isClosed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	_ = conn.SetReadDeadline(time.Time{})
	timeout, ok := err.(net.Error)
	return err != nil && !(ok && timeout.Timeout())
}

// connectionCounts is a ConnectionObserver.
type connectionCounts struct {
	mu      sync.Mutex
	open    int
	refused map[string]int
}

func (c *connectionCounts) ConnectionOpened() { c.mu.Lock(); c.open++; c.mu.Unlock() }
func (c *connectionCounts) ConnectionClosed() { c.mu.Lock(); c.open--; c.mu.Unlock() }
func (c *connectionCounts) ConnectionRefused(reason string) {
	c.mu.Lock()
	c.refused[reason]++
	c.mu.Unlock()
}

func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counted := &connectionCounts{refused: map[string]int{}}
		s := serve(t, func(o *server.Options) {
			o.ConnectionsPerAddress, o.Connections = 3, counted
			o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		})
		for name, tt := range map[string]struct {
			first, next string
			refused     bool
		}{
			"an IPv4 address":            {"203.0.113.9", "203.0.113.9", true},
			"another one":                {"203.0.113.10", "203.0.113.11", false},
			"its form in IPv6":           {"203.0.113.12", "::ffff:203.0.113.12", true},
			"the /64 of an IPv6 address": {"2001:db8::1", "2001:db8::ffff:1", true},
			"another /64":                {"2001:db8:1::1", "2001:db8:1:1::1", false},
			"loopback":                   {"127.0.0.1", "127.0.0.1", true},
			"a trusted proxy":            {"10.0.0.1", "10.0.0.1", false},
		} {
			var conns []net.Conn
			for range 3 {
				conns = append(conns, s.pipes.connect(tt.first))
			}
			next := s.pipes.connect(tt.next)
			synctest.Wait()
			if isClosed(next) != tt.refused || isClosed(conns[0]) {
				t.Errorf("%s: the fourth connection is refused: %v", name, !tt.refused)
			}
			if !tt.refused && !responds(next, "/healthz") {
				t.Errorf("%s: no response", name)
			}
			conns[1].Close()
			synctest.Wait()
			again := s.pipes.connect(tt.first)
			if !responds(again, "/healthz") {
				t.Errorf("%s: no room again after one was closed", name)
			}
			for _, conn := range append(conns, next, again) {
				conn.Close()
			}
		}
		s.stop()
		<-s.done
		if d := cmp.Diff(map[string]int{"address": 4}, counted.refused); d != "" || counted.open != 0 {
			t.Errorf("%d open, refused (-want +got):\n%s", counted.open, d)
		}
	})
}

// most is how many connections a server of these tests accepts. From few on, it closes idle ones.
const most, few = 40, 32

func limited(t *testing.T, change ...func(*server.Options)) *served {
	t.Helper()
	f := build(t, change...)
	f.Server.LimitConnections(most)
	return f.serve(t)
}

// slowMetrics makes requests for the metrics wait for free.
func slowMetrics(free chan struct{}) func(*server.Options) {
	return func(o *server.Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-free })
	}
}

func TestAllConnections(t *testing.T) {
	t.Parallel()
	t.Run("leave room for others: the longest idle ones are closed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			counted := &connectionCounts{refused: map[string]int{}}
			s := limited(t, func(o *server.Options) { o.Connections = counted })
			var conns []net.Conn
			for i := range few {
				conn := s.pipes.connect("203.0.113.9")
				if i%2 == 0 && !responds(conn, "/healthz") { // the others never send anything
					t.Fatal("no response")
				}
				synctest.Wait() // the server marks a connection idle a moment after the response
				conns = append(conns, conn)
			}
			time.Sleep(2 * time.Second)
			if !responds(conns[0], "/healthz") {
				t.Fatal("no response")
			}
			for range 3 {
				conn := s.pipes.connect("203.0.113.10")
				if !responds(conn, "/healthz") {
					t.Error("a new client gets no response")
				}
				conns = append(conns, conn)
			}
			synctest.Wait()
			for i, conn := range conns {
				if want := 1 <= i && i <= 3; isClosed(conn) != want {
					t.Errorf("connection %d is closed: %v", i, !want)
				}
			}
			if d := cmp.Diff(map[string]int{"idle": 3}, counted.refused); d != "" || counted.open != few {
				t.Errorf("%d open, closed (-want +got):\n%s", counted.open, d)
			}
			for _, conn := range conns {
				conn.Close()
			}
			s.stop()
			<-s.done
		})
	})

	t.Run("are closed even if they were idle for a short time, when all are in use", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := limited(t)
			var conns []net.Conn
			for range 3 * most {
				conns = append(conns, s.pipes.connect("203.0.113.9"))
			}
			synctest.Wait()
			if !responds(conns[2*most], "/healthz") || !isClosed(conns[2*most-1]) {
				t.Error("the oldest of a flood are open, or the youngest are not")
			}
			for _, conn := range conns {
				conn.Close()
			}
			s.stop()
			<-s.done
		})
	})
}

// TestBusyConnectionsOfOneOrganization leave room for others. Requests of a valid key wait for their bodies, also those that the server
// refuses.
func TestBusyConnectionsOfOneOrganization(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		f.Server.LimitConnections(most)
		owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
		s := f.serve(t)
		var conns []net.Conn
		for range most {
			conns = append(conns, s.halfSent("203.0.113.9", "POST /api/v1/events/", servertest.APIKey(key)))
		}
		synctest.Wait()
		began := time.Now()
		if !responds(s.pipes.connect("203.0.113.10"), "/healthz") || time.Since(began) > 0 {
			t.Errorf("another client waits for %s", time.Since(began))
		}
		closed := 0
		for _, conn := range conns {
			if isClosed(conn) {
				closed++
			}
			conn.Close()
		}
		if closed == 0 || closed > most/2 {
			t.Errorf("%d of its connections are closed, and it has a right to half of all", closed)
		}
		s.stop()
		<-s.done
	})
}

func TestBusyConnections(t *testing.T) {
	t.Parallel()

	t.Run("are not closed during a request: the next client waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			free := make(chan struct{})
			s := limited(t, slowMetrics(free))
			results := make(chan bool, most)
			for range most {
				go func() {
					conn := s.pipes.connect("203.0.113.9")
					defer conn.Close()
					results <- responds(conn, "/metrics")
				}()
			}
			synctest.Wait()
			next := make(chan bool)
			go func() { next <- responds(s.pipes.connect("203.0.113.10"), "/healthz") }()
			time.Sleep(3 * time.Second)
			select {
			case <-next:
				t.Error("one connection too many")
			default:
			}
			close(free)
			if !<-next {
				t.Error("the waiting client gets no response")
			}
			for range most {
				if !<-results {
					t.Error("a request under way is cut")
				}
			}
			s.stop()
			<-s.done
		})
	})

	t.Run("are closed when they are idle with TLS too", func(t *testing.T) {
		t.Parallel()
		lender := httptest.NewUnstartedServer(http.NotFoundHandler())
		lender.EnableHTTP2 = true
		lender.StartTLS()
		defer lender.Close()
		for protocol, name := range map[string]string{"HTTP/1.1": "http/1.1", "HTTP/2.0": "h2"} {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				s := limited(t, slowMetrics(free), func(o *server.Options) {
					o.TLS = &tls.Config{Certificates: lender.TLS.Certificates}
				})
				// get makes a request over a new connection.
				get := func(path string) (status int) {
					transport := lender.Client().Transport.(*http.Transport).Clone()
					transport.DialContext = s.pipes.dial
					transport.TLSClientConfig.NextProtos = []string{name}
					transport.Protocols = new(http.Protocols)
					transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
					transport.Protocols.SetHTTP2(protocol != "HTTP/1.1")
					t.Cleanup(transport.CloseIdleConnections)
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com"+path, nil)
					r.Header.Set("Authorization", servertest.Operator)
					response, err := transport.RoundTrip(r)
					if err != nil {
						t.Error(err)
						return 0
					}
					if servertest.Read(t, response); response.Proto != protocol {
						t.Errorf("protocol %s", response.Proto)
					}
					return response.StatusCode
				}
				results := make(chan int)
				go func() { results <- get("/metrics") }()
				synctest.Wait()
				for range most {
					time.Sleep(200 * time.Millisecond) // less in total than the timeout of a response
					if status := get("/healthz"); status != http.StatusOK {
						t.Fatalf("status %d", status)
					}
				}
				close(free)
				if status := <-results; status != http.StatusOK {
					t.Errorf("%s: the oldest request, which was under way, ends with %d", protocol, status)
				}
				s.stop()
				<-s.done
			})
		}
	})
}
