package server

import (
	"io"
	"net/http"
)

// maxDrain is how much of a body that nobody wants is read: the largest that some route takes, and 32 MiB beyond.
const maxDrain = manyEvent + 32<<20

// drain reads what is left of the body and forgets it. Many clients write a request to its end before they look for the
// answer; were the connection closed meanwhile, as net/http does beyond 256 KiB, they would see a reset instead of what is
// wrong. The time for reading a request bounds this too. Nothing is read where that would not get to the end, nor where
// the client waits to be asked for its body and has not been (RFC 9110 section 10.1.1).
func (c *call) drain() {
	r := c.request
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > maxDrain || !c.asked && r.Header.Get("Expect") != "" {
		return
	}
	// A client that breaks off has no use for the answer.
	_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
}
