package egress_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// deafReceiver is a TLS receiver that responds without reading a request. So the buffers of its connections become full.
type deafReceiver struct {
	url     string
	respond chan struct{} // one response on the connection that was made last
}

func serveDeaf(t *testing.T, certificates []tls.Certificate) *deafReceiver {
	t.Helper()
	small := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	l, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &deafReceiver{url: "https://" + l.Addr().String() + "/", respond: make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	go func() {
		for plain, err := l.Accept(); err == nil; plain, err = l.Accept() {
			t.Cleanup(func() { plain.Close() })
			go func() {
				c := tls.Server(plain, &tls.Config{Certificates: certificates, SessionTicketsDisabled: true})
				if c.Handshake() != nil {
					return
				}
				for range s.respond {
					if _, err := io.WriteString(c, "HTTP/1.1 204 Fine\r\n\r\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return s
}

// smallBuffers returns a Direct whose connections have small send buffers, so that one is full after a few requests.
func smallBuffers(t *testing.T, o egress.Options) *egress.Direct {
	t.Helper()
	o.Policy = loopback
	configured := egress.NewTransport(o)
	dial := configured.DialContext
	configured.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil {
			err = c.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(4096)
		}
		return c, err
	}
	d := egress.NewDirect(configured)
	t.Cleanup(d.CloseIdleConnections)
	return d
}

// slowClose is a connection that takes long to close.
type slowClose struct {
	net.Conn
	closing, mayClose chan struct{}
}

func (c slowClose) Close() error {
	close(c.closing)
	<-c.mayClose
	return c.Conn.Close()
}

func TestDirectSlowClose(t *testing.T) {
	t.Parallel()
	s := script(t, func(c net.Conn, r *http.Request) bool {
		_, err := io.WriteString(c, "HTTP/1.1 204 Fine\r\n\r\n")
		return err == nil
	})
	configured := egress.NewTransport(egress.Options{Policy: loopback, MaxIdle: 1})
	slow, dial := slowClose{closing: make(chan struct{}), mayClose: make(chan struct{})}, configured.DialContext
	configured.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil && slow.Conn == nil {
			slow.Conn = c
			return slow, nil
		}
		return c, err
	}
	d := egress.NewDirect(configured)
	t.Cleanup(d.CloseIdleConnections)
	post := func(host string) {
		url := strings.Replace(s.url, "127.0.0.1", host, 1)
		if status, _, err := postBody(t.Context(), d, url, ""); err != nil || status != 204 {
			t.Errorf("%d, %v", status, err)
		}
	}
	post("127.0.0.1")
	ended := make(chan struct{})
	go func() { post("localhost"); close(ended) }() // this connection replaces the slow one
	<-slow.closing
	others := make(chan struct{})
	go func() { post("localhost"); close(others) }()
	select {
	case <-others:
	case <-time.After(5 * time.Second):
		t.Error("requests wait while a connection is being closed")
	}
	close(slow.mayClose)
	<-ended
	<-others
}

func TestDirectDeafReceiver(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	pool := certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	s := serveDeaf(t, certified.TLS.Certificates)
	d := smallBuffers(t, egress.Options{Roots: pool})

	t.Run("a request ends with its deadline, though the end of TLS cannot be sent", func(t *testing.T) {
		body := strings.Repeat("x", 2000)
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			answer := time.AfterFunc(20*time.Millisecond, func() {
				select {
				case s.respond <- struct{}{}:
				case <-ctx.Done():
				}
			})
			began := time.Now()
			_, _, err := postBody(ctx, d, s.url, body)
			took := time.Since(began)
			answer.Stop()
			cancel()
			if err == nil {
				continue
			}
			if !errors.Is(err, context.DeadlineExceeded) || took > 3*time.Second {
				t.Errorf("the request took %s and ended with %v", took, err)
			}
			return
		}
		t.Fatal("the buffers of the connection never became full")
	})
}
