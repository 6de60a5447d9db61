package egress

import (
	"sync"
	"time"
)

// endpoint is where a connection leads: the scheme and the host of a URL, with its port.
type endpoint struct{ scheme, host string }

// idleConnections are the open connections that no request uses.
type idleConnections struct {
	max, maxPerEndpoint int
	timeout             time.Duration // they are closed after this time, or a quarter of it later

	mu    sync.Mutex
	of    map[endpoint][]*connection // sorted by their last use, the latest at the end
	count int
	timer *time.Timer // calls closeOld; nil: no connection is idle
}

// take returns the connection to an endpoint that was used last, or nil.
func (i *idleConnections) take(to endpoint) *connection {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := len(i.of[to]) - 1
	if last < 0 {
		return nil
	}
	c := i.of[to][last]
	i.of[to][last] = nil
	i.keep(to, i.of[to][:last])
	i.count--
	return c
}

// keep keeps the connections to an endpoint. It forgets an endpoint without connections, so the map never has more endpoints than
// connections.
func (i *idleConnections) keep(to endpoint, connections []*connection) {
	if len(connections) == 0 {
		delete(i.of, to)
		return
	}
	i.of[to] = connections
}

// put keeps a connection for the next request. If there are too many, it closes the oldest idle one.
func (i *idleConnections) put(c *connection) {
	c.idleSince = time.Now()
	closeEach(i.add(c))
}

// add adds a connection. It returns those that are too many.
func (i *idleConnections) add(c *connection) (removed []*connection) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of[c.endpoint] = append(i.of[c.endpoint], c)
	i.count++
	if len(i.of[c.endpoint]) > i.maxPerEndpoint {
		removed = append(removed, i.removeFirst(c.endpoint))
	}
	if i.count > i.max {
		oldest := c
		for _, all := range i.of {
			if all[0].idleSince.Before(oldest.idleSince) {
				oldest = all[0]
			}
		}
		removed = append(removed, i.removeFirst(oldest.endpoint))
	}
	if i.timer == nil {
		i.timer = time.AfterFunc(i.timeout, i.closeOld)
	}
	return removed
}

// closeEach closes connections. The caller does not hold the lock, because a receiver can make a close of TLS wait.
func closeEach(connections []*connection) {
	for _, c := range connections {
		c.Close()
	}
}

// removeFirst removes the connection to an endpoint that was idle for the longest time.
func (i *idleConnections) removeFirst(to endpoint) *connection {
	all := i.of[to]
	first := all[0]
	all[0] = nil
	i.keep(to, all[1:])
	i.count--
	return first
}

// closeOld closes the connections whose time is over.
func (i *idleConnections) closeOld() {
	closeEach(i.removeOld())
}

// removeOld removes the connections whose time is over.
func (i *idleConnections) removeOld() []*connection {
	i.mu.Lock()
	defer i.mu.Unlock()
	removed := i.removeBefore(time.Now().Add(-i.timeout))
	i.timer = nil
	if i.count > 0 {
		i.timer = time.AfterFunc(i.timeout/4, i.closeOld)
	}
	return removed
}

// closeAll closes all connections.
func (i *idleConnections) closeAll() {
	closeEach(i.removeAll())
}

// removeAll removes all connections.
func (i *idleConnections) removeAll() []*connection {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.timer != nil {
		i.timer.Stop()
		i.timer = nil
	}
	return i.removeBefore(time.Now())
}

// removeBefore removes the connections that are idle since limit or longer.
func (i *idleConnections) removeBefore(limit time.Time) (removed []*connection) {
	for to := range i.of {
		for len(i.of[to]) > 0 && !i.of[to][0].idleSince.After(limit) {
			removed = append(removed, i.removeFirst(to))
		}
	}
	return removed
}
