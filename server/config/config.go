// Package config owns the settings: their names, defaults and limits, and how flags, environment variables and a file become
// one Config. It does not know what a setting does.
//
// It is the only importer of viper. One table (table.go) describes each setting. The flags, the names of the environment
// variables, the defaults and `config show` come from that table.
package config

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Config has all settings of a process. The dotted names of the settings are its nested fields: webhooks.retry_max is
// Webhooks.RetryMax. Load returns a valid one. It is passed by value.
type Config struct {
	Files   []string // that the settings were read from, or name, and that may have secrets; some are empty
	Server  Server
	Storage struct { // the database file and how long its rows are kept
		Path            string
		Synchronous     string // SynchronousFull or SynchronousNormal
		RetentionEvents time.Duration
		RetentionAudit  time.Duration
	}
	Keys struct { // the form of API keys
		Prefix       string          // without the underscore
		ExpiryNotice []time.Duration // before the end of a key or an access token
	}
	Webhooks struct { // how deliveries are sent and retried
		HeaderPrefix               string // without the hyphen that follows it
		webhook.Policy                    // of retries and health, which the store and the dispatcher share
		RetryBase                  time.Duration
		RetryFactor                float64
		RetryMax                   time.Duration
		Timeout                    time.Duration // of one attempt, including the response body
		Concurrency                int
		ConcurrencyPerSubscription int
		PollInterval               time.Duration
	}
	Egress     Egress
	Encryption struct { // how signing secrets are encrypted
		Key redact.Text // zero: the server uses the key file next to the database
	}
	Bootstrap Bootstrap
	OIDC      struct { // the identity provider whose tokens are accepted; all are empty if there is none
		Issuer            string
		Audience          string
		OrganizationClaim string
	}
	Console struct { // the web console
		Enabled        bool
		Name           string
		Accent         string   // "#rrggbb"; empty: the default of the console
		LogoFile       string   // SVG or PNG; empty: the mark of Keyhook
		PortalPages    []string // of console.PortalPages: what a portal link shows
		FrameAncestors []string // origins of pages that may show the console in a frame

		OIDCClientID     string      // of the console at the identity provider; empty: people cannot sign in with it
		OIDCClientSecret redact.Text // zero: the client has no secret
	}
	Metrics struct { // where Prometheus scrapes the process
		Listen string // host:port of a separate listener; empty: the main listener
	}
	Alerts Alerts
	Log    Log

	Development bool // --dev was given; see Dev
}

// Server is how clients reach the process.
type Server struct {
	Listen         string         // host:port; port 0 means any free port
	BaseURL        string         // the public URL, without a slash at the end; empty: see URL
	TrustedProxies []netip.Prefix // their X-Forwarded-For and X-Forwarded-Proto count
	TLSCertFile    string         // PEM; empty, like TLSKeyFile, for plain HTTP
	TLSKeyFile     string
	ShutdownGrace  time.Duration // time for requests and attempts in flight when the server stops

	TokenRate             int   // requests per second of one organization without API keys
	ConnectionsPerAddress int   // at once
	BodyMemory            int64 // bytes, for the bodies of all requests
}

// URL returns BaseURL. Without a BaseURL it makes a URL of listening, the address that the server has bound. The port in
// Listen may be 0, so listening may differ from it. An unspecified host becomes localhost.
func (s Server) URL(listening string) string {
	if s.BaseURL != "" {
		return s.BaseURL
	}
	scheme := "http"
	if s.TLSCertFile != "" {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(listening) // it was bound, or its setting was checked
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Certificate returns the TLS configuration of the server; nil for plain HTTP. The error is Problems.
func (s Server) Certificate() (*tls.Config, error) {
	if s.TLSCertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
	if err != nil {
		return nil, Problems{NewProblem("server.tls_cert_file, server.tls_key_file", "",
			fault.Advise(err, "set both to PEM files that this process may read: the certificate chain and its private key"))}
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// The values of Storage.Synchronous.
const (
	SynchronousFull   = "full"   // a write is on the disk before it is acknowledged
	SynchronousNormal = "normal" // a power cut may lose the last writes
)

// Egress is where deliveries may be sent.
type Egress struct {
	AllowHTTP       bool
	AllowedNetworks []netip.Prefix // allowed although they are loopback, private, reserved or this machine
	DeniedNetworks  []netip.Prefix // always refused, also inside AllowedNetworks
	CAFile          string         // PEM; trusted in addition to the system's roots
}

// Bootstrap is the credential of the first operator.
type Bootstrap struct {
	Token redact.Text // zero: the server makes one and prints it
}

// Alerts is how the operator is told what needs a person.
type Alerts struct {
	URLs         []redact.Text // of services; empty: nobody is told
	Interval     time.Duration // between two messages of a kind
	FailingAfter time.Duration // after which a subscription that fails is told; 0: it is not
}

// Log is what the process logs.
type Log struct {
	Level  slog.Level
	Format string // LogJSON or LogText
}

// The values of Log.Format.
const (
	LogJSON = "json"
	LogText = "text"
)

// Logger returns a logger that writes to w, with this level and format. replace is as in slog.HandlerOptions.
func (l Log) Logger(w io.Writer, replace func([]string, slog.Attr) slog.Attr) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.Level, ReplaceAttr: replace}
	if l.Format == LogText {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// Dev returns c for development: deliveries may go to http:// URLs and this machine, the log is text, and the console shows its components.
func (c Config) Dev() Config {
	c.Development = true
	c.Egress.AllowHTTP = true
	c.Egress.AllowedNetworks = slices.Concat(c.Egress.AllowedNetworks, loopback)
	c.Log.Format = LogText
	return c
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func (c *Config) set(name string, value any) { c.field(name).Set(reflect.ValueOf(value)) }

func (c *Config) get(name string) any { return c.field(name).Interface() }

// field finds the field of a setting: Webhooks.RetryMax for webhooks.retry_max.
func (c *Config) field(name string) reflect.Value {
	field := reflect.ValueOf(c).Elem()
	for part := range strings.SplitSeq(strings.ReplaceAll(name, "_", ""), ".") {
		field = field.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, part) })
	}
	return field
}
