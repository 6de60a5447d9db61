// Package sender owns one attempt: it signs and sends a request, reads the response, and says how the attempt ended. It
// does not know the store, lanes, retries or the health of subscriptions.
package sender

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
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// ErrInterrupted is the cause with which the context of Send ends at a stop of the server. The attempt is then interrupted, not
// failed.
var ErrInterrupted = errors.New("interrupted by a stop of the server")

// Options configure a Sender. It needs all of them.
type Options struct {
	Transport     http.RoundTripper // must refuse forbidden addresses, follow no redirects and not decompress; see package egress
	HeaderPrefix  string            // of the header names, as in X-Service-Signature
	Timeout       time.Duration     // of one attempt, from the dial to the last byte of the response
	MaxRetryAfter time.Duration     // limit of the wait that a receiver may ask for
	AllowHTTP     bool              // also send to http:// URLs
	Logger        *slog.Logger      // gets only panics of the transport
}

// Sender makes attempts. It never waits or retries. It may be used by several goroutines. Use New.
type Sender struct {
	transport     http.RoundTripper
	names         headerNames
	deadlines     deadlines
	maxRetryAfter time.Duration
	allowHTTP     bool
	log           *slog.Logger
}

// New makes a Sender. It does not check the options: those of package dispatch are checked there.
func New(o Options) *Sender {
	return &Sender{
		transport: o.Transport, names: newHeaderNames(o.HeaderPrefix), deadlines: deadlines{timeout: o.Timeout},
		maxRetryAfter: o.MaxRetryAfter, allowHTTP: o.AllowHTTP, log: o.Logger,
	}
}

// Result is how an attempt ended.
type Result struct {
	RetryAfter  time.Duration // the wait that the receiver asks for, at most Options.MaxRetryAfter; 0: none
	Interrupted bool          // by ErrInterrupted, before the result was known

	status   *int   // nil: no response
	body     string // the part of the response that is stored
	duration time.Duration
	failure  webhook.Failure // zero on success
}

// Record returns the record of an attempt with this result. It has no times of a retry.
func (r *Result) Record(attempt int64, j *webhook.Job, epoch int64) webhook.Result {
	return webhook.Result{
		Attempt: attempt, Delivery: j.Delivery, Subscription: j.Subscription,
		Epoch: epoch, Number: j.Number(), Trigger: j.Trigger(),
		Succeeded: r.failure.IsZero(), ResponseStatus: r.status, ResponseBody: r.body,
		DurationMS: r.duration.Milliseconds(), Failure: r.failure,
	}
}

// Send makes the attempt. It returns within Options.Timeout, which includes the response body. It returns earlier if ctx
// ends. Every error is part of the result. It does not change the job, and does not keep it.
//
// Each attempt has a new goroutine. Often its stack begins with 4 KiB, which is enough for this function and all that it
// calls. With the larger frames of jobs passed by value, growing the stack took 2-5 µs of each attempt.
func (s *Sender) Send(ctx context.Context, t *Target, j *webhook.Job) Result {
	if !t.sendError.IsZero() {
		return Result{failure: t.sendError}
	}
	d := s.deadlines.start(ctx)
	defer s.deadlines.stop(d)
	begin := time.Now()
	result := s.exchange(d, t, j, begin)
	result.duration = time.Since(begin)
	return result
}

// exchange sends the request and reads the response.
func (s *Sender) exchange(ctx context.Context, t *Target, j *webhook.Job, now time.Time) (result Result) {
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
		result.failure, result.Interrupted = s.classify(ctx, err, handshake.failed.Load()), isInterrupted(ctx)
		return result
	}
	defer response.Body.Close()
	status := response.StatusCode
	result.status = &status
	result.body, err = readResponse(response, t.Headers)
	switch {
	case status < 200 || status > 299:
		result.failure = webhook.Failure{Class: webhook.HTTPStatus, Text: strconv.Itoa(status)}
		result.RetryAfter = retryAfter(response.Header, time.Now(), s.maxRetryAfter)
	case err != nil:
		result.failure, result.Interrupted = s.classify(ctx, err, false), isInterrupted(ctx)
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
func (s *Sender) failOnPanic(ctx context.Context, t *Target, result *Result) {
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

func isInterrupted(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrInterrupted) }

// body returns a reader of a type that http.Transport knows. Then it sends header and body in one write, and never a body of
// unknown length.
func body(b []byte) io.ReadCloser {
	if len(b) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(b))
}
