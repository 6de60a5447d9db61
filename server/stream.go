package server

import (
	"net/http"

	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
)

// One connection of HTTP/2 has many requests, the streams. A client can keep each one open with a response that it does not read, for as
// long as a response may take. So a stream has memory of the budget until its response is sent, and it keeps nothing of the request while
// it waits.

// codeStreamRefused is the code of a request that got no response, for the log.
const codeStreamRefused = "too_many_streams"

func (c *call) isStream() bool { return c.Request.ProtoMajor > 1 }

// openStream reserves the memory of a stream, before anything else is done.
func (c *call) openStream() {
	c.Measured, c.OnBegin = true, c.beginResponse
	_ = c.Reserve() // a request with a valid credential does not need it: its organization has memory of its own
}

// requireMemory resets the stream of a request for which there is no memory. The request gets no response, because the response
// would need memory too.
func (c *call) requireMemory() {
	if c.isStream() && !c.HasMemory() {
		c.Code = codeStreamRefused
		panic(http.ErrAbortHandler)
	}
}

// beginResponse forgets what a stream has brought: header fields, the path, the query, the credential, and the part of the body that
// nobody has read.
func (c *call) beginResponse() {
	c.requireMemory()
	r := c.Request
	_ = r.Body.Close() // it always succeeds
	r.Header, r.Trailer, r.URL, r.RequestURI, r.Host = nil, nil, nil, "", ""
	c.Path, c.Query, c.run.Presented = exchange.Path{}, form.Query{}, credential.Presented{}
}

// finishStream waits until the client has taken the response. net/http would do so after the memory is released.
func (c *call) finishStream() {
	if c.isStream() && c.Bytes() > 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush() // a client that disconnects is not a failure of the server
	}
}
