package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// halfBodies keeps connections open from several addresses, each with a request that has no valid credential and half of its body. A
// connection that the server closes is replaced.
func halfBodies(ctx context.Context, address string) (opened int) {
	const addresses, connections = 9, 128
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range addresses {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}, Timeout: time.Second}
		all.Go(func() {
			repeat(ctx, connections, func(ctx context.Context) {
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					sleep(ctx, 100*time.Millisecond)
					return
				}
				defer conn.Close()
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				mu.Lock()
				opened++
				mu.Unlock()
				_, _ = io.WriteString(conn, "POST /api/v1/session/ HTTP/1.1\r\nHost: keyhook\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
				_, _ = io.Copy(io.Discard, conn) // until the server closes it
				sleep(ctx, 100*time.Millisecond)
			})
		})
	}
	all.Wait()
	return opened
}

// BenchmarkAttackHalfSent: nine anonymous addresses take as many connections as they can, with half a body each. The victim opens a new
// connection for each call.
func BenchmarkAttackHalfSent(b *testing.B) {
	p := start(b, b.TempDir())
	v := p.victim(b)
	var calls times
	attack{lead: 2 * time.Second, during: 20 * time.Second, act: func(ctx context.Context) {
		var all sync.WaitGroup
		all.Go(func() { b.Logf("%d connections were opened", halfBodies(ctx, v.base[len("http://"):])) })
		all.Go(func() {
			sleep(ctx, 2*time.Second)
			repeat(ctx, 1, func(ctx context.Context) {
				calls.call(ctx, newcomer(v), "GET", "/api/v1/whoami/", nil)
				sleep(ctx, 20*time.Millisecond)
			})
		})
		all.Wait()
	}}.measure(b, p, v)
	calls.report(b, "new-connection")
}

// Nine addresses have half a body on every connection that they can get, and everybody else still gets in. Before, nobody did.
func TestAttackHalfSent(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	v := p.victim(t)
	ctx, cancel := context.WithCancel(t.Context())
	var attacking sync.WaitGroup
	attacking.Go(func() { halfBodies(ctx, v.base[len("http://"):]) })
	sleep(ctx, 2*time.Second)
	refused := map[string]int{}
	for range 20 {
		if a, err := newcomer(v).call(ctx, "GET", "/api/v1/whoami/", nil); err != nil || a.status != http.StatusOK {
			refused[fmt.Sprint(a.status, " ", err)]++
		}
	}
	if len(refused) > 0 {
		t.Errorf("newcomers get %v", refused)
	}
	cancel()
	attacking.Wait()
}
