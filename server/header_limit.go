package server

import (
	"fmt"
	"net/http"
)

// maxHeaderFields is how many fields the header of a request may have. A field takes some 100 bytes of memory, however short
// it is, so 4,000 of them take 25 times the bytes that maxHeaderBytes allows on the wire.
const maxHeaderFields = 100

// boundHeader refuses a header with too many fields. It drops the header too: a client can keep the request for seconds by
// sending its body slowly.
func (c *call) limitHeaderFields() error {
	fields := 0
	for _, values := range c.request.Header {
		fields += len(values)
	}
	if fields <= maxHeaderFields {
		return nil
	}
	c.request.Header = http.Header{}
	c.set("Connection", "close")
	return &refusal{http.StatusRequestHeaderFieldsTooLarge, "too_many_header_fields",
		fmt.Sprintf("The request has %d header fields; send at most %d.", fields, maxHeaderFields)}
}
