package server

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// clientAddr returns the address of the client. That is the peer. If the peer is a trusted proxy, it is the rightmost address
// in X-Forwarded-For that is not a trusted proxy: the client itself may have written everything to the left of it. On a Unix
// socket the result is invalid.
func (s *Server) clientAddr(r *http.Request) netip.Addr {
	client := peer(r.RemoteAddr)
	if len(s.trusted) == 0 || !s.trusted.has(client) {
		return client
	}
	for _, header := range slices.Backward(r.Header["X-Forwarded-For"]) {
		for header != "" {
			hop := header
			if i := strings.LastIndexByte(header, ','); i >= 0 {
				header, hop = header[:i], header[i+1:]
			} else {
				header = ""
			}
			address, ok := forwarded(hop)
			if !ok {
				return client // the last address that a trusted proxy has written
			}
			client = address
			if !s.trusted.has(client) {
				return client
			}
		}
	}
	return client
}

// trustedProxies are the networks of the proxies whose forwarding headers are believed.
type trustedProxies []netip.Prefix

func (t trustedProxies) has(a netip.Addr) bool {
	return slices.ContainsFunc(t, func(p netip.Prefix) bool { return p.Contains(a) })
}

// peer reads the address of a connection.
func peer(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// forwarded reads one address of X-Forwarded-For. Some proxies add a port.
func forwarded(hop string) (netip.Addr, bool) {
	hop = strings.TrimSpace(hop)
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]"))
	if err != nil {
		ap, err := netip.ParseAddrPort(hop)
		if err != nil {
			return netip.Addr{}, false
		}
		a = ap.Addr()
	}
	return a.Unmap().WithZone(""), true
}
