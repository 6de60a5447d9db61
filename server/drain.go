package server

import (
	"io"
	"net/http"
	"time"
)

// maxDrain is how much of a body that nobody wants is read: the largest that some route takes, and 32 MiB beyond.
const maxDrain = maxBatchBody + 32<<20

// strangerDrain bounds how long a request without a valid credential may keep its connection by sending a body.
const strangerDrain = 5 * time.Second

// drain reads the rest of the body and keeps none of it. Many clients write the whole request before they read the answer.
// If the server closed the connection meanwhile, as net/http does beyond 256 KiB, they would see a reset and no reason.
// The time for reading a request bounds this too. There are four exceptions: a body that is too long to reach its end; a
// client that waits to be asked for its body and has not been (RFC 9110 section 10.1.1); HTTP/2, where a client reads the
// answer while it sends; and a proxy, which asks without the body of the request that it holds.
func (c *call) drain() {
	r := c.request
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > maxDrain || r.ProtoMajor > 1 || c.dialect != "" ||
		!c.asked && r.Header.Get("Expect") != "" {
		return
	}
	if !c.authenticated {
		// A writer without deadlines, as in tests without a connection, needs none.
		_ = http.NewResponseController(c.ResponseWriter).SetReadDeadline(time.Now().Add(strangerDrain))
	}
	// A client that breaks off has no use for the answer.
	_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
}
