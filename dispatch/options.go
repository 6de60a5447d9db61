package dispatch

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"net/http"
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

// Options configure a Dispatcher. A zero field means its default. Only Transport has none. Package config checks the settings.
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
	Random          func() float64    // in [0, 1), for the jitter of delays; any goroutine may call it; nil: rand.Float64

	// OnSettled is called for each attempt, including tests, after its result is recorded. It must return at once. Nil means no call.
	OnSettled func(r webhook.Result, settled webhook.Settled)
}

func (o Options) complete() Options {
	o.Policy = cmp.Or(o.Policy, webhook.DefaultPolicy())
	o.RetryBase, o.RetryFactor = cmp.Or(o.RetryBase, DefaultRetryBase), cmp.Or(o.RetryFactor, DefaultRetryFactor)
	o.RetryMax = cmp.Or(o.RetryMax, DefaultRetryMax)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Grace = cmp.Or(o.Grace, o.Timeout+4*time.Second)
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.PerSubscription = min(cmp.Or(o.PerSubscription, DefaultPerSubscription), o.Concurrency)
	o.PollInterval = cmp.Or(o.PollInterval, DefaultPollInterval)
	o.HeaderPrefix = cmp.Or(o.HeaderPrefix, signature.DefaultHeaderPrefix)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return o
}
