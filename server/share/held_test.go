package share_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/share"
)

// network is a listener whose connections have made-up addresses.
type network struct {
	net.Listener
	conns chan net.Conn
}

func (n network) Accept() (net.Conn, error) {
	conn, ok := <-n.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

type peer struct {
	net.Conn
	address netip.Addr
}

func (p peer) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.address, 999))
}

// connect has l accept a connection from an address, if it does.
func connect(t *testing.T, l *share.Listener, n network, from string) (conn net.Conn, accepted bool) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	n.conns <- peer{far, netip.MustParseAddr(from)}
	n.conns <- peer{far, netip.MustParseAddr("192.0.2.1")} // a trusted proxy, which is always accepted
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap() != netip.MustParseAddr(from) {
		return nil, false
	}
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	return conn, true
}

func newListener(perAddress int) (*share.Listener, network) {
	return newLoggedListener(perAddress, slog.New(slog.DiscardHandler))
}

func newLoggedListener(perAddress int, log *slog.Logger) (*share.Listener, network) {
	n := network{conns: make(chan net.Conn, 2)}
	return share.NewListener(n, share.Limits{
		Open: 10_000, PerAddress: perAddress, Exempt: share.TrustedProxies{netip.MustParsePrefix("192.0.2.1/32")},
	}, log), n
}

// TestWarningsOfRefusedConnections refuses five connections at once, and two a minute later.
func TestWarningsOfRefusedConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l, n := newLoggedListener(1, slog.New(slog.NewTextHandler(&log, nil)))
		for i, times := range []int{1, 5, 1, 1} { // the first one is accepted
			for range times {
				connect(t, l, n, "203.0.113.9")
			}
			if i > 0 {
				time.Sleep(time.Minute)
			}
		}
		var told []string
		for line := range strings.Lines(log.String()) {
			told = append(told, line[strings.Index(line, "refused="):])
		}
		if got := strings.Join(told, ""); got != "refused=1\nrefused=5\nrefused=1\n" { // the first of the five, the other four and one, the last one
			t.Errorf("warnings of %q", got)
		}
	})
}

func TestListenerForgetsAddresses(t *testing.T) {
	t.Parallel()
	l, n := newListener(2)
	var open []net.Conn
	for i := range 100 {
		for _, from := range []string{fmt.Sprintf("198.51.100.%d", i), fmt.Sprintf("2001:db8:%x::1", i), "203.0.113.9"} {
			if conn, ok := connect(t, l, n, from); ok {
				open = append(open, conn)
			} else if from != "203.0.113.9" {
				t.Errorf("%s is refused", from)
			}
		}
	}
	if len(open) != 202 || l.Addresses() != 401 { // each IPv6 host has a /64, a /56 and a /48
		t.Errorf("%d connections of %d networks", len(open), l.Addresses())
	}
	for _, conn := range open {
		conn.Close()
		conn.Close() // counts once
	}
	if l.Addresses() != 0 {
		t.Errorf("%d networks are remembered without a connection", l.Addresses())
	}
	for range 2 {
		if _, ok := connect(t, l, n, "203.0.113.9"); !ok {
			t.Error("an address whose connections have ended is refused")
		}
	}
}

func TestConnectionsOfASite(t *testing.T) {
	t.Parallel()
	l, n := newListener(2)
	accepted := map[string]int{}
	for i := range 10 { // ten /64 of one /56, and as many of its neighbours
		for range 3 {
			for _, site := range []string{"2001:db8:0:10%x::1", "2001:db8:0:20%x::1"} {
				if _, ok := connect(t, l, n, fmt.Sprintf(site, i)); ok {
					accepted[site]++
				}
			}
		}
	}
	for site, got := range accepted {
		if got != 8 {
			t.Errorf("%s: %d connections, want four times the limit of one /64", site, got)
		}
	}
	if _, ok := connect(t, l, n, "198.51.100.1"); !ok {
		t.Error("an IPv4 address is refused")
	}
}

// fill reserves until nothing is left, and returns how much it got.
func fill(m *share.Memory, h share.Holder) (got int64) {
	const step = 32 << 10
	for m.Reserve(h, step, 0) {
		got += step
	}
	return got
}

func TestMemoryOfAddresses(t *testing.T) {
	t.Parallel()
	const megabyte = 1 << 20
	m := share.NewMemory(64 * megabyte)
	taken := map[share.Holder]int64{}
	var clients int64
	take := func(format string, a ...any) (got int64) {
		t.Helper()
		h := share.Holder{Address: netip.MustParseAddr(fmt.Sprintf(format, a...))}
		got = fill(m, h)
		taken[h] += got
		clients += got
		return got
	}
	// wantAtMost checks what all clients have. Each takes steps of 32 KiB, so the last one may be missing.
	wantAtMost := func(who string, most int64) {
		t.Helper()
		if clients > most || clients < most-most/20 {
			t.Errorf("%s has %d bytes, want %d", who, clients, most)
		}
	}
	take("2001:db8::1")
	wantAtMost("a /64", 32*megabyte/17)
	if got := take("2001:db8::2"); got != 0 {
		t.Errorf("the same /64 gets %d bytes more", got)
	}
	for i := range 256 {
		take("2001:db8:0:%x::1", i)
	}
	wantAtMost("a /56", 32*megabyte/9)
	for i := range 256 {
		take("2001:db8:0:%x00::1", i)
	}
	wantAtMost("a /48", 32*megabyte/5)
	if got, rest := take("198.51.100.1"), 32*megabyte-clients; got < (rest-got)/17 {
		t.Errorf("beside a /48 that takes all it can, an address gets %d bytes of %d", got, rest)
	}
	for i := range 20 {
		take("203.0.113.%d", i)
	}
	if got := take("198.51.100.2"); got < megabyte/4 {
		t.Errorf("beside a /48 and 21 addresses, an address gets %d bytes", got)
	}
	if clients > 32*megabyte {
		t.Errorf("all have %d bytes", clients)
	}
	customer := share.Holder{Organization: 1}
	if got := fill(m, customer); got < 42*megabyte {
		t.Errorf("a customer got %d bytes beside them", got)
	} else {
		taken[customer] = got
	}
	for h, n := range taken {
		m.Release(h, n)
	}
	if organizations, anonymous := m.Reserved(); organizations != 0 || anonymous != 0 || m.Holders() != 0 {
		t.Errorf("%d and %d bytes of %d holders are left", organizations, anonymous, m.Holders())
	}
	clients = 0
	take("198.51.100.1")
	wantAtMost("a client that is alone again", 32*megabyte/17)
}

// TestMemoryOfOrganizations gives each at most twice what remains free.
func TestMemoryOfOrganizations(t *testing.T) {
	t.Parallel()
	m := share.NewMemory(90)
	for i, step := range []struct {
		organization, n, expected int64
		want                      bool
	}{
		{1, 0, 61, false}, {1, 10, 50, true}, {1, 0, 51, false}, {1, 50, 0, true}, {1, 1, 0, false},
		{2, 21, 0, false}, {2, 20, 0, true}, {3, 7, 0, false}, {3, 6, 0, true},
		{1, -10, 0, true}, {3, 8, 0, false}, {3, 7, 0, true},
	} {
		h, got := share.Holder{Organization: step.organization}, true
		if step.n < 0 {
			m.Release(h, -step.n)
		} else {
			got = m.Reserve(h, step.n, step.expected)
		}
		if got != step.want {
			t.Errorf("step %d, %+v: %v", i, step, got)
		}
	}
	if organizations, _ := m.Reserved(); organizations != 83 {
		t.Errorf("%d bytes are reserved", organizations)
	}
}
