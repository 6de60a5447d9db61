package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/fault"
)

// call is what the server knows of a request: the exchange that its handler sees, its route, and the checks of its credential.
type call struct {
	exchange.Exchange
	server  *Server
	route   *route    // nil until one matches
	run     check.Run // the credential, and what the checks found out
	dialect string    // of the proxy in forward authentication; otherwise empty
}

func (c *call) setRoute(rt *route, values httprouter.Params) {
	c.route, c.Path.Pattern, c.MaxBody = rt, rt.pattern, rt.maxBody
	for _, value := range values {
		c.Path.Add(value.Key, value.Value)
	}
}

// Recheck checks the credential of the request again. It returns the refusal if the credential was withdrawn, or lost a permission that the
// request needs. It may change the Principal.
func (c *call) Recheck() error {
	return c.server.clearEnded(c, c.server.checker.Recheck(c.Request.Context(), &c.run))
}

// maxHeaderFields is the largest number of header fields of a request. Every field takes about 100 bytes of memory, even a
// short one. So 4,000 short fields take 25 times the memory that maxHeaderBytes allows on the wire.
const maxHeaderFields = 100

// limitHeaderFields refuses a header with too many fields. It drops the header too, because a client can keep the request alive
// for seconds with a slow body.
func (c *call) limitHeaderFields() error {
	fields := 0
	for _, values := range c.Request.Header {
		fields += len(values)
	}
	if fields <= maxHeaderFields {
		return nil
	}
	c.Request.Header = http.Header{}
	c.SetHeader("Connection", "close")
	return exchange.Refuse(http.StatusRequestHeaderFieldsTooLarge, "too_many_header_fields",
		fmt.Sprintf("The request has %d header fields; send at most %d.", fields, maxHeaderFields))
}

// handle reads the query and calls the handler. If the route has no parameters or no body, any parameter or field is refused here. A
// handler with parameters or a body reads them itself and refuses the others.
func (c *call) handle() error {
	if len(c.Request.Header["X-Organization"]) > 0 { // it would be ignored, and the request would act in another organization
		return fault.New(fault.Malformed, form.CodeInvalidParameter, "There is no header X-Organization; name the organization with %s.", credential.OrganizationHeader)
	}
	if c.route.method == http.MethodPost && c.route.maxBody == 0 { // such as {"dry_run": true}
		c.MaxBody = maxSmallBody
		if err := c.OptionalForm().Err(); err != nil {
			return err
		}
	}
	if raw := c.Request.URL.RawQuery; raw != "" {
		c.Query = form.ParseQuery(raw, c.route.parameters)
	}
	if len(c.route.parameters) == 0 {
		if err := c.Query.Err(); err != nil {
			return err
		}
	}
	return c.route.handle(c)
}

// missingInstead returns the error to show for a request that failed with err. A problem with the query or the
// body is shown only if the resource in the path exists. Otherwise the response is 404, so that nobody learns anything about
// resources of others. Only failed requests pay for this lookup; a handler's own store call finds the resource anyway.
func (c *call) missingInstead(err error) error {
	if c.route.exists == nil || !isInvalidRequest(err) {
		return err
	}
	if missing := c.route.exists(&c.Exchange); fault.KindOf(missing) == fault.NotFound {
		return missing
	}
	return err
}

// isInvalidRequest reports whether err is about the query or the body of the request, not about stored data.
func isInvalidRequest(err error) bool {
	kind := fault.KindOf(err)
	_, unsupported := errors.AsType[*exchange.Refusal](err)
	return unsupported || kind == fault.Malformed || kind == fault.Invalid || kind == fault.TooLarge
}

// codeStreamRefused is the code of a request that got no response, for the log.
const codeStreamRefused = "too_many_streams"

// isStream reports whether the request came over HTTP/2. One connection has many of these. A client can keep each one open with a response
// that it does not read, for as long as a response may take. So a stream has memory of the budget until its response is sent, and it keeps
// nothing of the request while it waits.
func (c *call) isStream() bool { return c.Request.ProtoMajor > 1 }

// openStream reserves the memory of a stream, before anything else is done.
func (c *call) openStream() {
	c.Measured, c.OnBegin = true, c.beginResponse
	_ = c.Reserve() // a request with a valid credential does not need it: its organization has memory of its own
}

// requireMemory resets the stream of a request for which there is no memory. It gets no response, which would need memory too.
func (c *call) requireMemory() {
	if c.isStream() && !c.HasMemory() {
		c.Code = codeStreamRefused
		panic(http.ErrAbortHandler)
	}
}

// beginResponse forgets what a stream has brought: header fields, the path, the query, and the part of the body that nobody has read. A
// credential that is not valid goes, too. A long response checks the other ones again.
func (c *call) beginResponse() {
	c.requireMemory()
	r := c.Request
	_ = r.Body.Close() // it always succeeds
	r.Header, r.Trailer, r.URL, r.RequestURI, r.Host = nil, nil, nil, "", ""
	c.Path, c.Query = exchange.Path{}, form.Query{}
	if !c.run.Authenticated {
		c.run.Presented = credential.Presented{}
	}
}

// finishStream waits until the client has taken the response. net/http would do so after the memory is released.
func (c *call) finishStream() {
	if c.isStream() && c.Bytes() > 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush() // a client that disconnects is not a failure of the server
	}
}
