package server

import (
	"net/netip"

	"github.com/keyhook/keyhook/storage/access"
)

// What black-box tests cannot reach, such as how much is remembered.

// Description returns openapi.yaml as the JSON that is served.
func Description() ([]byte, error) { return jsonFromYAML(openAPI) }

// MaxAddresses is how many addresses the throttle remembers at most.
const MaxAddresses = maxAddresses

// Fail counts a failure of an address.
func (s *Server) Fail(client netip.Addr) { s.throttle.failed(client, [32]byte{}) }

// Remembered is how many addresses the throttle remembers.
func (s *Server) Remembered() int { return s.throttle.recent.Len() }

// MaxProven is how many good credentials each half of the throttle's memory holds at most.
const MaxProven = maxVerified

// LimitConnections sets how many connections are open at once.
func (s *Server) LimitConnections(most int) { s.connections.Open = most }

// Reserved is how much of its memory for bodies and answers is taken.
func (s *Server) Reserved(budget int64) int64 { return budget - s.memory.Free() }

// Prove remembers that a credential is good.
func (s *Server) Prove(d access.Digest) { s.throttle.succeeded(d) }

// Proven is how many good credentials the throttle remembers.
func (s *Server) Proven() int {
	return len(s.throttle.verified.recent) + len(s.throttle.verified.older)
}
