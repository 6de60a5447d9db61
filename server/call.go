package server

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// call is one HTTP request with its response. The router and the checks fill it in, handlers read it, and at the end one log
// line is made of it. Every response is written through it, so it knows the status and the size.
type call struct {
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

	credentialCheck
	dialect string // of the proxy in forward authentication; otherwise empty

	values [12]string // of response headers; see set
	used   int

	began  time.Time
	tally  tally // nil while, and where, no route matches
	status int   // 0 until the header is written
	bytes  int64 // of the body
	code   string
	cause  error // for the log only
}

// set sets a response header and keeps the spelling of its name: the canonical form would be "Ratelimit-Policy". The values
// are stored in the call, because one slice per header would be a third of the allocations of a request.
func (c *call) set(name, value string) {
	if c.used == len(c.values) {
		c.Header()[name] = []string{value}
		return
	}
	c.values[c.used] = value
	c.used++
	c.Header()[name] = c.values[c.used-1 : c.used : c.used]
}

// WriteHeader records the status.
func (c *call) WriteHeader(status int) {
	if c.status == 0 && status >= 200 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes of the body.
func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(b)
	c.bytes += int64(n)
	return n, err
}

// extendDeadlines gives the handler time until d from now, beyond the timeouts of the server. The read deadline matters too:
// net/http reads ahead while a handler runs, and cancels the context when that read times out.
func (c *call) extendDeadlines(d time.Duration) {
	deadline := time.Now().Add(d)
	rc := http.NewResponseController(c.ResponseWriter)
	// In tests without a connection there are no deadlines to extend.
	_ = rc.SetReadDeadline(deadline)
	_ = rc.SetWriteDeadline(deadline)
}

// organization is the row id of the organization in which the caller acts.
func (c *call) organization() int64 { return c.principal.Organization.RowID }

// actor is the caller as the audit log names it.
func (c *call) actor() access.Actor {
	ip := ""
	if c.client.IsValid() {
		ip = c.client.String()
	}
	return c.principal.Actor(ip, c.id)
}
