package exchange

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Response is the response of an exchange. Everything is written through it, so it knows the status and the size.
type Response struct {
	http.ResponseWriter
	Code  string // of the problem that it describes, for the log; empty for a success
	Cause error  // of the problem, for the log only
	// Measured sets Content-Length for every body. Otherwise net/http sets it for small ones.
	Measured bool
	OnBegin  func() // called before the header is written; nil does nothing

	values []string // of headers; see SetHeader
	status int      // 0 until the header is written
	bytes  int64    // of the body
}

// Status is the status that was written, or 0.
func (r *Response) Status() int { return r.status }

// Bytes is the size of the body that was written.
func (r *Response) Bytes() int64 { return r.bytes }

// headerFields is the number of values that SetHeader stores in one allocation.
const headerFields = 12

// SetHeader sets a header and keeps the spelling of its name: the canonical form would be "Ratelimit-Policy". All values
// share one array, because one slice per header would be a third of the allocations of a request.
func (r *Response) SetHeader(name, value string) {
	if r.values == nil {
		r.values = make([]string, 0, headerFields)
	}
	r.values = append(r.values, value)
	last := len(r.values)
	r.Header()[name] = r.values[last-1 : last : last]
}

// WriteHeader records the status.
func (r *Response) WriteHeader(status int) {
	r.begin(status)
	r.ResponseWriter.WriteHeader(status)
}

func (r *Response) begin(status int) {
	if r.status != 0 || status < 200 {
		return
	}
	r.status = status
	if r.OnBegin != nil {
		r.OnBegin()
	}
}

// Write counts the bytes of the body.
func (r *Response) Write(b []byte) (int, error) {
	r.begin(http.StatusOK)
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// maxMeasured is the size of the largest body whose Content-Length net/http sets by itself.
const maxMeasured = 2048

// Send sends an encoded body. It ignores write errors: a client that disconnects is not a failure of the server, and the log
// line has the number of bytes sent. It leaves Content-Length to net/http if it can: a map of more than eight headers costs
// twice, because net/http copies it.
func (r *Response) Send(status int, mediaType string, body []byte) {
	r.SetHeader("Content-Type", mediaType)
	if r.Measured || len(body) > maxMeasured {
		r.SetHeader("Content-Length", strconv.Itoa(len(body)))
	}
	r.WriteHeader(status)
	_, _ = r.Write(body)
}

// NoStore marks a response that shows a secret: no cache may store it (RFC 9111 section 5.2.2.5).
func (r *Response) NoStore() { r.SetHeader("Cache-Control", "no-store") }

// Redirect sends a browser to another page. The page does not learn from where the browser comes.
func (r *Response) Redirect(to string) {
	r.NoStore()
	r.SetHeader("Referrer-Policy", "no-referrer")
	r.SetHeader("Location", to)
	r.WriteHeader(http.StatusSeeOther)
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled is the largest buffer that is kept. One long list does not keep its memory for ever.
const maxPooled = 64 << 10

func recycle(buffer *bytes.Buffer) {
	if buffer.Cap() <= maxPooled {
		buffer.Reset()
		buffers.Put(buffer)
	}
}

// Respond responds with v as JSON; see RespondAs.
func (x *Exchange) Respond(status int, v any) error {
	return x.RespondAs(status, "application/json", v)
}

// RespondAs responds with v as JSON of a media type. It sends nothing if v cannot be encoded. Many slow readers could keep large
// responses in memory at once. So if the organization has no memory left, a read is refused. A write is done already: its client must
// take the response at once.
func (x *Exchange) RespondAs(status int, mediaType string, v any) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer recycle(buffer)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false) // responses are not HTML, and nosniff says so
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	if size := int64(buffer.Cap()); size > maxPooled && status < http.StatusBadRequest {
		if err := x.reserve(size, 0); err != nil {
			if x.Request.Method == http.MethodGet {
				return err
			}
			x.ExtendDeadlines(hurriedTimeout)
		}
	}
	body := buffer.Bytes()
	if len(body) >= minZipped && x.Request.Method == http.MethodGet && x.Header().Get("Cache-Control") != "no-store" {
		x.SetHeader("Vary", "Accept-Encoding")
		if AcceptsGzip(x.Request.Header) {
			zipped := buffers.Get().(*bytes.Buffer)
			defer recycle(zipped)
			zip(zipped, body)
			x.SetHeader("Content-Encoding", "gzip")
			body = zipped.Bytes()
		}
	}
	x.Send(status, mediaType, body)
	return nil
}

// minZipped is the size of the smallest body that is sent in gzip: a smaller one fits into one packet. Only reads are, and no secrets:
// beside text of others, the size of a response in gzip would tell them.
const minZipped = 1400

var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

func zip(to *bytes.Buffer, body []byte) {
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(to)
	_, _ = z.Write(body) // a buffer takes everything
	_ = z.Close()
}

// AcceptsGzip reports whether Accept-Encoding lists gzip. Browsers list it without a weight. A client that refuses gzip with "gzip;q=0"
// gets the plain body.
func AcceptsGzip(h http.Header) bool {
	return slices.ContainsFunc(strings.Split(h.Get("Accept-Encoding"), ","), func(item string) bool { return strings.TrimSpace(item) == "gzip" })
}

// OK responds with v.
func (x *Exchange) OK(v any) error { return x.Respond(http.StatusOK, v) }

// Reply returns a function for what a call of the store returns: it responds with the body of the value, or passes on the error.
func Reply[T, B any](x *Exchange, body func(T) B) func(T, error) error {
	return func(found T, err error) error {
		if err != nil {
			return err
		}
		return x.OK(body(found))
	}
}

// Done responds without a body that the request has succeeded, or passes on the error.
func (x *Exchange) Done(err error) error {
	if err == nil {
		x.WriteHeader(http.StatusNoContent)
	}
	return err
}

// Created responds with a new resource and its path.
func (x *Exchange) Created(path string, v any) error {
	x.SetHeader("Location", x.Base+path)
	return x.Respond(http.StatusCreated, v)
}

// Put responds with a resource at its path that was created or changed.
func (x *Exchange) Put(path string, created bool, v any) error {
	if created {
		return x.Created(path, v)
	}
	return x.OK(v)
}

// Refusal is an error that only HTTP has, so no fault kind exists for it. All of it is public.
type Refusal struct {
	Status       int
	Code, Detail string
}

// Refuse returns a refusal.
func Refuse(status int, code, detail string) error { return &Refusal{status, code, detail} }

// Error returns the code and the detail.
func (r *Refusal) Error() string { return r.Code + ": " + r.Detail }

// Time is a time in a response, in milliseconds since the epoch. A nil pointer is null.
type Time int64

// MarshalJSON writes RFC 3339 in UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(webhook.TimeFormat)+2)
	b = append(b, '"')
	b = webhook.AppendTime(b, int64(t))
	return append(b, '"'), nil
}
