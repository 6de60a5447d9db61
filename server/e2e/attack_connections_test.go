package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// outside returns an address of this machine that is not loopback, so that a peer from there counts as a stranger.
func outside(tb testing.TB) string {
	tb.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		tb.Fatal(err)
	}
	for _, one := range all {
		if n, ok := one.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	tb.Skip("this machine has loopback addresses only, which are not limited")
	return ""
}

// idle opens n connections from one address and keeps them until ctx ends, whether they are served or not. If asks, each
// makes one request first. It returns how many were closed by the server meanwhile.
func idle(ctx context.Context, tb testing.TB, address string, n int, asks bool) (closed int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	host, _, _ := net.SplitHostPort(address)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: 10 * time.Second}
	for range n {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			if ctx.Err() == nil {
				tb.Logf("connect: %v", err)
			}
			break
		}
		all.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			if asks {
				_, _ = io.WriteString(conn, "GET /healthz/ HTTP/1.1\r\nHost: keyhook\r\n\r\n") // a closed one shows below
			}
			_, _ = io.Copy(io.Discard, conn) // until either side closes it
			if ctx.Err() == nil {
				mu.Lock()
				closed++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return closed
}

// manyConnections is more than the server accepts in all.
const manyConnections = 1100

// newcomer opens a new connection for each call, as a new client does.
func newcomer(v *victim) caller {
	c := v.caller
	c.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: anyCertificate}}
	return c
}

// BenchmarkAttackConnections: one anonymous address opens as many connections as it can and keeps them idle. The victim
// opens a new connection for each call.
func BenchmarkAttackConnections(b *testing.B) {
	for _, asks := range []bool{true, false} {
		b.Run(fmt.Sprintf("asks=%t", asks), func(b *testing.B) {
			stranger := outside(b)
			p := start(b, b.TempDir(), "KEYHOOK_SERVER_LISTEN=0.0.0.0:0")
			v := p.victim(b)
			address := net.JoinHostPort(stranger, p.url[strings.LastIndexByte(p.url, ':')+1:])
			var calls times
			attack{lead: 2 * time.Second, during: 10 * time.Second, act: func(ctx context.Context) {
				var all sync.WaitGroup
				all.Go(func() {
					b.Logf("%d of the attacker's connections were closed", idle(ctx, b, address, manyConnections, asks))
				})
				all.Go(func() {
					sleep(ctx, 2*time.Second)
					repeat(ctx, 1, func(ctx context.Context) { calls.call(ctx, newcomer(v), "GET", "/api/v1/whoami/", nil) })
				})
				all.Wait()
			}}.measure(b, p, v)
			calls.report(b, "new-connection")
		})
	}
}

// One address has all the connections that it can get, and everybody else still gets in.
func TestAttackConnections(t *testing.T) {
	t.Parallel()
	stranger := outside(t)
	p := start(t, t.TempDir(), "KEYHOOK_SERVER_LISTEN=0.0.0.0:0")
	v := p.victim(t)
	ctx, cancel := context.WithCancel(t.Context())
	var attacking sync.WaitGroup
	attacking.Go(func() {
		idle(ctx, t, net.JoinHostPort(stranger, p.url[strings.LastIndexByte(p.url, ':')+1:]), manyConnections, true)
	})
	sleep(ctx, time.Second)
	for range 10 {
		if a, err := newcomer(v).call(ctx, "GET", "/api/v1/whoami/", nil); err != nil || a.status != http.StatusOK {
			t.Errorf("a newcomer gets %d, %v", a.status, err)
		}
	}
	cancel()
	attacking.Wait()
}
