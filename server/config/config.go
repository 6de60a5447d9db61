// Package config owns the settings: their names, defaults, limits, and how flags, environment and file become one Config.
// It does not know what any setting does.
//
// It is the only importer of viper. One table (table.go) describes every setting; flags, names of the environment,
// defaults, limits and `config show` are all derived from it.
package config

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/redact"
)

// Config is every setting of one process, with the dotted names of the file as nested fields. Load gives one that
// holds, Default one to start from in code; it is passed by value and nobody changes it afterwards.
type Config struct {
	Server     Server
	Storage    Storage
	Keys       Keys
	Webhooks   Webhooks
	Egress     Egress
	Encryption Encryption
	Bootstrap  Bootstrap
	OIDC       OIDC
	Metrics    Metrics
	Log        Log
}

// Server is how the process is reached.
type Server struct {
	Listen         string         // host:port; port 0 takes a free one
	BaseURL        string         // as callers know it, without a slash at the end; empty: see URL
	TrustedProxies []netip.Prefix // whose X-Forwarded-For and X-Forwarded-Proto are believed
	TLSCertFile    string         // PEM; empty, as TLSKeyFile, for plain HTTP
	TLSKeyFile     string
	ShutdownGrace  time.Duration // what requests and attempts in flight get at a stop

	TokenRate             int   // requests a second of one organization without API keys
	ConnectionsPerAddress int   // at once
	BodyMemory            int64 // bytes, for the bodies of all requests
}

// URL returns BaseURL, or else the address that the server listens on as a URL. listening is the address really bound,
// which is another than Listen where that leaves the port open. An unspecified host is named localhost.
func (s Server) URL(listening string) string {
	if s.BaseURL != "" {
		return s.BaseURL
	}
	scheme := "http"
	if s.TLSCertFile != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return scheme + "://" + listening
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Storage is the one file and what is kept in it.
type Storage struct {
	Path            string
	Synchronous     string // SynchronousFull or SynchronousNormal
	RetentionEvents time.Duration
	RetentionAudit  time.Duration
}

// The values of Storage.Synchronous.
const (
	SynchronousFull   = "full"   // an answer is on the disk
	SynchronousNormal = "normal" // a power cut may take the last moments
)

// Keys is the form of API keys.
type Keys struct {
	Prefix string // without the underscore
}

// Webhooks is how deliveries are sent, repeated and given up.
type Webhooks struct {
	HeaderPrefix               string // without the hyphen that follows it
	MaxAttempts                int    // in total, the first included
	RetryBase                  time.Duration
	RetryFactor                float64
	RetryMax                   time.Duration
	Timeout                    time.Duration // of one attempt, the response's body included
	Concurrency                int
	ConcurrencyPerSubscription int
	PollInterval               time.Duration
	FailingAfter               int // consecutive failed attempts
	DisabledAfter              int // consecutive failed attempts; more than FailingAfter
}

// Egress is where deliveries may go.
type Egress struct {
	AllowHTTP       bool
	AllowedNetworks []netip.Prefix // exceptions from what is refused: loopback, private, reserved, this machine
	DeniedNetworks  []netip.Prefix // refused always, also inside AllowedNetworks
	CAFile          string         // PEM; trusted beside the system's roots
}

// Encryption is what signing secrets are sealed with.
type Encryption struct {
	Key redact.Text // zero: the key file beside the database
}

// Bootstrap is what the first start makes.
type Bootstrap struct {
	Token redact.Text // zero: one is minted and printed
}

// OIDC is the issuer whose tokens are taken beside our own. All fields are empty where there is none.
type OIDC struct {
	Issuer            string
	Audience          string
	OrganizationClaim string
}

// Metrics is where the process is observed.
type Metrics struct {
	Listen string // host:port of a listener of its own; empty: the main one
}

// Log is what the process writes about itself.
type Log struct {
	Level  slog.Level
	Format string // LogJSON or LogText
}

// The values of Log.Format.
const (
	LogJSON = "json"
	LogText = "text"
)

// Default returns every setting as it is when nobody says otherwise.
func Default() Config {
	var c Config
	for _, s := range table {
		if err := s.value.set(&c, s.fallback); err != nil {
			panic("config: default of " + s.name + ": " + err.Error()) // the table is wrong, as its test says
		}
	}
	return c
}

// Dev returns c for a developer's machine: deliveries may go to http:// and to this machine, and the log is for eyes.
func (c Config) Dev() Config {
	c.Egress.AllowHTTP = true
	c.Egress.AllowedNetworks = slices.Concat(c.Egress.AllowedNetworks, loopback)
	c.Log.Format = LogText
	return c
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Validate returns Problems with all that is wrong with c, or nil. What Load returns is valid already; it is for a
// Config made in code.
func (c Config) Validate() error {
	return c.problems(nil, func(string) string { return "" }).orNil()
}

// problems checks each setting alone and then those that depend on each other, leaving out what is known to be bad.
// source says where a setting came from.
func (c Config) problems(bad map[string]bool, source func(name string) string) Problems {
	var found Problems
	failed := make(map[string]bool)
	for _, s := range table {
		if bad[s.name] {
			failed[s.name] = true
		} else if err := s.value.check(&c); err != nil {
			failed[s.name] = true
			found = append(found, Problem{s.name, source(s.name), err.Error()})
		}
	}
	for _, r := range rules {
		if slices.ContainsFunc(r.names, func(name string) bool { return failed[name] }) {
			continue
		}
		if wrong := r.broken(c); wrong != "" {
			found = append(found, Problem{r.names[0], source(r.names[0]), wrong})
		}
	}
	return found
}

// shown is a text in a message: quoted, and cut where it is long.
func shown(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '�'
		}
		return r
	}, text) + `"`
}
