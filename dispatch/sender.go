package dispatch

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// maxResponseBody is how many bytes of a response are read.
const maxResponseBody = 8 << 10

// sender makes one attempt: it signs, sends and reports how that ended. It never waits or retries. It does not know
// health or retries.
type sender struct {
	transport http.RoundTripper
	names     headerNames
	deadlines deadlines
	retryMax  time.Duration
	allowHTTP bool
	log       *slog.Logger
}

// sendResult is how an attempt ended.
type sendResult struct {
	status      *int   // nil: no response
	body        string // the part of the response that is stored
	duration    time.Duration
	failure     webhook.Failure // zero on success
	retryAfter  time.Duration   // requested by the receiver
	interrupted bool            // by our own shutdown, before the result was known
}

// record returns the record of an attempt with this result.
func (r sendResult) record(attempt int64, j *webhook.Job, epoch int64) webhook.Result {
	return webhook.Result{
		Attempt: attempt, Delivery: j.Delivery, Subscription: j.Subscription,
		Epoch: epoch, Number: j.Number(), Trigger: j.Trigger(),
		Succeeded: r.failure.IsZero(), ResponseStatus: r.status, ResponseBody: r.body,
		DurationMS: r.duration.Milliseconds(), Failure: r.failure,
	}
}

// send makes the attempt. It returns within the timeout, which includes the response body. ctx ends only to interrupt it.
//
// Each attempt has a new goroutine. Often its stack begins with 4 KiB, which is enough for this function and all that it
// calls. With the larger frames of jobs passed by value, growing the stack took 2-5 µs of each attempt.
func (s *sender) send(ctx context.Context, t *preparedTarget, j webhook.Job) sendResult {
	if !t.sendError.IsZero() {
		return sendResult{failure: t.sendError}
	}
	d := s.deadlines.start(ctx)
	defer s.deadlines.stop(d)
	begin := time.Now()
	result := s.exchange(d, t, &j, begin)
	result.duration = time.Since(begin)
	return result
}

// exchange sends the request and reads the response.
func (s *sender) exchange(ctx context.Context, t *preparedTarget, j *webhook.Job, now time.Time) (result sendResult) {
	defer s.failOnPanic(ctx, t, &result)
	var handshake handshakeTrace
	request := t.request.WithContext(handshake.context(ctx, t.request.URL))
	request.Header = s.header(t, j, now)
	content := j.Body // a closure over j would move the whole job to the heap
	request.ContentLength = int64(len(content))
	request.Body = body(content)
	// The receiver may have closed a connection before any byte was written. With GetBody, http.Transport then repeats
	// the request on another one. No transport repeats a request after that, so one attempt is one request.
	request.GetBody = func() (io.ReadCloser, error) { return body(content), nil }

	response, err := s.transport.RoundTrip(request)
	if err != nil {
		result.failure, result.interrupted = s.classify(ctx, err, handshake.failed.Load()), isInterrupted(ctx)
		return result
	}
	defer response.Body.Close()
	status := response.StatusCode
	result.status = &status
	result.body, err = readResponse(response, t.Headers)
	switch {
	case status < 200 || status > 299:
		result.failure = webhook.Failure{Class: webhook.HTTPStatus, Text: strconv.Itoa(status)}
		result.retryAfter = retryAfter(response.Header, time.Now(), s.retryMax)
	case err != nil:
		result.failure, result.interrupted = s.classify(ctx, err, false), isInterrupted(ctx)
	}
	return result
}

// handshakeTrace notes whether a TLS handshake failed.
type handshakeTrace struct {
	httptrace.ClientTrace
	failed atomic.Bool // written by the goroutine that dials
}

// context returns a context that traces a request to the URL. Only https has handshakes.
func (h *handshakeTrace) context(ctx context.Context, to *url.URL) context.Context {
	if to.Scheme != "https" {
		return ctx
	}
	h.TLSHandshakeDone = func(_ tls.ConnectionState, err error) { h.failed.Store(err != nil) }
	return httptrace.WithClientTrace(ctx, &h.ClientTrace)
}

// failOnPanic makes a panic in the transport a failed attempt.
func (s *sender) failOnPanic(ctx context.Context, t *preparedTarget, result *sendResult) {
	p := recover()
	if p == nil {
		return
	}
	what := slog.Attr{}
	if err, ok := p.(runtime.Error); ok { // any other value may contain a URL
		what = slog.String("error", err.Error())
	}
	s.log.LogAttrs(ctx, slog.LevelError, "the code that sends an attempt panicked; please report this bug with the stack", what,
		slog.String("subscription", t.ID), slog.String("stack", string(debug.Stack())))
	result.failure = webhook.Failure{Class: webhook.ProtocolError, Text: "the request could not be sent"}
}

func isInterrupted(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errInterrupted) }

// body returns a reader of a type that http.Transport knows. Then it sends header and body in one write, and never a body of
// unknown length.
func body(b []byte) io.ReadCloser {
	if len(b) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(b))
}

var buffers = sync.Pool{New: func() any { return new([maxResponseBody]byte) }}

// readResponse reads the part of a response that may be stored. If that is all of it, the connection can be reused. The values of
// the sent headers are masked, because some receivers return the request.
func readResponse(r *http.Response, sent []webhook.Header) (string, error) {
	// After 101 the body is the connection, and nobody sends anything on it.
	if r.StatusCode == http.StatusSwitchingProtocols || r.ContentLength == 0 {
		return "", nil
	}
	buffer := buffers.Get().(*[maxResponseBody]byte)
	defer buffers.Put(buffer)
	var n int
	var err error
	for n < len(buffer) && err == nil {
		var more int
		more, err = r.Body.Read(buffer[n:])
		n += more
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return webhook.CutBody(webhook.MaskHeaders(buffer[:n], sent, n == len(buffer) || err != nil)), err
}
