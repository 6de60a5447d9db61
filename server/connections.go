package server

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// How connections are shared out.
const (
	DefaultConnectionsPerAddress = 128

	maxConnections  = 1024
	idleGrace       = time.Second // how long a connection may be idle in any case, unless all are taken
	warningInterval = time.Minute
)

// Why a connection is closed by the server without a word.
const (
	reasonAddress = "address" // its address has as many as it may
	reasonIdle    = "idle"    // it was idle, and few were left
)

// ConnectionObserver is told about connections.
type ConnectionObserver interface {
	ConnectionOpened()
	ConnectionClosed()
	ConnectionRefused(reason string) // "address" or "idle"; one that is idle is closed too
}

// uncounted is the ConnectionObserver of a server that has none.
type noConnectionObserver struct{}

func (noConnectionObserver) ConnectionOpened()        {}
func (noConnectionObserver) ConnectionClosed()        {}
func (noConnectionObserver) ConnectionRefused(string) {}

// connections is a listener that shares out its connections, so that nobody takes them all. An address gets a fixed
// number: an IPv4 address, or the /64 that an IPv6 host owns. Trusted proxies are excepted, since each carries many
// clients. Loopback is not: there may be a proxy that nobody has declared. A peer without an address, as on the local
// socket, is not counted.
//
// When few connections are left, the one that has been idle for the longest is closed for each new one. A connection is
// idle until the header of a request has arrived, and after each answer. When all are taken and none is idle, Accept
// waits.
type connections struct {
	net.Listener
	maxOpen       int // open at once
	closeIdleFrom int // open when idle ones begin to be closed for new ones
	perAddress    int
	isExempt      func(netip.Addr) bool
	observer      ConnectionObserver
	log           *slog.Logger

	mu           sync.Mutex
	roomOrClosed sync.Cond // a connection was closed or became idle, or the listener was closed
	open         int
	byAddress    map[netip.Prefix]int
	idle         *list.List // of *connection, idle for the longest first
	closed       bool
	refused      int       // since warned
	lastWarning  time.Time // when the log last told of refused connections
}

func (s *Server) newConnections(l net.Listener) *connections {
	c := &connections{
		Listener: l, maxOpen: s.mostConnections, closeIdleFrom: s.mostConnections * 8 / 10, perAddress: s.perAddress, isExempt: s.trusted.has, observer: s.connections, log: s.log,
		byAddress: map[netip.Prefix]int{}, idle: list.New(),
	}
	c.roomOrClosed.L = &c.mu
	return c
}

// connection is one of them. Its fields belong to the mutex of owner.
type connection struct {
	net.Conn
	owner    *connections
	address  netip.Prefix  // invalid where it does not count for an address
	idle     *list.Element // nil while a request is under way
	since    time.Time     // when it became idle
	released bool
}

// Accept returns the next connection that there is room for.
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}

// admit waits until there is room for conn. It returns nil where its address has as many as it may, or when the listener
// is closed.
func (l *connections) admit(conn net.Conn) *connection {
	address := l.addressOf(conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	if address.IsValid() && l.byAddress[address] >= l.perAddress {
		l.refuse(address)
		return nil
	}
	for l.closeIdle(); l.open >= l.maxOpen && !l.closed; l.closeIdle() {
		l.roomOrClosed.Wait()
	}
	if l.closed {
		return nil
	}
	l.open++
	l.observer.ConnectionOpened()
	if address.IsValid() {
		l.byAddress[address]++
	}
	c := &connection{Conn: conn, owner: l, address: address}
	l.markIdle(c)
	return c
}

// addressOf returns what a connection counts for, invalid where it counts for none.
func (l *connections) addressOf(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	client := tcp.AddrPort().Addr().Unmap().WithZone("")
	if l.isExempt(client) {
		return netip.Prefix{}
	}
	return network(client)
}

// refuse counts a connection that is one too many for its address, and warns now and then.
func (l *connections) refuse(address netip.Prefix) {
	l.observer.ConnectionRefused(reasonAddress)
	l.refused++
	if now := time.Now(); now.Sub(l.lastWarning) >= warningInterval {
		l.log.LogAttrs(context.Background(), slog.LevelWarn,
			"connections refused: one address has as many as server.connections_per_address allows; if it is a proxy, add it to server.trusted_proxies",
			slog.String("address", address.String()), slog.Int("limit", l.perAddress), slog.Int("refused", l.refused))
		l.refused, l.lastWarning = 0, now
	}
}

// closeIdle closes connections that are idle, while few are left.
func (l *connections) closeIdle() {
	for l.open >= l.closeIdleFrom && l.idle.Len() > 0 {
		c := l.idle.Front().Value.(*connection)
		if l.open < l.maxOpen && time.Since(c.since) < idleGrace {
			return
		}
		l.observer.ConnectionRefused(reasonIdle)
		l.release(c)
		_ = c.Conn.Close()
	}
}

// rest notes that a connection is idle from now on.
func (l *connections) markIdle(c *connection) {
	if c.idle == nil && !c.released {
		c.since = time.Now()
		c.idle = l.idle.PushBack(c)
		l.roomOrClosed.Signal()
	}
}

// work notes that a connection is no longer idle.
func (l *connections) markActive(c *connection) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// release forgets a connection, once.
func (l *connections) release(c *connection) {
	if c.released {
		return
	}
	c.released = true
	l.markActive(c)
	l.open--
	l.observer.ConnectionClosed()
	if c.address.IsValid() {
		if l.byAddress[c.address]--; l.byAddress[c.address] == 0 {
			delete(l.byAddress, c.address)
		}
	}
	l.roomOrClosed.Signal()
}

// track is the ConnState of the http.Server.
func (l *connections) onStateChange(conn net.Conn, state http.ConnState) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = wrapped.NetConn()
	}
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateActive:
		l.markActive(c)
	case http.StateIdle:
		l.markIdle(c)
	}
}

// Close closes the connection and makes room for another.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.owner.release(c)
	return err
}

// Close ends Accept, also one that waits for room. Connections stay open.
func (l *connections) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.roomOrClosed.Broadcast()
	return l.Listener.Close()
}
