package sender

import (
	"crypto/tls"
	"net/http/httptrace"
	"sync/atomic"
)

// progress notes how far a request has come.
type progress struct {
	httptrace.ClientTrace
	connected bool // the request has a connection
	reused    bool // the connection has carried another request before

	// Other goroutines write these, possibly after the request has ended.
	handshakeFailed atomic.Bool
	responded       atomic.Bool // the first byte of a response has come
}

func newProgress() *progress {
	p := new(progress)
	p.GotConn = func(c httptrace.GotConnInfo) { p.connected, p.reused = true, c.Reused }
	p.GotFirstResponseByte = func() { p.responded.Store(true) }
	p.TLSHandshakeDone = func(_ tls.ConnectionState, err error) { p.handshakeFailed.Store(err != nil) }
	return p
}
