package server

import (
	"net/http"

	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
)

// stream is the ResponseWriter of a request over HTTP/2. One connection has many of them. A client can keep each one open with a
// response that it does not read, for as long as a response may take. So a stream has memory of the budget until its response is
// sent, and it keeps nothing of the request while it waits.
type stream struct {
	http.ResponseWriter
	call  *call
	begun bool // the response
	wrote bool // a body
}

// codeStreamRefused is the code of a request that got no response, for the log.
const codeStreamRefused = "too_many_streams"

// openStream reserves the memory of a request over HTTP/2, before anything else is done.
func (c *call) openStream() {
	c.stream = &stream{ResponseWriter: c.ResponseWriter, call: c}
	c.ResponseWriter, c.Measured = c.stream, true
	_ = c.Reserve() // a request with a valid credential does not need it: its organization has memory of its own
}

// requireMemory resets the stream of a request for which there is no memory. The request gets no response, because the response
// would need memory too.
func (c *call) requireMemory() {
	if c.stream != nil && !c.HasMemory() {
		c.Code = codeStreamRefused
		panic(http.ErrAbortHandler)
	}
}

// Unwrap returns the writer of net/http, for http.ResponseController.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader begins the response.
func (s *stream) WriteHeader(status int) {
	s.begin()
	s.ResponseWriter.WriteHeader(status)
}

// Write begins the response if WriteHeader has not.
func (s *stream) Write(b []byte) (int, error) {
	s.begin()
	s.wrote = s.wrote || len(b) > 0
	return s.ResponseWriter.Write(b)
}

// begin forgets what the request has brought: header fields, the path, the query, the credential, and the part of the body that
// nobody has read.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	c := s.call
	c.requireMemory()
	r := c.Request
	_ = r.Body.Close() // it always succeeds
	r.Header, r.Trailer, r.URL, r.RequestURI, r.Host = nil, nil, nil, "", ""
	c.Path, c.Query, c.run.Presented = exchange.Path{}, form.Query{}, credential.Presented{}
}

// finish waits until the client has taken the response. net/http would do so after the memory is released.
func (s *stream) finish() {
	if s.wrote {
		_ = http.NewResponseController(s.ResponseWriter).Flush() // a client that disconnects is not a failure of the server
	}
}
