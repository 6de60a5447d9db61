package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/flag"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

// listenOptions are what listen is asked for.
type listenOptions struct {
	port      int
	secret    signingSecret
	tolerance time.Duration
	prefix    string
	forward   string
	manners   manners
	body      string
	asJSON    bool
}

func newListen() *cobra.Command {
	o := listenOptions{port: 9000}
	var secret redact.Text
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive deliveries on this machine: verify, print, forward, or misbehave",
		Long: `Receive deliveries on this machine: check the signatures of each, print it, and answer 204, or 401 where a
signature is wrong. Where one is, it says which mistake explains that. Nothing is kept.

With --forward, each delivery goes on to a program of yours, byte for byte, and what that answers goes back. With --fail,
--delay, --drip, --redirect and --reset it behaves as bad receivers do, to show what comes of it.

It listens on the loopback address only. A server sends there if it runs with --dev.`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			if secret, err = o.secret.read(); err != nil {
				return err
			}
			return o.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.listen(cmd.Context(), secret, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flag.Int(flags, &o.port, "port", 0, 65535, "port of 127.0.0.1; 0 is any that is free")
	o.secret.flags(flags)
	flags.DurationVar(&o.tolerance, "tolerance", signature.DefaultTolerance, "how far a timestamp may be from this machine's clock")
	flags.StringVar(&o.prefix, "header-prefix", signature.DefaultHeaderPrefix, "what webhooks.header_prefix is set to")
	flags.StringVar(&o.forward, "forward", "", "URL of a program of yours that gets each delivery and whose answer goes back")
	o.manners.flags(flags)
	flags.StringVar(&o.body, "body", bodyShort, "how much of a body to print: short, full or none")
	flags.BoolVar(&o.asJSON, "json", false, "print each delivery as a JSON object on a line of its own")
	cmd.MarkFlagsMutuallyExclusive("forward", "drip", "redirect", "reset")
	return cmd
}

// check finds what is wrong with the options.
func (o *listenOptions) check() error {
	switch {
	case o.tolerance <= 0:
		return errors.New("--tolerance must be more than 0")
	case o.body != bodyShort && o.body != bodyFull && o.body != bodyNone:
		return fmt.Errorf("--body %q is none of: short, full, none", o.body)
	}
	if err := checkURL("--forward", o.forward); err != nil {
		return err
	}
	return o.manners.check()
}

// listen receives until a signal comes.
func (o *listenOptions) listen(ctx context.Context, secret redact.Text, out, errs io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(o.port))
	if err != nil {
		return fmt.Errorf("%w; name another port with --port", err)
	}
	notes := out // for people; with --json they must not stand between the lines
	if o.asJSON {
		notes = errs
	}
	s := &listener{
		secret: secret, prefix: o.prefix, tolerance: o.tolerance, manners: &o.manners, forward: o.forward,
		printer: newPrinter(out, o.body, o.asJSON), seen: newHistory(),
	}
	o.welcome(notes, "http://"+l.Addr().String()+"/", !secret.IsZero())
	began := time.Now()
	if err := s.serve(ctx, l); err != nil {
		return err
	}
	s.printer.summary(notes, time.Since(began))
	return nil
}

// welcome says what to do next.
func (o *listenOptions) welcome(w io.Writer, url string, verifies bool) {
	fmt.Fprintf(w, "Listening on %s (any path). Ctrl-C ends it with a summary.\n", url)
	if !verifies {
		fmt.Fprint(w, "No secret is given, so no signature is verified: use --secret-file, or set "+config.EnvWebhookSecret+".\n")
	}
	fmt.Fprintf(w, `
To have something sent here, by a server that runs with --dev:

  keyhook subscriptions create --url %s
  keyhook events publish order.created '{"number": 1001}'

The answer to the first holds the signing secret.

`, url)
}

// How long serve waits for requests under way once it is to end, and what a sender may take for its headers.
const (
	listenGrace   = time.Second
	headerTimeout = 10 * time.Second
)

// serve serves until ctx ends, and waits for what is under way.
func (l *listener) serve(ctx context.Context, on net.Listener) error {
	server := &http.Server{
		Handler: l, ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx }, // so that delays end with it
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(on) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	_ = <-failed // http.ErrServerClosed
	return nil
}
