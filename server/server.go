// Package server owns the HTTP API: the table of routes, what happens to a request before and after its handler, and the handlers of
// callers, keys, sessions and the audit log. Package webhooks has the handlers of events and subscriptions. Package platform has the
// handlers for operators. It knows no SQL and sends nothing to receivers: it uses the interfaces Store and webhooks.Tester.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/server/webhooks"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Options configure a Server. Store, Tester and CheckURL are required.
type Options struct {
	Store  Store
	Tester webhooks.Tester
	// SentHeaders returns the headers of an attempt's request, with masked signatures; nil shows none.
	SentHeaders func(webhook.Attempt) http.Header
	// HeaderPrefix is the prefix of Keyhook's headers in deliveries, without the hyphen that follows it. Empty means signature.DefaultHeaderPrefix.
	HeaderPrefix string
	Issuer       check.Issuer                                   // nil accepts no tokens of an identity provider
	SignIn       SignIn                                         // nil: people cannot sign in to the console with the identity provider
	CheckURL     func(raw string) (canonical string, err error) // of egress.Policy; returns an *egress.URLError

	KeyPrefix      string               // of new API keys; empty means access.DefaultKeyPrefix
	BaseURL        string               // where callers reach the server; every Location starts with its path
	ConsoleURL     string               // where browsers reach the server, in links to the console; empty means BaseURL, or localhost
	TrustedProxies share.TrustedProxies // whose X-Forwarded-For and X-Forwarded-Proto are believed
	Checks         []ReadinessCheck     // run by /readyz, in addition to the server's own
	// Deliveries is the check of /readyz whether deliveries are sent; nil checks nothing.
	Deliveries    func(context.Context) (warning string, err error)
	Settings      map[string]string // name to text, without secrets; /readyz shows them on the local socket
	Observe       RequestObserver   // nil observes nothing
	Metrics       http.Handler      // serves /metrics; nil means 404
	Console       *console.Options  // nil serves no console; the server fills in Base and OIDC
	TLS           *tls.Config       // nil means plain HTTP/1.1; TLS also offers HTTP/2
	ShutdownGrace time.Duration     // time for running requests at shutdown; 0 means 20 s
	TestTimeout   time.Duration     // how long a test delivery may take; 0 means 15 s

	BodyMemory            int64                    // bytes for the bodies of all requests, at least exchange.SmallestMemory, which 0 means
	TokenRate             int                      // requests a second per organization without API keys; 0 means check.DefaultTokenRate
	ConnectionsPerAddress int                      // open at the same time; 0 means share.DefaultConnectionsPerAddress
	Connections           share.ConnectionObserver // nil observes nothing

	Logger *slog.Logger // nil means slog.Default
}

// Server serves HTTP requests. Use New.
type Server struct {
	options     Options
	checker     *check.Checker
	reader      *credential.Reader
	cookies     *credential.Cookies
	memory      *share.Memory
	base        string              // path before every path that a response shows
	unknown     *share.AnonymousLog // bounds the lines about requests without a valid credential
	connections share.Limits
	proxyWarned atomic.Int64 // when the log last warned about a proxy, in nanoseconds since the epoch

	router   *router
	draining atomic.Bool
	stopping context.Context // ends when the server stops
	stop     context.CancelFunc
	underway sync.WaitGroup // requests
}

// New returns a server. It reports all problems of the options at once.
func New(o Options) (*Server, error) {
	base, err := o.normalize()
	if err != nil {
		return nil, err
	}
	cookies, err := credential.NewCookies(o.BaseURL, o.TLS != nil, o.TrustedProxies)
	if err != nil {
		return nil, fmt.Errorf("server: Options.BaseURL: %w", err)
	}
	var site *console.Site
	if o.Console != nil {
		settings := *o.Console
		settings.Base, settings.OIDC, settings.HeaderPrefix = base, o.SignIn != nil, o.HeaderPrefix
		if site, err = console.New(settings); err != nil {
			return nil, fmt.Errorf("server: Options.Console: %w", err)
		}
	}
	s := &Server{
		options:     o,
		checker:     check.New(o.Store, o.Issuer, limiter.New(limiter.Window), o.TokenRate),
		reader:      credential.NewReader(o.KeyPrefix, o.Issuer != nil, cookies),
		cookies:     cookies,
		memory:      share.NewMemory(o.BodyMemory),
		base:        base,
		unknown:     share.NewAnonymousLog(o.Logger),
		connections: share.Limits{Open: share.MaxConnections, PerAddress: o.ConnectionsPerAddress, Exempt: o.TrustedProxies, Observer: o.Connections},
		router:      new(router),
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.router.fill(s.table(site))
	return s, nil
}

// normalize fills in defaults and returns the path of BaseURL without its last slash.
func (o *Options) normalize() (base string, err error) {
	var missing error
	if o.Store == nil || o.Tester == nil || o.CheckURL == nil {
		missing = errors.New("server: Options.Store, Options.Tester and Options.CheckURL are required")
	}
	u, err := url.Parse(o.BaseURL)
	if err != nil {
		err = fmt.Errorf("server: Options.BaseURL: %w", err)
	} else {
		base = strings.TrimSuffix(u.EscapedPath(), "/")
	}
	o.BodyMemory = cmp.Or(o.BodyMemory, exchange.SmallestMemory)
	o.TokenRate = cmp.Or(o.TokenRate, check.DefaultTokenRate)
	o.ConnectionsPerAddress = cmp.Or(o.ConnectionsPerAddress, share.DefaultConnectionsPerAddress)
	o.ConsoleURL = cmp.Or(o.ConsoleURL, o.BaseURL, "http://localhost")
	o.KeyPrefix = cmp.Or(o.KeyPrefix, access.DefaultKeyPrefix)
	o.HeaderPrefix = cmp.Or(o.HeaderPrefix, signature.DefaultHeaderPrefix)
	o.ShutdownGrace = cmp.Or(o.ShutdownGrace, 20*time.Second)
	o.TestTimeout = cmp.Or(o.TestTimeout, 15*time.Second)
	if o.SentHeaders == nil {
		o.SentHeaders = func(webhook.Attempt) http.Header { return nil }
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return base, errors.Join(missing, err)
}
