package server

import (
	"fmt"
	"net/http"
)

// maxHeaderFields is the largest number of header fields of a request. Every field takes about 100 bytes of memory, even a
// short one. So 4,000 short fields take 25 times the memory that maxHeaderBytes allows on the wire.
const maxHeaderFields = 100

// limitHeaderFields refuses a header with too many fields. It drops the header too, because a client can keep the request alive
// for seconds with a slow body.
func (x *exchange) limitHeaderFields() error {
	fields := 0
	for _, values := range x.request.Header {
		fields += len(values)
	}
	if fields <= maxHeaderFields {
		return nil
	}
	x.request.Header = http.Header{}
	x.set("Connection", "close")
	return &refusal{http.StatusRequestHeaderFieldsTooLarge, "too_many_header_fields",
		fmt.Sprintf("The request has %d header fields; send at most %d.", fields, maxHeaderFields)}
}
