package share

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

const (
	idleGrace       = time.Second // an idle connection is closed earlier only if all connections are in use
	warningInterval = time.Minute
)

// The limits of a server on open connections.
const (
	MaxConnections               = 1024
	DefaultConnectionsPerAddress = 128
)

// ConnectionObserver observes connections.
type ConnectionObserver interface {
	ConnectionOpened()
	ConnectionClosed()
	// ConnectionRefused gets the reason: "address" if the address of the connection has too many, or "idle" if the connection was idle,
	// and few were free. An idle connection is reported as closed too.
	ConnectionRefused(reason string)
}

type noObserver struct{}

func (noObserver) ConnectionOpened()        {}
func (noObserver) ConnectionClosed()        {}
func (noObserver) ConnectionRefused(string) {}

// Limits are the limits of a Listener.
type Limits struct {
	Open       int                // connections that may be open at the same time
	PerAddress int                // of those, how many one address may have; a /56 of IPv6 may have four times as many
	Exempt     TrustedProxies     // PerAddress does not apply to them
	Observer   ConnectionObserver // nil observes nothing
}

// Listener is a listener that limits connections, so that no client takes all of them. Each address has a limit: an IPv4 address,
// or the /64 of an IPv6 host. So has the /56 around it. Trusted proxies have no limit, because each one carries many clients.
// Loopback has one: a proxy on this machine may not be declared. A peer without an address, as on the local socket, is not counted.
//
// When few connections are free, each new one closes the connection that was idle for the longest time. A connection is in use only
// during a request with a valid credential; see MarkBusy. Otherwise anybody could keep it in use with half a body, or with a response
// that nobody reads. For the same reason, an organization has at most as many in use as remain. If all are in use, Accept waits.
type Listener struct {
	net.Listener
	limits Limits
	log    *slog.Logger

	mu           sync.Mutex
	roomOrClosed sync.Cond // a connection was closed or became idle, or the listener was closed
	open         int
	clients      held          // connections
	idle         *list.List    // of *connection; the longest idle comes first
	inUse        map[int64]int // connections, by organization
	closed       bool
	refused      int       // since the last warning
	lastWarning  time.Time // when the log last warned about refused connections
}

// NewListener returns a listener that accepts connections from l within the limits. It owns l.
func NewListener(l net.Listener, limits Limits, log *slog.Logger) *Listener {
	if limits.Observer == nil {
		limits.Observer = noObserver{}
	}
	limited := &Listener{Listener: l, limits: limits, log: log, clients: held{}, idle: list.New(), inUse: map[int64]int{}}
	limited.roomOrClosed.L = &limited.mu
	return limited
}

// connection is an accepted connection. The mutex of owner guards its fields.
type connection struct {
	net.Conn
	owner    *Listener
	client   netip.Addr    // invalid if it counts for no address
	idle     *list.Element // nil while the connection is in use
	user     int64         // the organization for which it is in use; 0 if it counts for none
	since    time.Time     // when it became idle, or when its last request began
	released bool
}

// Accept returns the next connection within the limits.
func (l *Listener) Accept() (net.Conn, error) {
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

// admit waits until there is room for conn. It returns nil if the address of conn has too many connections, or if the listener is closed.
func (l *Listener) admit(conn net.Conn) *connection {
	client, limit := l.clientOf(conn), int64(l.limits.PerAddress)
	l.mu.Lock()
	defer l.mu.Unlock()
	if client.IsValid() && !l.clients.fits(client, 1, limit, 4*limit) {
		l.refuse(client)
		return nil
	}
	for l.closeIdle(); l.open >= l.limits.Open && !l.closed; l.closeIdle() {
		l.roomOrClosed.Wait()
	}
	if l.closed {
		return nil
	}
	l.open++
	l.limits.Observer.ConnectionOpened()
	l.clients.add(client, 1)
	c := &connection{Conn: conn, owner: l, client: client}
	l.markIdle(c)
	return c
}

// clientOf returns the address that a connection counts for. It is invalid if there is none.
func (l *Listener) clientOf(conn net.Conn) netip.Addr {
	tcp, _ := conn.RemoteAddr().(*net.TCPAddr) // the address of nil is invalid
	client := tcp.AddrPort().Addr().Unmap().WithZone("")
	if l.limits.Exempt.Contains(client) {
		return netip.Addr{}
	}
	return client
}

// refuse counts a refused connection of an address. It warns at most once per warningInterval.
func (l *Listener) refuse(client netip.Addr) {
	l.limits.Observer.ConnectionRefused("address")
	l.refused++
	if now := time.Now(); now.Sub(l.lastWarning) >= warningInterval {
		l.log.LogAttrs(context.Background(), slog.LevelWarn,
			"connections refused: one address has reached server.connections_per_address; if it is a proxy, add it to server.trusted_proxies",
			slog.String("address", Network(client).String()), slog.Int("limit", l.limits.PerAddress), slog.Int("refused", l.refused))
		l.refused, l.lastWarning = 0, now
	}
}

// closeIdle closes idle connections while few are free: a fifth at most.
func (l *Listener) closeIdle() {
	for l.open >= l.limits.Open*8/10 && l.idle.Len() > 0 {
		c := l.idle.Front().Value.(*connection)
		if l.open < l.limits.Open && time.Since(c.since) < idleGrace {
			return
		}
		l.limits.Observer.ConnectionRefused("idle")
		l.release(c)
		_ = c.Conn.Close()
	}
}

// markIdle records that a connection is idle from now on.
func (l *Listener) markIdle(c *connection) {
	if c.released {
		return
	}
	c.since = time.Now()
	if c.idle != nil {
		l.idle.MoveToBack(c.idle)
		return
	}
	l.endUse(c)
	c.idle = l.idle.PushBack(c)
	l.roomOrClosed.Signal()
}

// markBusy records that a connection is no longer idle.
func (l *Listener) markBusy(c *connection) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// mayUse reports whether an organization may have one more connection in use: as many must remain for all others.
func (l *Listener) mayUse(organization int64) bool {
	all := l.open - l.idle.Len()
	return l.inUse[organization]+1 <= l.limits.Open-(all+1)
}

// endUse records that an organization no longer uses a connection.
func (l *Listener) endUse(c *connection) {
	if c.user == 0 {
		return
	}
	if l.inUse[c.user]--; l.inUse[c.user] == 0 {
		delete(l.inUse, c.user)
	}
	c.user = 0
}

// release forgets a connection. A second call does nothing.
func (l *Listener) release(c *connection) {
	if c.released {
		return
	}
	c.released = true
	l.markBusy(c)
	l.endUse(c)
	l.open--
	l.limits.Observer.ConnectionClosed()
	l.clients.add(c.client, -1)
	l.roomOrClosed.Signal()
}

// Watch has server, which accepts from l, tell l what its connections do.
func (l *Listener) Watch(server *http.Server) {
	server.ConnState = l.onStateChange
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, unwrap(conn))
	}
}

// connectionKey is the key of a connection in the contexts of its requests.
type connectionKey struct{}

// unwrap returns the connection below TLS. It is nil for another one than of a Listener.
func unwrap(conn net.Conn) *connection {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = wrapped.NetConn()
	}
	c, _ := conn.(*connection)
	return c
}

// onStateChange records when a request begins, and when all requests of a connection have ended.
func (l *Listener) onStateChange(conn net.Conn, state http.ConnState) {
	c := unwrap(conn)
	if c == nil || state != http.StateActive && state != http.StateIdle {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markIdle(c)
}

// MarkBusy records that a request has a valid credential of an organization. Its connection is in use until all of its requests have
// ended, unless the organization uses its share already. Organization 0 has no share: it stands for callers who may act in every
// organization. ctx is the context of the request.
func MarkBusy(ctx context.Context, organization int64) {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	if c == nil { // in tests without a connection
		return
	}
	l := c.owner
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.idle == nil || organization != 0 && !l.mayUse(organization) {
		return
	}
	l.markBusy(c)
	if c.user = organization; organization != 0 {
		l.inUse[organization]++
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

// Close ends Accept, even while it waits for room. Connections stay open.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.roomOrClosed.Broadcast()
	return l.Listener.Close()
}
