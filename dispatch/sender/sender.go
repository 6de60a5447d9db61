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
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// ErrInterrupted is the cause with which the context of Send ends at a stop of the server. The attempt is then interrupted, not failed.
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
	options Options
	names   headerNames
}

// New makes a Sender. It does not check the options: those of package dispatch are checked there.
func New(o Options) *Sender { return &Sender{o, newHeaderNames(o.HeaderPrefix)} }

// Attempt is what Send sends, and how that ended.
type Attempt struct {
	Target *Target
	Job    webhook.Job
	Row    int64 // of the record
	Epoch  int64 // in which the attempt began

	// Send sets these.
	Result      webhook.Result // without the times of a retry
	RetryAfter  time.Duration  // the wait that the receiver asks for, at most Options.MaxRetryAfter; 0: none
	Interrupted bool           // by ErrInterrupted, before the result was known
}

var errTimeout = errors.New("the attempt exceeded its timeout")

// Send makes the attempt. It returns within Options.Timeout, which includes the response body. It returns earlier if ctx
// ends. Every error is part of the result. It does not change the job.
//
// Each attempt has a new goroutine. Often its stack begins with 4 KiB, which is enough for this function and all that it
// calls. With the larger frames of jobs passed by value, growing the stack took 2-5 µs of each attempt.
func (s *Sender) Send(ctx context.Context, a *Attempt) {
	j := &a.Job
	a.Result = webhook.Result{
		Attempt: a.Row, Delivery: j.Delivery, Subscription: j.Subscription, Epoch: a.Epoch, Number: j.Number(), Trigger: j.Trigger(),
		Failure: a.Target.sendError,
	}
	if a.Result.Failure.IsZero() {
		ctx, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, errTimeout)
		defer cancel()
		begin := time.Now()
		s.exchange(ctx, a, begin)
		a.Result.DurationMS = time.Since(begin).Milliseconds()
	}
	a.Result.Succeeded = a.Result.Failure.IsZero()
}

func (s *Sender) exchange(ctx context.Context, a *Attempt, now time.Time) {
	t, j, r := a.Target, &a.Job, &a.Result
	defer s.failOnPanic(ctx, a)
	p := newProgress()
	request := t.request.WithContext(httptrace.WithClientTrace(ctx, &p.ClientTrace))
	request.Header = s.header(t, j, now)
	request.ContentLength = int64(len(j.Body))

	response, err := s.roundTrip(request, j.Body, p)
	if err == nil {
		defer response.Body.Close()
		status := response.StatusCode
		r.ResponseStatus = &status
		r.ResponseHeader = webhook.CutHeader(response.Header, t.Headers)
		r.ResponseBody, err = readResponse(response, t.Headers)
		if status < 200 || status > 299 {
			r.Failure = webhook.Failure{Class: webhook.HTTPStatus, Text: strconv.Itoa(status) + describeRedirect(response, request.URL.Host)}
			a.RetryAfter = retryAfter(response.Header, time.Now(), s.options.MaxRetryAfter)
			return
		}
	}
	if err != nil {
		r.Failure, a.Interrupted = s.classify(ctx, err, p), errors.Is(context.Cause(ctx), ErrInterrupted)
	}
}

// roundTrip sends the request. A receiver may close an idle connection while the request is on its way there. Then the request goes out
// again, until a new connection has carried it. http.Transport alone repeats it too rarely: not after a part of a long body was written.
// Each repetition uses up one idle connection, so their number is limited. After the end of the context, no request gets a connection.
func (s *Sender) roundTrip(r *http.Request, content []byte, p *progress) (*http.Response, error) {
	for {
		p.connected, p.reused = false, false
		r.Body = io.NopCloser(bytes.NewReader(content)) // of a type that http.Transport knows: header and body go out in one write
		response, err := s.options.Transport.RoundTrip(r)
		if err == nil || !p.reused || p.responded.Load() {
			return response, err
		}
	}
}

func (s *Sender) failOnPanic(ctx context.Context, a *Attempt) {
	p := recover()
	if p == nil {
		return
	}
	what := slog.Attr{}
	if err, ok := p.(runtime.Error); ok { // any other value may contain a URL
		what = slog.String("error", err.Error())
	}
	s.options.Logger.LogAttrs(ctx, slog.LevelError, "the code that sends an attempt panicked; please report this bug with the stack", what,
		slog.String("subscription", a.Target.ID), slog.String("stack", string(debug.Stack())))
	a.Result.Failure = webhook.Failure{Class: webhook.ProtocolError, Text: "the request could not be sent"}
}

// progress notes how far a request has come.
type progress struct {
	httptrace.ClientTrace
	connected bool // the request has a connection
	reused    bool // the connection has carried another request before

	// Other goroutines write these, possibly after the request has ended.
	handshakeFailed atomic.Bool
	responded       atomic.Bool // the first byte of a response has come
}

func newProgress() *progress {
	p := new(progress)
	p.GotConn = func(c httptrace.GotConnInfo) { p.connected, p.reused = true, c.Reused }
	p.GotFirstResponseByte = func() { p.responded.Store(true) }
	p.TLSHandshakeDone = func(_ tls.ConnectionState, err error) { p.handshakeFailed.Store(err != nil) }
	return p
}
