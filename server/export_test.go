package server

// What black-box tests cannot reach.

// FailedAddresses is how many addresses have failed authentications that count.
func (s *Server) FailedAddresses() int { return s.auth.checker.FailedAddresses() }

// LimitConnections sets how many connections may be open at the same time.
func (s *Server) LimitConnections(most int) { s.connections.Open = most }

// Reserved is how much memory organizations have for requests, and how much clients without a valid credential have.
func (s *Server) Reserved() (organizations, anonymous int64) { return s.memory.Reserved() }
