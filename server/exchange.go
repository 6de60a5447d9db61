package server

import (
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// exchange is one HTTP request with its response. The router and the checks fill it in, handlers read it, and at the end one log
// line is made of it. Every response is written through it, so it knows the status and the size.
type exchange struct {
	http.ResponseWriter
	request       *http.Request
	params        httprouter.Params
	route         *route // nil until one matches
	query         form.Query
	id            string     // X-Request-Id
	local         bool       // it came over the local socket
	client        netip.Addr // address of the client; invalid on the local socket
	base          string     // path before every Location
	bodyRequested bool       // the handler has begun to read the body

	reserved reservation // of the memory for bodies and responses

	check.Run        // the credential, and what the checks found out
	dialect   string // of the proxy in forward authentication; otherwise empty

	values [12]string // of response headers; see set
	used   int

	began  time.Time
	status int   // 0 until the header is written
	bytes  int64 // of the body
	code   string
	cause  error // for the log only
}

// set sets a response header and keeps the spelling of its name: the canonical form would be "Ratelimit-Policy". The values
// are stored in the exchange, because one slice per header would be a third of the allocations of a request.
func (x *exchange) set(name, value string) {
	if x.used == len(x.values) {
		x.Header()[name] = []string{value}
		return
	}
	x.values[x.used] = value
	x.used++
	x.Header()[name] = x.values[x.used-1 : x.used : x.used]
}

// WriteHeader records the status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes of the body.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	x.bytes += int64(n)
	return n, err
}

// extendDeadlines gives the handler time until d from now, beyond the timeouts of the server. The read deadline matters too:
// net/http reads ahead while a handler runs, and cancels the context when that read times out.
func (x *exchange) extendDeadlines(d time.Duration) {
	deadline := time.Now().Add(d)
	rc := http.NewResponseController(x.ResponseWriter)
	// In tests without a connection there are no deadlines to extend.
	_ = rc.SetReadDeadline(deadline)
	_ = rc.SetWriteDeadline(deadline)
}

// organization is the row id of the organization in which the caller acts.
func (x *exchange) organization() int64 { return x.Principal.Organization.RowID }

// actor is the caller as the audit log names it.
func (x *exchange) actor() access.Actor {
	ip := ""
	if x.client.IsValid() {
		ip = x.client.String()
	}
	return x.Principal.Actor(ip, x.id)
}

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
