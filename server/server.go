// Package server owns the HTTP floor: the table of routes, who may call them and how often, what a request may look like
// and how an answer is written. It knows no SQL and sends nothing to receivers: it asks a Store and a Tester, which it
// names itself.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/form"
)

// Store is all that the floor asks of what is kept. Each file of handlers names its own part.
//
// What a caller may know of a failure is a fault; any other error is internal. What does not exist, is gone, or belongs
// to another organization is one and the same NotFound.
type Store interface {
	principalStore
	form.LookupStore
	whoamiStore
	keyStore
	explainStore
	subscriptionStore
	deliveryStore
	replayStore
	eventStore
	statsStore
	auditStore
	planStore
	permissionStore
	roleStore
	organizationStore
	memberStore
	userStore
	tokenStore
	sessionStore
	queueStore
	backupStore
	clockStore
	healthStore
}

// Options say what a Server works with. Store, Tester and CheckURL are required.
type Options struct {
	Store    Store
	Tester   Tester
	Issuer   Issuer                                         // whose tokens are taken beside our own; nil takes none
	CheckURL func(raw string) (canonical string, err error) // of egress.Policy; an *egress.URLError says what is wrong

	Limiter        *limiter.Limiter // the windows of keys; nil is a new one
	KeyPrefix      string           // of new API keys; empty is "svc"
	BaseURL        string           // where callers reach the server; its path begins every Location
	TrustedProxies []netip.Prefix   // whose X-Forwarded-For and X-Forwarded-Proto are believed
	Checks         []Check          // asked by /readyz, beside the server's own
	// Deliveries tells /readyz whether deliveries go out, as Check.Run does; nil checks nothing.
	Deliveries    func(context.Context) (warning string, err error)
	Measure       Measure       // nil counts nothing
	Metrics       http.Handler  // answers /metrics, to platform:read and to this machine; nil is 404
	TLS           *tls.Config   // nil serves plain HTTP/1.1; with it HTTP/2 is offered too
	ShutdownGrace time.Duration // for requests under way when Serve is told to stop; 0 is 20 s
	TestTimeout   time.Duration // how long a test delivery may take; 0 is 15 s

	BodyMemory            int64              // bytes for the bodies of all requests, see MinBodyMemory; 0 is DefaultBodyMemory
	TokenRate             int                // requests a second of one organization without API keys; 0 is DefaultTokenRate
	ConnectionsPerAddress int                // at once; 0 is DefaultConnectionsPerAddress
	Connections           ConnectionObserver // nil counts nothing

	Logger *slog.Logger // nil is slog.Default
}

// Server answers HTTP requests. Use New.
type Server struct {
	auth     *authenticator
	throttle *throttle
	memory   *memory
	trusted  trustedProxies
	base     string // path before every Location
	tls      *tls.Config
	grace    time.Duration
	log      *slog.Logger
	unknown  *anonymousLog // bounds the lines about requests without a valid credential

	mostConnections int
	perAddress      int
	connections     ConnectionObserver

	router   *router
	strays   map[string]tally // method → what counts the requests that no route takes
	gated    map[string]tally // method → what counts the requests of forward authentication
	draining atomic.Bool
	underway sync.WaitGroup // requests
}

// New returns a server. It reports all problems of the options at once.
func New(o Options) (*Server, error) {
	base, err := o.normalize()
	if err != nil {
		return nil, err
	}
	cookies, err := newCookies(o)
	if err != nil {
		return nil, err
	}
	s := &Server{
		throttle: newThrottle(),
		memory:   newMemory(o.BodyMemory),
		trusted:  o.TrustedProxies,
		base:     base,
		tls:      o.TLS,
		grace:    o.ShutdownGrace,
		log:      o.Logger,
		unknown:  newAnonymousLog(o.Logger),

		mostConnections: maxConnections,
		perAddress:      o.ConnectionsPerAddress,
		connections:     o.Connections,
		router:          new(router),
	}
	checker := &checker{o.Store, o.Issuer, o.Limiter, s.throttle, newTokenRate(o.TokenRate)}
	s.auth = &authenticator{checker, cookies, o.KeyPrefix + "_"}
	s.router.serve(newHandlers(o, base, s.auth, s.router, &s.draining).routes(), o.Measure)
	s.strays = o.Measure.byMethod(noRoute)
	s.gated = o.Measure.byMethod(forwardAuthPath + "{dialect}/")
	return s, nil
}

// normalize fills in defaults and returns the path of BaseURL without a closing slash.
func (o *Options) normalize() (base string, err error) {
	var wrong []error
	if o.Store == nil {
		wrong = append(wrong, errors.New("server: Options.Store is required"))
	}
	if o.Tester == nil {
		wrong = append(wrong, errors.New("server: Options.Tester is required"))
	}
	if o.CheckURL == nil {
		wrong = append(wrong, errors.New("server: Options.CheckURL is required"))
	}
	u, err := url.Parse(o.BaseURL)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("server: Options.BaseURL: %w", err))
	} else {
		base = strings.TrimSuffix(u.EscapedPath(), "/")
	}
	if o.BodyMemory == 0 {
		o.BodyMemory = DefaultBodyMemory
	}
	if o.TokenRate == 0 {
		o.TokenRate = DefaultTokenRate
	}
	if o.ConnectionsPerAddress == 0 {
		o.ConnectionsPerAddress = DefaultConnectionsPerAddress
	}
	if o.Connections == nil {
		o.Connections = noConnectionObserver{}
	}
	if o.Limiter == nil {
		o.Limiter = limiter.New(limiter.Window)
	}
	if o.Measure == nil {
		o.Measure = unmeasured
	}
	if o.KeyPrefix == "" {
		o.KeyPrefix = "svc"
	}
	if o.ShutdownGrace <= 0 {
		o.ShutdownGrace = 20 * time.Second
	}
	if o.TestTimeout <= 0 {
		o.TestTimeout = 15 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return base, errors.Join(wrong...)
}

// Handler answers requests without a listener of its own: what Serve serves.
func (s *Server) Handler() http.Handler { return s }
