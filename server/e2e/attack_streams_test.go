package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// startTLS starts a server that speaks TLS itself, on all addresses of this machine.
func startTLS(tb testing.TB) *process {
	tb.Helper()
	lender := httptest.NewUnstartedServer(http.NotFoundHandler())
	lender.StartTLS()
	lender.Close()
	pair := lender.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	certificate, key := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	for file, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return start(tb, tb.TempDir(), "KEYHOOK_SERVER_LISTEN=0.0.0.0:0", "KEYHOOK_SERVER_TLS_CERT_FILE="+certificate, "KEYHOOK_SERVER_TLS_KEY_FILE="+key)
}

// streamFlood is a client of HTTP/2 that keeps as many requests open as it can: no response may send a byte.
type streamFlood struct {
	address     string // host:port, and the address from which the client connects
	connections int
	streams     int
	refills     bool // it reads, and opens other streams for those that ended; otherwise it reads nothing
}

// run opens the connections and keeps them until ctx ends. It returns how many streams were opened.
func (f streamFlood) run(ctx context.Context, tb testing.TB) (opened int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for range f.connections {
		all.Go(func() {
			n, err := f.connect(ctx)
			if err != nil && ctx.Err() == nil {
				tb.Logf("after %d streams: %v", n, err)
			}
			mu.Lock()
			defer mu.Unlock()
			opened += n
		})
	}
	all.Wait()
	return opened
}

// refillAfter is the time between two new streams of a connection. 80 connections send 100 Mbit/s: more would measure the processor.
const refillAfter = 100 * time.Millisecond

func (f streamFlood) connect(ctx context.Context) (opened int, err error) {
	host, _, _ := net.SplitHostPort(f.address)
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: 10 * time.Second},
		Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http2.NextProtoTLS}},
	}
	conn, err := dialer.DialContext(ctx, "tcp", f.address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return 0, err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return 0, err
	}
	open := func() error {
		opened++
		return framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*opened - 1), BlockFragment: largeHeader(opened), EndStream: true, EndHeaders: true,
		})
	}
	for range f.streams {
		if err := open(); err != nil {
			return opened, err
		}
	}
	if !f.refills {
		<-ctx.Done()
		return opened, nil
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return opened, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame:
			sleep(ctx, refillAfter)
			err = open()
		}
		if err != nil {
			return opened, err
		}
	}
}

// largeHeader is the header of a request that needs no credential, with 13 KB of fields.
func largeHeader(n int) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	field := func(name, value string) {
		_ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // a buffer takes everything
	}
	field(":method", "GET")
	field(":scheme", "https")
	field(":authority", "keyhook")
	field(":path", "/healthz/")
	for i := range 90 {
		field(fmt.Sprintf("x-%d-%d", i, n), strings.Repeat("~", 105))
	}
	return block.Bytes()
}

// BenchmarkAttackStreams: one anonymous address opens as many requests over HTTP/2 as it can, with large headers. It lets no response
// send a byte.
func BenchmarkAttackStreams(b *testing.B) {
	for _, refills := range []bool{false, true} {
		b.Run(fmt.Sprintf("refills=%t", refills), func(b *testing.B) {
			stranger := outside(b)
			p := startTLS(b)
			v := p.victim(b)
			flood := streamFlood{net.JoinHostPort(stranger, p.url[strings.LastIndexByte(p.url, ':')+1:]), 80, 100, refills}
			var calls times
			attack{lead: 2 * time.Second, during: 20 * time.Second, act: func(ctx context.Context) {
				var all sync.WaitGroup
				all.Go(func() { b.Logf("%d streams were opened", flood.run(ctx, b)) })
				all.Go(func() {
					sleep(ctx, 2*time.Second)
					repeat(ctx, 1, func(ctx context.Context) { calls.call(ctx, newcomer(v), "GET", "/api/v1/whoami/", nil) })
				})
				all.Wait()
			}}.measure(b, p, v)
			calls.report(b, "check")
		})
	}
}

// Eighty connections with a hundred requests each, none of which reads its response: the memory is bounded, and everybody else gets in.
// Before, they took 300 MB. It is not parallel, and has a quarter of the connections under the race detector, because otherwise the machine
// is too slow for the flood and other tests.
func TestAttackStreams(t *testing.T) {
	stranger := outside(t)
	p := startTLS(t)
	v := p.victim(t)
	ctx, cancel := context.WithCancel(t.Context())
	connections := 80
	if underRace {
		connections /= 4
	}
	flood := streamFlood{net.JoinHostPort(stranger, p.url[strings.LastIndexByte(p.url, ':')+1:]), connections, 100, true}
	var attacking sync.WaitGroup
	attacking.Go(func() { flood.run(ctx, t) })
	if f := v.publishFor(t.Context(), 5*time.Second, 10*time.Second); f.failed() > 0 || f.missing > 0 {
		t.Errorf("the victim noticed: %s", f)
	}
	boundedMemory(t, p)
	cancel()
	attacking.Wait()
}
