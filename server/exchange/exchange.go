// Package exchange owns one HTTP request with its response, as handlers see it: the body and the memory that it takes, the values in
// the path, the query, the caller, and the writing of the response. It knows no table of routes and no store, and reads no credentials.
package exchange

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Exchange is one HTTP request with its response. The server fills it in, and handlers read it and respond.
type Exchange struct {
	Response
	Request *http.Request
	Path    Path
	Query   form.Query
	MaxBody int64  // bytes that the route accepts; 0 takes no body
	Base    string // path before every path that a response shows

	ID        string                       // X-Request-Id
	Local     bool                         // the request came over the local socket
	Client    netip.Addr                   // address of the client; invalid on the local socket
	Principal *access.Principal            // the caller; nil without a valid credential
	Caller    interface{ Recheck() error } // checks the credential again after the body; nil if none was checked
	Memory    *share.Memory                // the budget for bodies and large responses
	Began     time.Time

	bodyRequested bool // the handler has started to read the body
	reserved      reservation
}

// WriteTimeout is how long the server waits until a client has read the response.
const WriteTimeout = 30 * time.Second

// hurriedTimeout is WriteTimeout for a large response without memory of its own.
const hurriedTimeout = 5 * time.Second

// ExtendDeadlines gives the handler time until d from now, beyond the timeouts of the server. The read deadline matters too:
// net/http reads ahead while a handler runs, and cancels the context when that read times out.
func (x *Exchange) ExtendDeadlines(d time.Duration) {
	deadline := time.Now().Add(d)
	rc := http.NewResponseController(x.ResponseWriter)
	// In tests without a connection there are no deadlines to extend.
	_ = rc.SetReadDeadline(deadline)
	_ = rc.SetWriteDeadline(deadline)
}

// BulkLimit is how long a request may take that sends or drops many deliveries. A million take a fraction of it. If the request is cut
// off, what it has done stays, and the same request continues from there.
const BulkLimit = 5 * time.Minute

// LongContext returns the context of a handler that may take as long as d. The caller calls cancel.
func (x *Exchange) LongContext(d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	x.ExtendDeadlines(d + WriteTimeout)
	return context.WithTimeout(x.Request.Context(), d)
}

// Organization is the row id of the organization in which the caller acts; 0 without a valid credential.
func (x *Exchange) Organization() int64 {
	if x.Principal == nil {
		return 0
	}
	return x.Principal.Organization.RowID
}

// Actor is the caller as the audit log names it.
func (x *Exchange) Actor() access.Actor { return x.Principal.Actor(x.ClientIP(), x.ID) }

// ClientIP returns the address of the client for the audit log. It is empty for the local socket.
func (x *Exchange) ClientIP() string {
	if !x.Client.IsValid() {
		return ""
	}
	return x.Client.String()
}

// Path is the route of a request, and the values in its path.
type Path struct {
	Pattern string // of the route, such as /api/v1/plans/{name}/; empty if no route matches
	values  []pathValue
	stored  [2]pathValue // for values, so that they need no memory of their own
}

type pathValue struct{ name, value string }

// Add adds a value. Values are in the order of the path.
func (p *Path) Add(name, value string) {
	if p.values == nil {
		p.values = p.stored[:0]
	}
	p.values = append(p.values, pathValue{name, value})
}

// Value returns a value as it was sent, decoded. It may be empty, "..", NUL or invalid UTF-8. A handler checks it, or passes it only
// to a finder, which finds nothing for such a text.
func (p *Path) Value(name string) string {
	for _, v := range p.values {
		if v.name == name {
			return v.value
		}
	}
	return ""
}

// ResolveID returns the id of what a text names: the text itself if it has the form of an id of the type, and else the id of what has it as
// external id in the organization of the caller. An id is not looked up here. Every text that may name a subscription or an API key
// is resolved here; the store resolves organizations and users. find returns NotFound if nothing has the external id.
func (x *Exchange) ResolveID(text string, t access.IDType,
	find func(ctx context.Context, organization int64, externalID string) (string, error)) (string, error) {
	switch {
	case t.Valid(text):
		return text, nil
	case access.LooksLikeID(text):
		return "", fault.Missing(t.Noun())
	}
	return find(x.Request.Context(), x.Organization(), text)
}
