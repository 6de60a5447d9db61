package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// exchange is one HTTP request with its response. The router and the checks fill it in, and handlers read it. At the end, the log
// line is written from it. Every response is written through it, so it knows the status and the size.
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
	bodyRequested bool       // the handler has started to read the body

	reserved reservation // of the memory for bodies and responses

	check.Run        // the credential, and what the checks found out
	dialect   string // of the proxy in forward authentication; otherwise empty

	values []string // of response headers; see set

	began  time.Time
	status int   // 0 until the header is written
	bytes  int64 // of the body
	code   string
	cause  error // for the log only
}

// headerFields is the number of values that set stores in one allocation.
const headerFields = 12

// set sets a response header and keeps the spelling of its name: the canonical form would be "Ratelimit-Policy". All values
// share one array, because one slice per header would be a third of the allocations of a request.
func (x *exchange) set(name, value string) {
	if x.values == nil {
		x.values = make([]string, 0, headerFields)
	}
	x.values = append(x.values, value)
	last := len(x.values)
	x.Header()[name] = x.values[last-1 : last : last]
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

// longContext returns the context of a handler that may take as long as d. The caller calls cancel.
func (x *exchange) longContext(d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	x.extendDeadlines(d + writeTimeout)
	return context.WithTimeout(x.request.Context(), d)
}

// organization is the row id of the organization in which the caller acts.
func (x *exchange) organization() int64 { return x.Principal.Organization.RowID }

// actor is the caller as the audit log names it.
func (x *exchange) actor() access.Actor {
	ip := ""
	if x.client.IsValid() {
		ip = x.client.String()
	}
	by := x.Principal.Actor(ip, x.id)
	by.Applying = x.isApplying()
	return by
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

// The types of public ids that paths, headers and filters may contain.
const (
	keyID          = access.KeyID
	subscriptionID = access.SubscriptionID
	eventID        = access.EventID
	attemptID      = access.AttemptID
	auditEventID   = access.AuditEventID
	organizationID = access.OrganizationID
	userID         = access.UserID
	tokenID        = access.TokenID
)

// The nouns in the text of a 404. The store uses the same nouns, so a response does not tell whether an id is malformed,
// unknown, or of another organization.
const (
	aKey          = "API key"
	aSubscription = "subscription"
	anEvent       = "event"
	anAttempt     = "attempt"
	anAuditEvent  = "audit event"
	anOrg         = "organization"
	aUser         = "user"
	aToken        = "access token"
	aPlan         = "plan"
	aRole         = "role"
	aPermission   = "permission"
)

// pathID returns an id in the path. An id of another form gets the same 404 as an unknown one. Handlers read ids only here and in pathReference,
// because httprouter passes on "", "..", NUL and invalid UTF-8.
func (x *exchange) pathID(param string, t access.IDType, sort string) (string, error) {
	id := x.params.ByName(param)
	if !t.Valid(id) {
		return "", fault.Missing(sort)
	}
	return id, nil
}

// pathReference returns the id or the external id of a resource in the path. The store tells them apart, and
// finds nothing for a text that can be neither.
func (x *exchange) pathReference(param string) string { return x.params.ByName(param) }

// subscriptionNames is the part of the store that finds a subscription by its external id.
type subscriptionNames interface {
	SubscriptionID(ctx context.Context, organization int64, externalID string) (string, error)
}

// pathSubscription returns the id of the subscription in the path, which may have the external id instead. An id is not looked up
// here; the handler does that.
func (x *exchange) pathSubscription(store subscriptionNames) (string, error) {
	text := x.pathReference("id")
	if subscriptionID.Valid(text) {
		return text, nil
	}
	return store.SubscriptionID(x.request.Context(), x.organization(), text)
}

// putReference is pathReference for a request that creates what does not exist. A text that cannot be an external id is a problem of
// the field external_id; an id of the type itself may exist.
func (x *exchange) putReference(f *form.Form, t access.IDType, sort string) (string, error) {
	text := x.pathReference("id")
	switch {
	case text == "":
		return "", fault.Missing(sort)
	case !t.Valid(text):
		f.PathExternalID("external_id", text)
	}
	return text, nil
}

// pathName is the same for plans and roles, which have a name in the path.
func (x *exchange) pathName(sort string) (string, error) {
	name := x.params.ByName("name")
	if !access.ValidName(name) {
		return "", fault.Missing(sort)
	}
	return name, nil
}

// pathKey is the same for permissions, which have a key in the path.
func (x *exchange) pathKey() (string, error) {
	key := x.params.ByName("key")
	if !access.ValidPermissionKey(key) {
		return "", fault.Missing(aPermission)
	}
	return key, nil
}

// exists adapts a finder to a yes/no check.
func exists[T any](find func(*exchange) (T, error)) func(*exchange) error {
	return func(x *exchange) error {
		_, err := find(x)
		return err
	}
}

// ifID makes a check of an id in the path pass for an external id, with which a request may create what does not exist.
func ifID(t access.IDType, check func(*exchange) error) func(*exchange) error {
	return func(x *exchange) error {
		if !t.Valid(x.pathReference("id")) {
			return nil
		}
		return check(x)
	}
}

// missingInstead returns the error to show for a request that failed with err. A problem with the query or the
// body is shown only if the resource in the path exists. Otherwise the response is 404, so that nobody learns anything about
// resources of others. Only failed requests pay for this lookup; a handler's own store call finds the resource anyway.
func (x *exchange) missingInstead(err error) error {
	if x.route.exists == nil || !isInvalidRequest(err) {
		return err
	}
	if missing := x.route.exists(x); fault.KindOf(missing) == fault.NotFound {
		return missing
	}
	return err
}

// isInvalidRequest reports whether err is about the query or the body of the request, not about stored data.
func isInvalidRequest(err error) bool {
	kind := fault.KindOf(err)
	var unsupported *refusal
	return kind == fault.Malformed || kind == fault.Invalid || kind == fault.TooLarge || errors.As(err, &unsupported)
}

// allOrganizations is the value of the parameter organization with which a list has the items of all organizations.
const allOrganizations = "all"

func (x *exchange) listsAll() bool {
	value, _ := x.query.Value("organization")
	return value == allOrganizations
}

// listed returns the organization whose items a list has: the one in which the caller acts, or all. Only operators may list all.
func (x *exchange) listed() (organization int64, err error) {
	x.query.Matching("organization", "must be all; the header "+credential.OrganizationHeader+" names one organization",
		func(value string) bool { return value == allOrganizations })
	if !x.listsAll() {
		return x.organization(), nil
	}
	return access.AllOrganizations, check.Permit(x.Principal, access.NewScope(access.PlatformRead))
}

// page reads limit and cursor. A handler reads them last, because this reports all problems of the query.
func (x *exchange) page() (form.Page, error) { return x.query.Page(x.list()) }

// list names the list of a request: its route, the organization whose items it has, and the values in the path.
func (x *exchange) list() string {
	var name strings.Builder
	organization := x.Principal.Organization.ID
	if x.listsAll() {
		organization = allOrganizations
	}
	name.WriteString(x.route.pattern + "\n" + organization)
	for _, p := range x.params {
		name.WriteString("\n" + p.Value)
	}
	return name.String()
}
