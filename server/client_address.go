package server

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// clientAddr returns who asks: the peer, or, where the peer is a trusted proxy, the first address from the right of
// X-Forwarded-For that is none. What stands further left was written by the client and may say anything. The result is
// invalid on a Unix socket.
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
				return client // the last hop that can be believed
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

// forwarded reads one hop of X-Forwarded-For. Some proxies write a port too.
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
