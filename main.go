// Command keyhook gives a self-hosted product API keys and webhooks, with one process and one SQLite file. This page is the
// wiring: the parts, the order in which they start, and the order in which they stop.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/server/metrics"
	"github.com/keyhook/keyhook/server/oidc"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/fault"
)

//go:embed schema.sql
var schema string

//go:embed config.example.yaml
var example []byte

func main() {
	syscall.Umask(0o077) // SQLite creates its files with the mode that the umask allows
	root := cli.New(cli.Options{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Example: example, Schema: schema})
	root.AddCommand(newServe())
	os.Exit(cli.Run(context.Background(), root, os.Args[1:]))
}

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		GroupID: cli.GroupServer,
		Use:     "serve",
		Short:   "Run the server: the API and the delivery of webhooks",
		Long: `Run the server: the API and the delivery of webhooks.

The first start creates the database with plans, roles, the organization "Default" and the first operator. It prints an
access token for that operator, and a link that signs in to the console once. Both are valid for 24 hours. Until the
first authenticated request, each start replaces them and prints the new ones.

SIGTERM, SIGINT or SIGHUP stops the server after its current requests and deliveries. A second signal stops it at once.`,
		Example: `  keyhook serve --dev
  keyhook serve --config keyhook.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			return serve(cli.UntilSignal(cmd.Context()), c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

// appliance has the parts of a running server. The server asks the store, the store tells the dispatcher about new
// deliveries, and the dispatcher records its attempts in the store. The metrics count all of them.
type appliance struct {
	settings   config.Config
	log        *slog.Logger
	url        string         // where people reach the server
	roots      *x509.CertPool // the authorities that outgoing TLS connections trust
	logo       []byte         // of the console; empty: the mark of Keyhook
	metrics    *metrics.Metrics
	store      *storage.Store
	dispatcher *dispatch.Dispatcher
	issuer     *oidc.Verifier // nil without oidc.issuer
	server     *server.Server
	alerts     *alert.Alerter
}

// serve runs the server until ctx ends and all work under way has ended. It listens before it opens the file, so a busy
// port is reported before any file changes.
func serve(ctx context.Context, c config.Config, out, errs io.Writer) (err error) {
	cli.TuneMemory(c.Server.BodyMemory)
	a := &appliance{settings: c, log: c.Log.Logger(errs, explain.LogMend), metrics: metrics.New()}
	logLibraries(a.log)
	certificate, err := c.Server.Certificate()
	if err != nil {
		return err
	}
	if a.roots, err = egress.Roots(c.Egress.CAFile); err != nil {
		return config.Problems{config.NewProblem("egress.ca_file", "", fault.AdviseMissing(err, "set egress.ca_file to a file of PEM certificates that this process may read"))}
	}
	if a.logo, err = console.ReadLogo(c.Console.LogoFile); err != nil {
		return config.Problems{config.NewProblem("console.logo_file", "", fault.AdviseMissing(err, "set console.logo_file to an SVG or PNG file of at most 64 KiB that this process may read"))}
	}
	listener, err := cli.Listen("server.listen", c.Server.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()   // Serve may have closed it before
	var scrapes net.Listener // nil: the main listener serves the metrics
	if c.Metrics.Listen != "" {
		if scrapes, err = cli.Listen("metrics.listen", c.Metrics.Listen); err != nil {
			return err
		}
		defer scrapes.Close()
		a.log.Info("listening for metrics", "address", scrapes.Addr().String())
	}
	a.url = c.Server.URL(listener.Addr().String())
	first := cli.NewFirstStart(c.Bootstrap)
	if a.store, err = storage.Open(ctx, a.storeOptions(first)); err != nil {
		return cli.StartError(ctx, a.log, err)
	}
	defer func() { err = errors.Join(err, a.store.Close()) }()
	if err := a.connect(certificate); err != nil {
		return err
	}
	local, err := socket.Listen(c.Storage.Path, a.log)
	if err != nil {
		return err
	}
	cli.LogNotices(a.log, a.store, c.Storage.Path)
	if a.store.Directory.BootstrapCreated() {
		first.Welcome(out, c, a.url)
	}
	a.log.Info("ready", "url", a.url, "database", c.Storage.Path, "egress_exceptions", c.Egress.AllowedNetworks)
	defer a.log.Info("stopped")
	return a.run(ctx, listener, local, scrapes)
}

// logLibraries sends the lines of libraries to the log, at the level debug. net/http writes lines with bytes of receivers.
func logLibraries(to *slog.Logger) {
	slog.SetLogLoggerLevel(slog.LevelDebug)
	slog.SetDefault(to)
}

func (a *appliance) storeOptions(first cli.FirstStart) storage.Options {
	c := a.settings
	return storage.Options{
		Path:          c.Storage.Path,
		Schema:        schema,
		Synchronous:   c.Storage.Synchronous,
		EncryptionKey: c.Encryption.Key.Reveal(),
		Policy:        c.Webhooks.Policy,
		Reserve:       storage.DefaultReserve,
		KeepEvents:    c.Storage.RetentionEvents, KeepAudit: c.Storage.RetentionAudit, ExpiryNotice: c.Keys.ExpiryNotice,
		Bootstrap: first.Token, BootstrapLife: first.Life, BootstrapLink: first.Link,
		Observer: a.metrics, Logger: a.log,
	}
}

// connect creates the other parts and connects them with the store.
func (a *appliance) connect(certificate *tls.Config) (err error) {
	c := a.settings
	if err := egress.CheckOwnAddresses(); err != nil {
		a.log.Warn("deliveries to the public addresses of this machine are not blocked; allow AF_NETLINK, or list these addresses in egress.denied_networks", "error", err)
	}
	a.dispatcher = dispatch.New(a.store, a.dispatchOptions())
	a.store.Queue.Watch(a.dispatcher)
	a.metrics.Read(a.store)
	if c.OIDC.Issuer != "" {
		a.issuer = oidc.New(a.issuerOptions())
	}
	if a.alerts, err = alert.New(a.alertOptions(certificate)); err != nil {
		return err
	}
	a.server, err = server.New(a.serverOptions(certificate))
	return err
}

// guard says where deliveries may go.
func (a *appliance) guard() egress.Policy {
	e := a.settings.Egress
	return egress.Policy{AllowHTTP: e.AllowHTTP, AllowedNetworks: e.AllowedNetworks, DeniedNetworks: e.DeniedNetworks}
}

func (a *appliance) issuerOptions() oidc.Options {
	o := a.settings.OIDC
	return oidc.Options{Issuer: o.Issuer, Audience: o.Audience, OrganizationClaim: o.OrganizationClaim, Roots: a.roots, Logger: a.log}
}

func (a *appliance) alertOptions(certificate *tls.Config) alert.Options {
	c := a.settings
	var page func(organization, subscription string) string
	if c.Console.Enabled {
		page = func(organization, subscription string) string {
			return console.PageURL(a.url, organization, subscription)
		}
	}
	return alert.Options{
		URLs: c.Alerts.URLs, Interval: c.Alerts.Interval, Failing: c.Alerts.FailingAfter, From: c.Server.URL(c.Server.Listen), Command: explain.Command, Page: page, Store: a.store,
		Deliveries: a.dispatcher, Certificate: certificate, OnEnd: a.metrics.Alerted, Logger: a.log,
	}
}

func (a *appliance) dispatchOptions() dispatch.Options {
	w, guard := a.settings.Webhooks, a.guard()
	return dispatch.Options{
		Policy:    w.Policy,
		RetryBase: w.RetryBase, RetryFactor: w.RetryFactor, RetryMax: w.RetryMax,
		Timeout: w.Timeout, Grace: a.settings.Server.ShutdownGrace,
		Concurrency: w.Concurrency, PerSubscription: w.ConcurrencyPerSubscription, PollInterval: w.PollInterval,
		AllowHTTP: guard.AllowHTTP, HeaderPrefix: w.HeaderPrefix,
		Transport: egress.NewTransport(egress.Options{Policy: guard, Roots: a.roots, MaxIdle: w.Concurrency, MaxIdlePerHost: w.Concurrency}),
		OnSettled: a.metrics.Ended, Logger: a.log,
	}
}

func (a *appliance) serverOptions(certificate *tls.Config) server.Options {
	c := a.settings
	o := server.Options{
		Store:  a.store,
		Tester: a.dispatcher, SentHeaders: a.dispatcher.SentHeaders, HeaderPrefix: c.Webhooks.HeaderPrefix,
		CheckURL:  a.guard().CheckURL,
		KeyPrefix: c.Keys.Prefix, BaseURL: c.Server.BaseURL, ConsoleURL: a.url, TrustedProxies: c.Server.TrustedProxies,
		Deliveries: a.dispatcher.Ready,
		Checks: []server.ReadinessCheck{
			{Name: "storage", Run: a.store.Ready},
			server.ClockCheck(a.store.Clock),
			server.Ticking("scheduler", a.dispatcher.LastTick, 10*time.Second+2*c.Webhooks.PollInterval),
		},
		Observe: a.metrics.Observe, Connections: a.metrics, Settings: c.Texts(),
		TLS: certificate, ShutdownGrace: c.Server.ShutdownGrace, TestTimeout: c.Webhooks.Timeout,
		BodyMemory: c.Server.BodyMemory, TokenRate: c.Server.TokenRate, ConnectionsPerAddress: c.Server.ConnectionsPerAddress,
		Logger: a.log,
	}
	if a.issuer != nil { // an interface that contains a nil pointer is not nil
		o.Issuer = a.issuer
	}
	if c.Console.Enabled {
		o.Console = &console.Options{
			Name: c.Console.Name, Accent: c.Console.Accent, Logo: a.logo, PortalPages: c.Console.PortalPages, FrameAncestors: c.Console.FrameAncestors,
			Parts: c.Development,
		}
		if c.Console.OIDCClientID != "" { // then config requires an issuer
			o.SignIn = oidc.NewSignIn(a.issuer, oidc.SignInOptions{ClientID: c.Console.OIDCClientID, Secret: c.Console.OIDCClientSecret, RedirectURL: server.CallbackURL(a.url)})
		}
	}
	if c.Metrics.Listen == "" {
		o.Metrics = a.metrics
	}
	return o
}

// run serves and delivers until ctx ends or one part fails. The store runs until the others have ended, because they record
// the end of their work there. If the store itself fails, run returns at once: no result could be saved.
func (a *appliance) run(ctx context.Context, l, local, scrapes net.Listener) error {
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	stored, ended := make(chan error, 1), make(chan error, 1)
	go func() { stored <- a.store.Run(writing) }()

	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return a.server.Serve(ctx, l) })
	parts.Go(func() error { return a.server.ServeLocal(ctx, local) })
	parts.Go(func() error { return a.dispatcher.Run(ctx) })
	parts.Go(func() error { return a.alerts.Run(ctx) })
	if a.issuer != nil {
		parts.Go(func() error { return a.issuer.Run(ctx) })
	}
	if scrapes != nil {
		parts.Go(func() error { return a.metrics.Serve(ctx, scrapes) })
	}
	go func() { ended <- parts.Wait() }()
	select {
	case err := <-stored:
		return err // the process ends, and the other parts with it
	case err := <-ended:
		stopWriting()
		return errors.Join(err, <-stored)
	}
}
