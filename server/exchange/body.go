package exchange

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/fault"
)

// Sizes of the buffer for a body.
const (
	firstBuffer = 4 << 10 // if the length is not known
	// spare is after the last byte, so that reading the end does not grow the buffer. It also keeps a small body out of the tiny
	// allocator, which frees several objects together: the cleanup of Release could then wait for ever.
	spare = 16
)

// Form reads the body as one JSON object. The Err of the form also returns why it cannot be read. Faults: Malformed, TooLarge. A body
// with another Content-Type is a refusal.
func (x *Exchange) Form() *form.Form {
	return x.form(form.Failed(fault.New(fault.Malformed, "body_required", "The request has no body; send a JSON object.")))
}

// OptionalForm is like Form, but no body means an empty object.
func (x *Exchange) OptionalForm() *form.Form { return x.form(&form.Form{}) }

// form is Form with the form of a request without a body.
func (x *Exchange) form(empty *form.Form) *form.Form {
	body, err := x.body()
	switch {
	case err != nil:
		return form.Failed(err)
	case len(body) == 0:
		return empty
	}
	return form.Parse(body)
}

// body reads the whole body, within the limit of the route and the memory of the organization. The buffer grows as bytes
// arrive. A Content-Length alone never reserves more than paidBody. When the body is complete, the credential is checked again.
func (x *Exchange) body() ([]byte, error) {
	r, limit := x.Request, x.MaxBody
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	before := x.reserved.bytes
	if err := x.reserve(requestCost, max(0, bodyCost*(r.ContentLength-paidBody))); err != nil {
		return nil, err
	}
	x.bodyRequested = true
	x.limitAnonymousBody()
	unread := r.Body // net/http ends it after Content-Length
	if r.ContentLength < 0 {
		unread = http.MaxBytesReader(x.ResponseWriter, unread, limit)
	}
	body, err := x.receive(unread)
	if err != nil {
		x.reserved.memory.Release(x.reserved.holder, x.reserved.bytes-before) // before the rest of the body is discarded
		x.reserved.bytes = before
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return nil, tooLarge(limit)
		}
		if errors.Is(err, errMemory) {
			return nil, err
		}
		return nil, fault.New(fault.Malformed, "unreadable_body", "The body ended early or took too long to arrive; send as many bytes as Content-Length says.").Because(err)
	}
	if x.isAnonymous() {
		x.ExtendDeadlines(WriteTimeout)
	}
	x.reserved.body = body
	if x.Caller != nil {
		if err := x.Caller.Recheck(); err != nil { // a client decides how long its body takes
			return nil, err
		}
	}
	if len(body) == 0 {
		return nil, nil // chunked without a chunk: there is no body, so its type does not matter
	}
	return body, requireJSON(r.Header)
}

// receive reads until the end. It reserves memory before each doubling of the buffer.
func (x *Exchange) receive(r io.Reader) ([]byte, error) {
	most := x.MaxBody + spare
	first := int64(firstBuffer)
	if x.Request.ContentLength > 0 {
		most = x.Request.ContentLength + spare
		first = min(most, paidBody)
	}
	buffer := make([]byte, 0, first)
	for {
		n, err := r.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if errors.Is(err, io.EOF) {
			return buffer, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buffer) < cap(buffer) {
			continue
		}
		size := min(2*int64(cap(buffer)), most)
		if more := size - max(int64(cap(buffer)), paidBody); more > 0 {
			if err := x.reserve(bodyCost*more, 0); err != nil {
				return nil, err
			}
		}
		buffer = append(make([]byte, 0, size), buffer...)
	}
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "too_large", "The body is too large; send at most %d bytes.", limit)
}

// requireJSON refuses a body unless its headers say that it is JSON in UTF-8 without compression.
func requireJSON(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return Refuse(http.StatusUnsupportedMediaType, "unsupported_media_type", "The body is compressed; send it without a Content-Encoding.")
	}
	contentType := h.Get("Content-Type")
	if contentType == "application/json" {
		return nil
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	charset := parameters["charset"]
	if err != nil || mediaType != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return Refuse(http.StatusUnsupportedMediaType, "unsupported_media_type", "The body is not declared as JSON; send it in UTF-8 with Content-Type: application/json.")
	}
	return nil
}

// LargestBody is the size of the largest body that any route accepts, in bytes.
const LargestBody = 16 << 20

// maxDiscarded is how many bytes of an unwanted body are read: 32 MiB more than the largest body that a route accepts.
const maxDiscarded = LargestBody + 32<<20

// anonymousBodyTime is how long a request without a valid credential may send its body, from its beginning.
const anonymousBodyTime = 5 * time.Second

func (x *Exchange) isAnonymous() bool { return x.Principal == nil && !x.Local }

// limitAnonymousBody shortens the time for the rest of the body of a request without a valid credential.
func (x *Exchange) limitAnonymousBody() {
	if x.isAnonymous() {
		// In tests without a connection there are no deadlines to set.
		_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(x.Began.Add(anonymousBodyTime))
	}
}

// DiscardBody reads the rest of the body and drops it. Many clients send the whole request before they read the response. If
// the server closed the connection meanwhile, as net/http does after 256 KiB, such a client would see a reset and no reason.
// The read timeout of the request also applies. In three cases nothing is read:
//   - The body is larger than maxDiscarded.
//   - The client waits for "100 Continue", which it did not get (RFC 9110 section 10.1.1).
//   - HTTP/2: the client reads the response while it sends.
func (x *Exchange) DiscardBody() {
	r := x.Request
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > maxDiscarded || r.ProtoMajor > 1 ||
		!x.bodyRequested && r.Header.Get("Expect") != "" {
		return
	}
	x.limitAnonymousBody()
	// A client that disconnects does not read the response.
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded)
}

// SmallestMemory is the smallest budget for the bodies of all requests, in bytes. With it, one organization can send the largest body
// while the others use a quarter of the budget.
const SmallestMemory = 2 * bodyCost * LargestBody

// The memory that a request uses, in bytes.
const (
	// bodyCost is the bytes of memory per byte of a body: the body itself, and one copy. The copy is made while the buffer
	// grows, or of the events that are stored and delivered.
	bodyCost = 2

	// requestCost is the memory of a request that waits for its body: headers, goroutine, and the first 16 KiB of the body.
	requestCost = 32 << 10
	paidBody    = requestCost / bodyCost
)

// reservation is the part of the budget that one request has.
type reservation struct {
	memory *share.Memory
	holder share.Holder // fixed by the first bytes
	bytes  int64
	body   []byte
}

func (r reservation) release() { r.memory.Release(r.holder, r.bytes) }

// Reserve reserves the memory of a request over HTTP/2, without its body, which Form reserves. One connection makes many requests at once,
// so the limit on connections does not bound them.
func (x *Exchange) Reserve() error {
	cost := int64(requestCost)
	if len(x.Request.Trailer) > 0 {
		cost *= 2 // net/http keeps the fields after the body too
	}
	return x.reserve(cost, 0)
}

// HasMemory reports whether memory is reserved for the request.
func (x *Exchange) HasMemory() bool { return x.reserved.bytes > 0 }

// Charge charges the memory of a request to the organization of its credential, instead of the address of the client.
func (x *Exchange) Charge() error {
	before := x.reserved
	x.reserved = reservation{}
	if err := x.Reserve(); err != nil {
		x.reserved = before
		return err
	}
	if before.bytes > 0 {
		before.release()
	}
	return nil
}

// reserve reserves n more bytes until the request ends. expected is how many more bytes the request will need: if these are
// not available now, the request is refused at once.
func (x *Exchange) reserve(n, expected int64) error {
	if x.reserved.bytes == 0 {
		x.reserved.memory, x.reserved.holder = x.Memory, share.Holder{Organization: x.Organization()}
		if x.isAnonymous() {
			x.reserved.holder.Address = x.Client
		}
	}
	if !x.reserved.memory.Reserve(x.reserved.holder, n, expected) {
		return errMemory
	}
	x.reserved.bytes += n
	return nil
}

// CodeNoMemory is the code of a request that gets no memory.
const CodeNoMemory = "body_memory_exhausted"

var errMemory = fault.New(fault.Unavailable, CodeNoMemory,
	"Requests of this organization or address use all the memory that it may use at the moment; send smaller batches, send fewer at a time, or try again later.")

// Release returns the memory of the request. If the context of the request ended before the handler knew the outcome, the writer may
// still read the body. In that case the memory is returned when the garbage collector frees the body.
func (x *Exchange) Release() {
	r := x.reserved
	x.reserved = reservation{}
	hasOutcome := x.Status() > 0 && x.Status() < http.StatusInternalServerError
	switch {
	case r.bytes == 0:
	case len(r.body) == 0 || hasOutcome || x.Request.Context().Err() == nil:
		r.release()
	default:
		first := &r.body[0]
		r.body = nil
		runtime.AddCleanup(first, reservation.release, r)
	}
}
