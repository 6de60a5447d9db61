package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Defaults of Options. They are the defaults of the settings, too.
const (
	DefaultRetryBase       = 15 * time.Second
	DefaultRetryFactor     = 4.0
	DefaultRetryMax        = 10 * time.Minute
	DefaultTimeout         = 15 * time.Second
	DefaultConcurrency     = 256
	DefaultPerSubscription = 16
	DefaultPollInterval    = time.Second
)

// Options configure a Dispatcher. A zero field means its default. Only Transport has no default.
type Options struct {
	Policy          webhook.Policy    // zero: webhook.DefaultPolicy
	RetryBase       time.Duration     // delay before the second attempt; zero: DefaultRetryBase
	RetryFactor     float64           // each delay is longer than the last by this factor; zero: DefaultRetryFactor
	RetryMax        time.Duration     // limit of every delay, including Retry-After; zero: DefaultRetryMax
	Timeout         time.Duration     // of one attempt, from the dial to the last byte of the response; zero: DefaultTimeout
	Grace           time.Duration     // how long Run waits for running attempts after ctx ends; zero: Timeout + 4 s
	Concurrency     int               // requests at once; zero: DefaultConcurrency
	PerSubscription int               // requests to one subscription at once, at most Concurrency; zero: DefaultPerSubscription
	PollInterval    time.Duration     // between two reads of the clock, and between retries of a failing store; zero: DefaultPollInterval
	HeaderPrefix    string            // of the header names, as in X-Service-Signature; empty: signature.DefaultHeaderPrefix
	AllowHTTP       bool              // also send to http:// URLs; false: only https://
	Transport       http.RoundTripper // must refuse forbidden addresses, follow no redirects and not decompress; see package egress
	Logger          *slog.Logger      // nil: slog.Default

	// OnSettled is called for each attempt, including tests, after its result is recorded. It must return at once. Nil
	// means no call.
	OnSettled func(r webhook.Result, settled webhook.Settled)
}

// complete returns the options with their defaults, or every problem with them.
func (o Options) complete() (Options, error) {
	o.Policy = cmp.Or(o.Policy, webhook.DefaultPolicy())
	o.RetryBase, o.RetryFactor = cmp.Or(o.RetryBase, DefaultRetryBase), cmp.Or(o.RetryFactor, DefaultRetryFactor)
	o.RetryMax = cmp.Or(o.RetryMax, DefaultRetryMax)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Grace = cmp.Or(o.Grace, o.Timeout+4*time.Second)
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.PerSubscription = min(cmp.Or(o.PerSubscription, DefaultPerSubscription), o.Concurrency)
	o.PollInterval = cmp.Or(o.PollInterval, DefaultPollInterval)
	o.HeaderPrefix = textproto.CanonicalMIMEHeaderKey(cmp.Or(o.HeaderPrefix, signature.DefaultHeaderPrefix))
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, o.validate()
}

func (o Options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("dispatch: "+format, args...))
		}
	}
	check(o.Policy.MaxAttempts >= 1, "max attempts is %d, but a delivery needs at least 1", o.Policy.MaxAttempts)
	check(o.Policy.FailingAfter >= 1, "failing after is %d, but must be at least 1", o.Policy.FailingAfter)
	check(o.Policy.DisabledAfter > o.Policy.FailingAfter, "disabled after is %d, but must be more than failing after, %d",
		o.Policy.DisabledAfter, o.Policy.FailingAfter)
	check(o.Policy.ProbeDisabled >= 0, "probe disabled is %s, but must not be negative", o.Policy.ProbeDisabled)
	check(o.RetryBase >= time.Millisecond, "retry base is %s, but must be at least 1ms", o.RetryBase)
	check(o.RetryMax >= max(o.RetryBase, time.Millisecond), "retry max is %s, but must be at least retry base, %s", o.RetryMax, o.RetryBase)
	check(o.RetryFactor >= 1, "retry factor is %g, but must be at least 1", o.RetryFactor) // also false for NaN
	check(o.Timeout > 0, "timeout is %s, but must be positive", o.Timeout)
	check(o.Grace > 0, "grace is %s, but must be positive", o.Grace)
	check(o.PollInterval > 0, "poll interval is %s, but must be positive", o.PollInterval)
	check(o.Concurrency > 0, "concurrency is %d, but must be positive", o.Concurrency)
	check(o.PerSubscription > 0, "concurrency per subscription is %d, but must be positive", o.PerSubscription)
	check(isHeaderToken(o.HeaderPrefix), "header prefix %q must be letters, digits and hyphens", o.HeaderPrefix)
	check(o.HeaderPrefix != "Webhook", "header prefix Webhook would hide the headers of Standard Webhooks; choose another")
	check(o.Transport != nil, "no transport; set Transport, for example to egress.NewTransport")
	return errors.Join(errs...)
}

// isHeaderToken reports whether s can start a header name that every receiver can read.
func isHeaderToken(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
