// Command keyhook gives a self-hosted product API keys and webhooks, out of one process and one SQLite file. This page is
// the wiring: what exists, in which order it starts, and in which order it stops.
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
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/metrics"
	"github.com/keyhook/keyhook/server/oidc"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

//go:embed schema.sql
var schema string

//go:embed config.example.yaml
var example []byte

func main() {
	syscall.Umask(0o077) // SQLite makes its files with the mode that the process lets it
	root := cli.New(cli.Options{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Example: example, Schema: schema})
	root.AddCommand(newServe())
	os.Exit(cli.Run(context.Background(), root, os.Args[1:]))
}

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: the API and the delivery of webhooks",
		Long: `Run the server: the API and the delivery of webhooks.

The first start creates the database with plans, roles, the organization "Default" and the first operator. It prints an
access token of that operator, which is valid for 24 hours. Until the first authenticated request, each start replaces
that token and prints the new one. SIGTERM or SIGINT stops the server after it has finished its requests and deliveries. A
second signal stops it at once.`,
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

// serve runs the appliance until ctx ends and all that was under way has ended too.
func serve(ctx context.Context, c config.Config, out, errs io.Writer) error {
	cli.TuneMemory(c.Server.BodyMemory)
	log := c.Log.Logger(errs)
	certificate, err := c.Server.Certificate()
	if err != nil {
		return err
	}
	roots, err := egress.Roots(c.Egress.CAFile)
	if err != nil {
		return config.Problems{config.NewProblem("egress.ca_file", "", err)}
	}
	listener, err := cli.Listen("server.listen", c.Server.Listen) // first, so that a busy port is told before a file is touched
	if err != nil {
		return err
	}
	defer listener.Close()   // again, where Serve has done so already
	var scrapes net.Listener // nil where they come to the other one
	if c.Metrics.Listen != "" {
		if scrapes, err = cli.Listen("metrics.listen", c.Metrics.Listen); err != nil {
			return err
		}
		defer scrapes.Close()
		log.Info("metrics have a listener of their own", "address", scrapes.Addr().String())
	}
	measured := metrics.New()
	store, token, err := openStore(ctx, c, measured, log)
	if err != nil {
		return err
	}
	a, err := assemble(c, store, measured, certificate, roots, log)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	local, err := socket.Listen(c.Storage.Path, log)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	url := c.Server.URL(listener.Addr().String())
	cli.LogNotices(log, store)
	if store.Invited() {
		cli.Welcome(out, c.Storage.Path, url, token)
	}
	log.Info("ready", "url", url, "database", c.Storage.Path, "egress_exceptions", c.Egress.AllowedNetworks)
	err = a.run(ctx, listener, local, scrapes)
	log.Info("stopped")
	return errors.Join(err, store.Close())
}

// openStore opens the file. token is the first operator's, to be printed; empty where the settings have it.
func openStore(ctx context.Context, c config.Config, m *metrics.Metrics, log *slog.Logger) (_ *storage.Store, token string, _ error) {
	first, life := access.Mint(access.TokenPrefix), 24*time.Hour
	token = first.Reveal()
	if !c.Bootstrap.Token.IsZero() {
		first, _ = access.Opaque(c.Bootstrap.Token.Reveal()) // config has checked its form
		token, life = "", 0
	}
	store, err := storage.Open(ctx, storage.Options{
		Path:          c.Storage.Path,
		Schema:        schema,
		Synchronous:   c.Storage.Synchronous,
		EncryptionKey: c.Encryption.Key.Reveal(),
		Policy:        policy(c.Webhooks),
		KeepEvents:    c.Storage.RetentionEvents,
		KeepAudit:     c.Storage.RetentionAudit,
		Bootstrap:     first,
		BootstrapLife: life,
		Observer:      m,
		Logger:        log,
	})
	return store, token, err
}

func policy(w config.Webhooks) webhook.Policy {
	return webhook.Policy{MaxAttempts: w.MaxAttempts, FailingAfter: w.FailingAfter, DisabledAfter: w.DisabledAfter}
}

// appliance is what runs.
type appliance struct {
	store      *storage.Store
	dispatcher *dispatch.Dispatcher
	server     *server.Server
	metrics    *metrics.Metrics
	issuer     *oidc.Verifier // nil where there is none
}

// newGuard says where deliveries may go, and warns if it cannot know the addresses of this machine.
func newGuard(c config.Egress, log *slog.Logger) egress.Policy {
	if err := egress.CheckOwnAddresses(); err != nil {
		log.Warn("deliveries to this machine's public addresses are not refused: allow AF_NETLINK, or list them in egress.denied_networks", "error", err)
	}
	return egress.Policy{AllowHTTP: c.AllowHTTP, AllowedNetworks: c.AllowedNetworks, DeniedNetworks: c.DeniedNetworks}
}

// assemble makes the floors and connects them: the server asks the store, the store tells the dispatcher, the dispatcher
// records in the store. All of them are counted by m, which asks the store for the rest.
func assemble(c config.Config, store *storage.Store, m *metrics.Metrics, certificate *tls.Config, roots *x509.CertPool, log *slog.Logger) (*appliance, error) {
	guard := newGuard(c.Egress, log)
	dispatcher, err := dispatch.New(store, dispatch.Options{
		Policy:          policy(c.Webhooks),
		RetryBase:       c.Webhooks.RetryBase,
		RetryFactor:     c.Webhooks.RetryFactor,
		RetryMax:        c.Webhooks.RetryMax,
		Timeout:         c.Webhooks.Timeout,
		Grace:           c.Server.ShutdownGrace,
		AllowHTTP:       c.Egress.AllowHTTP,
		Concurrency:     c.Webhooks.Concurrency,
		PerSubscription: c.Webhooks.ConcurrencyPerSubscription,
		PollInterval:    c.Webhooks.PollInterval,
		HeaderPrefix:    c.Webhooks.HeaderPrefix,
		Transport: egress.NewTransport(egress.Options{
			Policy: guard, Roots: roots, MaxIdle: c.Webhooks.Concurrency, MaxIdlePerHost: c.Webhooks.Concurrency,
		}),
		Ended:  m.Ended,
		Logger: log,
	})
	if err != nil {
		return nil, err
	}
	store.Watch(dispatcher)
	m.Read(store)
	var exposed http.Handler // by the main listener
	if c.Metrics.Listen == "" {
		exposed = m
	}
	var verifier *oidc.Verifier
	var issuer server.Issuer // not the pointer: one that is nil would be an issuer
	if c.OIDC.Issuer != "" {
		verifier = oidc.New(oidc.Options{
			Issuer: c.OIDC.Issuer, Audience: c.OIDC.Audience, OrganizationClaim: c.OIDC.OrganizationClaim, Roots: roots, Logger: log,
		})
		issuer = verifier
	}
	floor, err := server.New(server.Options{
		Store:          store,
		Tester:         dispatcher,
		Issuer:         issuer,
		CheckURL:       guard.CheckURL,
		Limiter:        limiter.New(time.Minute),
		KeyPrefix:      c.Keys.Prefix,
		BaseURL:        c.Server.BaseURL,
		TrustedProxies: c.Server.TrustedProxies,
		Deliveries:     dispatcher.Ready,
		Checks: []server.Check{
			{Name: "storage", Run: store.Ready},
			server.ClockCheck(store),
			server.Ticking("scheduler", dispatcher.LastTick, 10*time.Second+2*c.Webhooks.PollInterval),
		},
		Observe:       m.Observe,
		Connections:   m,
		Metrics:       exposed,
		TLS:           certificate,
		ShutdownGrace: c.Server.ShutdownGrace,
		TestTimeout:   c.Webhooks.Timeout,

		BodyMemory:            c.Server.BodyMemory,
		TokenRate:             c.Server.TokenRate,
		ConnectionsPerAddress: c.Server.ConnectionsPerAddress,

		Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return &appliance{store, dispatcher, floor, m, verifier}, nil
}

// run serves and delivers until ctx ends or one of them fails. The store goes on until all have ended, because what
// they have under way is recorded there. Where the store itself fails, nothing is waited for: no answer could be kept.
func (a *appliance) run(ctx context.Context, l, local, scrapes net.Listener) error {
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	stored, ended := make(chan error, 1), make(chan error, 1)
	go func() { stored <- a.store.Run(writing) }()

	floors, ctx := errgroup.WithContext(ctx)
	floors.Go(func() error { return a.server.Serve(ctx, l) })
	floors.Go(func() error { return a.server.ServeLocal(ctx, local) })
	floors.Go(func() error { return a.dispatcher.Run(ctx) })
	if a.issuer != nil {
		floors.Go(func() error { return a.issuer.Run(ctx) })
	}
	if scrapes != nil {
		floors.Go(func() error { return a.metrics.Serve(ctx, scrapes) })
	}
	go func() { ended <- floors.Wait() }()
	select {
	case err := <-stored:
		return err // the process ends with it
	case err := <-ended:
		stopWriting()
		return errors.Join(err, <-stored)
	}
}
