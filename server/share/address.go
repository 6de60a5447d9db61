// Package share owns the limits on shared resources: connections, memory for requests, and lines of the log. No client can use
// up any of them. The package finds the address of each client. It does not know routes or credentials.
package share

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// TrustedProxies are the networks of the proxies whose forwarding headers are believed.
type TrustedProxies []netip.Prefix

// Contains reports whether a trusted proxy has this address.
func (t TrustedProxies) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(t, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Client returns the address of the client of a request. That is the peer. If the peer is a trusted proxy, it is the rightmost
// address in X-Forwarded-For that is not a trusted proxy: the client itself may have written everything to the left of it. On a
// Unix socket the result is invalid.
func (t TrustedProxies) Client(r *http.Request) netip.Addr {
	client := Peer(r)
	if !t.Contains(client) {
		return client
	}
	for _, header := range slices.Backward(r.Header["X-Forwarded-For"]) {
		for header != "" {
			last := strings.LastIndexByte(header, ',')
			address := parseForwarded(header[last+1:])
			if !address.IsValid() {
				return client // the last address that a trusted proxy has written
			}
			client, header = address, header[:max(last, 0)]
			if !t.Contains(client) {
				return client
			}
		}
	}
	return client
}

// Peer returns the address at the other end of the connection. It is invalid on a Unix socket.
func Peer(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero value without an address
	return peer.Addr().Unmap().WithZone("")
}

// Network returns the smallest network of one client: an IPv4 address, or the /64 of an IPv6 address. It is invalid if the address is.
func Network(client netip.Addr) netip.Prefix {
	bits := 64
	if client.Is4() {
		bits = 32
	}
	network, _ := client.Prefix(bits) // the zero value if client is invalid
	return network
}

// parseForwarded reads one address of X-Forwarded-For. Some proxies add a port. The result is invalid if it is no address.
func parseForwarded(hop string) netip.Addr {
	hop = strings.TrimSpace(hop)
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]"))
	if err != nil {
		withPort, _ := netip.ParseAddrPort(hop)
		a = withPort.Addr()
	}
	return a.Unmap().WithZone("")
}

// proxyHeaders are headers that proxies add to the requests that they forward.
var proxyHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// IsForwarded reports whether a request has headers that only proxies add.
func IsForwarded(r *http.Request) bool {
	return slices.ContainsFunc(proxyHeaders, func(name string) bool { return len(r.Header[name]) > 0 })
}

// IsLocal reports whether a request was made on this machine, and not by a page of another site in a browser. A proxy on this
// machine forwards requests from other machines. So a request with proxy headers is never local, even if the proxy is not trusted.
func IsLocal(r *http.Request) bool {
	return Peer(r).IsLoopback() && !IsForwarded(r) && NamesLoopback(r) && len(r.Header["Origin"]) == 0
}

// NamesLoopback reports whether a request names a loopback address as its host, or localhost. A site can make its own name lead a
// browser to a loopback address (DNS rebinding). Then the request names the site.
func NamesLoopback(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return strings.EqualFold(host, "localhost") || err == nil && address.IsLoopback()
}
