package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// pipes is a listener without sockets, so that virtual time can pass while its connections wait.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial connects. It fails when the listener is closed.
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// served is a server that serves a listener of pipes.
type served struct {
	*testServer
	pipes  *pipes
	client *http.Client
	stop   context.CancelFunc
	done   chan error
}

func serve(t *testing.T, change ...func(*server.Options)) *served {
	t.Helper()
	return build(t, change...).serve(t)
}

// serve serves a listener of pipes.
func (f *testServer) serve(t *testing.T) *served {
	s := &served{testServer: f, pipes: newPipes(), done: make(chan error, 1)}
	transport := &http.Transport{DialContext: s.pipes.dial}
	s.client = &http.Client{Transport: transport}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.done <- s.Server.Serve(ctx, s.pipes) }()
	t.Cleanup(func() { stop(); transport.CloseIdleConnections() })
	return s
}

// test requests a test delivery and returns the status; 0 if there is no response.
func (s *served) test(t *testing.T) int {
	r, _ := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost,
		"http://keyhook/api/v1/webhooks/subscriptions/sub_01h455vb4pex5vsknk084sn02q/test/", nil)
	r.Header.Set("Authorization", servertest.Operator)
	response, err := s.client.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// slow is a test delivery that takes this time, unless its context ends earlier.
func slow(d time.Duration) func(*server.Options) {
	return func(o *server.Options) {
		o.Tester = servertest.Tester(func(ctx context.Context) (webhook.Attempt, error) {
			select {
			case <-time.After(d):
				return webhook.Attempt{}, nil
			case <-ctx.Done():
				return webhook.Attempt{}, context.Cause(ctx)
			}
		})
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	t.Run("waits for a test delivery until its timeout", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, slow(65*time.Second), func(o *server.Options) { o.TestTimeout = time.Minute })
			if status := s.test(t); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
			s.stop()
			<-s.done
		})
	})
	t.Run("does not wait longer than that", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, slow(time.Hour))
			began := time.Now()
			if status := s.test(t); status != http.StatusServiceUnavailable || time.Since(began) > time.Minute {
				t.Errorf("status %d after %s", status, time.Since(began))
			}
			s.stop()
			<-s.done
		})
	})
}

func TestServeStops(t *testing.T) {
	t.Parallel()

	t.Run("finishes running requests at shutdown, and accepts no more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, slow(10*time.Second))
			statuses := make(chan int, 1)
			go func() { statuses <- s.test(t) }()
			time.Sleep(time.Second)
			s.ready(t, 200) // the result of this look is not given after the stop
			s.stop()
			synctest.Wait()
			if s.test(t) != 0 {
				t.Error("a request gets a response after shutdown began")
			}
			if _, wrong := s.ready(t, 503); wrong["process"] != "is shutting down" {
				t.Errorf("ready says %v", wrong)
			}
			if status := <-statuses; status != http.StatusOK {
				t.Errorf("the request under way ends with %d", status)
			}
			if err := <-s.done; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("cancels requests that outlive the grace period, and returns when they have ended", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, slow(time.Hour), func(o *server.Options) { o.TestTimeout, o.ShutdownGrace = 2*time.Hour, 5*time.Second })
			statuses := make(chan int, 1)
			go func() { statuses <- s.test(t) }()
			time.Sleep(time.Second)
			began := time.Now()
			s.stop()
			err := <-s.done
			if took := time.Since(began); took != 5*time.Second || err != nil {
				t.Errorf("stopped after %s: %v", took, err)
			}
			if status := <-statuses; status == http.StatusOK {
				t.Error("the request that was cut has succeeded")
			}
			if !strings.Contains(s.Log.String(), "shutdown canceled running requests") {
				t.Error("the log does not say that requests were cut")
			}
		})
	})
}

func TestServeLimits(t *testing.T) {
	t.Parallel()

	t.Run("closes connections that send nothing, a part of the header, or a part of the body", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := serve(t)
			for sent, limit := range map[string]time.Duration{
				"":                                      5 * time.Second,
				"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ": 5 * time.Second,
				"POST /api/v1/plans/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: " + servertest.Operator + "\r\nContent-Length: 99\r\n\r\n{":     15 * time.Second,
				"POST /api/v1/plans/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: " + servertest.Operator + "\r\nContent-Length: 999999\r\n\r\n{": 15 * time.Second,
			} {
				conn, err := s.pipes.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, _ = io.WriteString(conn, sent)
				_, err = io.Copy(io.Discard, conn)
				if took := time.Since(began); err != nil || took > limit+time.Second {
					t.Errorf("after %q cut only after %s: %v", sent, took, err)
				}
				conn.Close()
			}
			s.stop()
			<-s.done
		})
	})
	t.Run("refuses a header beyond 16 KiB", func(t *testing.T) {
		t.Parallel()
		s := serve(t)
		conn, err := s.pipes.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 32<<10)+"\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d", response.StatusCode)
		}
		s.stop()
		<-s.done
	})
	t.Run("spells headers as they are documented", func(t *testing.T) {
		t.Parallel()
		s := serve(t)
		_, key := s.key(t, "spelt", "600")
		conn, err := s.pipes.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(conn, "GET /api/v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: "+servertest.APIKey(key)+"\r\n\r\n")
		raw, _ := io.ReadAll(conn)
		for _, header := range []string{"X-Request-Id: ", "RateLimit-Policy: \"plan\";q=600;w=60\r\n", "RateLimit: \"plan\";r=599;t=", "X-RateLimit-Limit: 600\r\n", "X-RateLimit-Reset: "} {
			if !strings.Contains(string(raw), "\r\n"+header) {
				t.Errorf("no %q in %s", header, raw)
			}
		}
		s.stop()
		<-s.done
	})
	t.Run("returns the error of a listener that fails", func(t *testing.T) {
		t.Parallel()
		s := serve(t)
		s.pipes.Close()
		if err := <-s.done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("error %v", err)
		}
	})
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	// The certificate of net/http/httptest, and a client that trusts it.
	lender := httptest.NewUnstartedServer(http.NotFoundHandler())
	lender.EnableHTTP2 = true
	lender.StartTLS()
	t.Cleanup(lender.Close)
	protocol := func(t *testing.T, scheme string, protocols *http.Protocols, change func(*server.Options)) (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f := build(t, change)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Server.Serve(ctx, l) }()
		transport := lender.Client().Transport.(*http.Transport).Clone()
		transport.Protocols = protocols
		defer func() {
			transport.CloseIdleConnections()
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+l.Addr().String()+"/healthz", nil)
		response, err := transport.RoundTrip(r)
		if err != nil {
			return "", err
		}
		servertest.Read(t, response)
		return response.Proto, nil
	}
	t.Run("are HTTP/2 with TLS", func(t *testing.T) {
		t.Parallel()
		both := new(http.Protocols)
		both.SetHTTP1(true)
		both.SetHTTP2(true)
		lent := &tls.Config{Certificates: lender.TLS.Certificates}
		if got, err := protocol(t, "https", both, func(o *server.Options) { o.TLS = lent }); got != "HTTP/2.0" {
			t.Errorf("protocol %q, %v", got, err)
		}
	})
	t.Run("are HTTP/1.1 without TLS, never HTTP/2", func(t *testing.T) {
		t.Parallel()
		first, clear := new(http.Protocols), new(http.Protocols)
		first.SetHTTP1(true)
		clear.SetUnencryptedHTTP2(true)
		if got, err := protocol(t, "http", first, func(*server.Options) {}); got != "HTTP/1.1" {
			t.Errorf("protocol %q, %v", got, err)
		}
		if got, err := protocol(t, "http", clear, func(*server.Options) {}); err == nil {
			t.Errorf("protocol %q in the clear", got)
		}
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := server.New(server.Options{BaseURL: "://"})
	for _, missing := range []string{"Store", "Tester", "CheckURL", "BaseURL"} {
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("no word about %s in: %v", missing, err)
		}
	}
}
