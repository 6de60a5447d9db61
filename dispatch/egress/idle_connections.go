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
	of    map[endpoint][]*connection // the one that was used last at the end
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

// put keeps a connection for the next request. If there are too many, it closes the one that was idle for the longest time.
func (i *idleConnections) put(c *connection) {
	c.idleSince = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of[c.endpoint] = append(i.of[c.endpoint], c)
	i.count++
	if len(i.of[c.endpoint]) > i.maxPerEndpoint {
		i.closeFirst(c.endpoint)
	}
	if i.count > i.max {
		oldest := c
		for _, all := range i.of {
			if all[0].idleSince.Before(oldest.idleSince) {
				oldest = all[0]
			}
		}
		i.closeFirst(oldest.endpoint)
	}
	if i.timer == nil {
		i.timer = time.AfterFunc(i.timeout, i.closeOld)
	}
}

// closeFirst closes the connection to an endpoint that was idle for the longest time.
func (i *idleConnections) closeFirst(to endpoint) {
	all := i.of[to]
	all[0].Close()
	all[0] = nil
	i.keep(to, all[1:])
	i.count--
}

// closeOld closes the connections whose time is over.
func (i *idleConnections) closeOld() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closeBefore(time.Now().Add(-i.timeout))
	i.timer = nil
	if i.count > 0 {
		i.timer = time.AfterFunc(i.timeout/4, i.closeOld)
	}
}

// closeAll closes all connections.
func (i *idleConnections) closeAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closeBefore(time.Now())
	if i.timer != nil {
		i.timer.Stop()
		i.timer = nil
	}
}

// closeBefore closes the connections that are idle since limit or longer.
func (i *idleConnections) closeBefore(limit time.Time) {
	for to := range i.of {
		for len(i.of[to]) > 0 && !i.of[to][0].idleSince.After(limit) {
			i.closeFirst(to)
		}
	}
}
