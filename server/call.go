package server

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// call is one request on its way through the floor. It is filled on the way down and written to the log once, on the way
// up; handlers see nothing else of the request. It is the ResponseWriter through which everything is written, so it
// knows what became of the answer.
type call struct {
	http.ResponseWriter
	request       *http.Request
	params        httprouter.Params
	route         *route // nil while, and where, none matches
	query         form.Query
	id            string     // X-Request-Id
	local         bool       // whether it came over the local socket
	client        netip.Addr // who asks; invalid on the local socket
	base          string     // path before every Location
	bodyRequested bool       // whether the client has been asked for its body

	reserved reservation // of the memory for bodies and answers

	credentialCheck        // of its credential
	dialect         string // of the proxy that asks for another request, empty where none does; see forwardAuth

	values [12]string // of headers; see set
	used   int

	began  time.Time
	tally  tally // nil while, and where, no route matches
	status int   // 0 until the header is written
	bytes  int64 // of the body
	code   string
	cause  error // private
}

// set gives a header its one value, under the very name: a canonical one would be "Ratelimit-Policy". The values live in
// the call, because a slice for each would be a third of what a request allocates.
func (c *call) set(name, value string) {
	if c.used == len(c.values) {
		c.Header()[name] = []string{value}
		return
	}
	c.values[c.used] = value
	c.used++
	c.Header()[name] = c.values[c.used-1 : c.used : c.used]
}

// WriteHeader notes the status.
func (c *call) WriteHeader(status int) {
	if c.status == 0 && status >= 200 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write counts what is written.
func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(b)
	c.bytes += int64(n)
	return n, err
}

// extend gives the handler until d from now, where the times of the server would cut it. The deadline for reading
// counts too: net/http reads ahead while a handler runs, and ends its context when that read times out.
func (c *call) extendDeadlines(d time.Duration) {
	deadline := time.Now().Add(d)
	rc := http.NewResponseController(c.ResponseWriter)
	// A writer without deadlines, as in tests without a connection, has nothing to extend.
	_ = rc.SetReadDeadline(deadline)
	_ = rc.SetWriteDeadline(deadline)
}

// organization is the row id of the organization acted in.
func (c *call) organization() int64 { return c.principal.Organization.RowID }

// actor is who the audit log will name.
func (c *call) actor() access.Actor {
	ip := ""
	if c.client.IsValid() {
		ip = c.client.String()
	}
	return c.principal.Actor(ip, c.id)
}
