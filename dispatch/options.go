package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Options say how deliveries are made. The zero value of a field is its default; only Transport has none.
type Options struct {
	Policy          webhook.Policy    // zero: webhook.DefaultPolicy
	RetryBase       time.Duration     // before the second attempt; zero: 15 s
	RetryFactor     float64           // by which each delay is longer than the one before; zero: 4
	RetryMax        time.Duration     // no delay is longer, whatever the receiver asks for; zero: 10 min
	Timeout         time.Duration     // of one attempt, from the dial to the last byte of the answer; zero: 15 s
	Grace           time.Duration     // how long Run waits, once told to stop, for attempts under way; zero: Timeout + 4 s
	Concurrency     int               // requests on the wire at once; zero: 256
	PerSubscription int               // of them to one subscription, at most Concurrency; zero: 16
	PollInterval    time.Duration     // how often clocks are compared and a store that failed is tried again; zero: 1 s
	HeaderPrefix    string            // of the headers, as in X-Service-Signature; empty: X-Service
	AllowHTTP       bool              // send to http:// URLs too; false: only https://
	Transport       http.RoundTripper // that refuses forbidden addresses, follows nothing and unpacks nothing: egress makes one
	Logger          *slog.Logger      // nil: slog.Default

	// Ended is told of each attempt, tests included, once its end is recorded. It must return at once; nil: nobody is told.
	OnSettled func(r webhook.Result, made webhook.Settled)
}

// complete returns the options with their defaults, or all that is wrong with them.
func (o Options) complete() (Options, error) {
	if o.Policy == (webhook.Policy{}) {
		o.Policy = webhook.DefaultPolicy()
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.RetryBase, 15 * time.Second},
		{&o.RetryMax, 10 * time.Minute},
		{&o.Timeout, 15 * time.Second},
		{&o.PollInterval, time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.RetryFactor == 0 {
		o.RetryFactor = 4
	}
	if o.Grace == 0 {
		o.Grace = o.Timeout + 4*time.Second
	}
	if o.Concurrency == 0 {
		o.Concurrency = 256
	}
	if o.PerSubscription == 0 {
		o.PerSubscription = 16
	}
	o.PerSubscription = min(o.PerSubscription, o.Concurrency)
	if o.HeaderPrefix == "" {
		o.HeaderPrefix = "X-Service"
	}
	o.HeaderPrefix = textproto.CanonicalMIMEHeaderKey(o.HeaderPrefix)
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
	check(o.RetryBase >= time.Millisecond, "retry base is %s, but must be at least 1ms", o.RetryBase)
	check(o.RetryMax >= max(o.RetryBase, time.Millisecond), "retry max is %s, but must be at least retry base, %s", o.RetryMax, o.RetryBase)
	check(o.RetryFactor >= 1, "retry factor is %g, but must be at least 1", o.RetryFactor) // false for NaN too
	check(o.Timeout > 0, "timeout is %s, but must be positive", o.Timeout)
	check(o.Grace > 0, "grace is %s, but must be positive", o.Grace)
	check(o.PollInterval > 0, "poll interval is %s, but must be positive", o.PollInterval)
	check(o.Concurrency > 0, "concurrency is %d, but must be positive", o.Concurrency)
	check(o.PerSubscription > 0, "concurrency per subscription is %d, but must be positive", o.PerSubscription)
	check(isHeaderToken(o.HeaderPrefix), "header prefix %q must be letters, digits and hyphens", o.HeaderPrefix)
	check(o.HeaderPrefix != "Webhook", "header prefix Webhook would hide the headers of Standard Webhooks")
	check(o.Transport != nil, "a transport is needed")
	return errors.Join(errs...)
}

// token reports whether s can begin a header's name and be read by every receiver.
func isHeaderToken(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
