// Package receive owns the commands for receivers: listen receives deliveries, and verify explains a wrong signature. Of the API of a
// server, it knows only the feeds of subscriptions.
package receive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// listener takes deliveries: it verifies, saves and prints them, and responds. Most fields are the flags of listen.
type listener struct {
	port    int
	secret  redact.Text // none: signatures are not verified
	prefix  string
	forward string
	to      *url.URL     // of forward
	status  int          // of --fail
	fail    atomic.Int64 // so many more requests get that status
	save    string
	saved   atomic.Int64 // the number of the last file
	feed    feedOptions
	asJSON  bool
	out     io.Writer // it gets each delivery in one call of Write, so it must be safe for concurrent use, as a file is
	notes   io.Writer // for people; with --json, out has only lines of JSON
}

// NewListen returns the command listen.
func NewListen() *cobra.Command {
	l := listener{port: 9000}
	var secret secretFlags
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive deliveries on this machine: verify, print, forward, save or refuse them",
		Long: `Receive deliveries on this machine. The command prints each delivery and verifies its signatures. It responds with 204,
or with 401 if a signature is wrong. It also explains a wrong signature.

With --forward, the command sends each delivery to your program, and returns the response of your program. With --fail,
it behaves like a failing receiver. With --save, it writes each request to a file for "keyhook verify --request".

The command listens only on the loopback address. To send there, the server must run with --dev.

With --from, the command does not listen. It reads the feed of a subscription of the server at that URL, so it also works
behind NAT and firewalls. With --event-types, it creates a subscription without a URL, and deletes it at the end. With
--subscription, it reads one that exists; with --cursor-file, it reads on where the last run ended. An event that your
program refuses comes again after some seconds. The token needs events:read, and webhooks:write for --event-types.`,
		Example: `  keyhook listen --secret-file secret.txt
  keyhook listen --secret-file secret.txt --forward http://127.0.0.1:3000/hook
  keyhook listen --secret-file secret.txt --save deliveries
  keyhook listen --fail 503:3
  keyhook listen --from https://keys.example.com --event-types 'order.*' --forward http://127.0.0.1:3000/hook
  keyhook listen --from https://keys.example.com --subscription laptop --cursor-file cursor`,
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			l.to, err = url.Parse(l.forward)
			if l.forward != "" && (err != nil || l.to.Host == "" || l.to.Scheme != "http" && l.to.Scheme != "https") {
				return errors.New("--forward must be a URL, such as http://127.0.0.1:3000/hook")
			}
			if l.secret, err = secret.read(cmd.InOrStdin()); err != nil {
				return err
			}
			return l.feed.connect()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return l.listen(cmd) },
	}
	flags := cmd.Flags()
	output.IntFlag(flags, &l.port, "port", 0, 65535, "port on 127.0.0.1; 0 means any free port")
	secret.define(cmd, &l.prefix)
	flags.StringVar(&l.forward, "forward", "", "`URL` of your program, which gets each delivery and responds")
	flags.Func("fail", "respond with this `status`, such as 503; 503:3 means only the first 3 requests", l.parseFail)
	flags.StringVar(&l.save, "save", "", "`directory` for the requests: 1.http, 2.http, …")
	flags.BoolVar(&l.asJSON, "json", false, "print each delivery as one line of JSON with the complete body")
	l.feed.define(cmd)
	return cmd
}

// listen receives until a signal comes. Later signals change nothing until the process ends: the command timeout sends two.
func (l *listener) listen(cmd *cobra.Command) error {
	ctx, _ := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	l.out, l.notes = cmd.OutOrStdout(), cmd.OutOrStdout()
	if l.asJSON {
		l.notes = cmd.ErrOrStderr()
	}
	if l.save != "" {
		if err := os.MkdirAll(l.save, 0o700); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	if l.feed.from != "" {
		return l.readFeed(ctx)
	}
	return l.serve(ctx)
}

// parseFail parses --fail: STATUS, or STATUS:COUNT for the first COUNT requests.
func (l *listener) parseFail(text string) (err error) {
	status, count, counted := strings.Cut(text, ":")
	requests := math.MaxInt
	if l.status, err = strconv.Atoi(status); err == nil && counted {
		requests, err = strconv.Atoi(count)
	}
	if err != nil || l.status < 300 || l.status > 599 || requests < 1 {
		return errors.New("must be a status from 300 to 599, or a status and a number of requests, such as 503:3")
	}
	l.fail.Store(int64(requests))
	return nil
}

// silent is a log that nobody reads: listen prints what happens to each delivery.
var silent = log.New(io.Discard, "", 0)

// serve receives deliveries until ctx ends. The contexts of the requests end with ctx, and requests in progress then get another second.
func (l *listener) serve(ctx context.Context) error {
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(l.port))
	if err != nil {
		return fault.Advise(fmt.Errorf("cannot listen: %w", err), "give another port with --port")
	}
	fmt.Fprintf(l.notes, "Listening on http://%s/ (any path). Stop with Ctrl-C.\n", on.Addr())
	if l.secret.IsZero() {
		fmt.Fprint(l.notes, "There is no secret, so signatures are not verified. Give --secret-file, or set "+config.EnvWebhookSecret+".\n")
	}
	fmt.Fprintf(l.notes, `
To send something here from a server that runs with --dev:

  keyhook subscriptions create --url http://%s/ --event-types order.created
  keyhook events publish order.created '{"number": 1001}'

The first command prints the signing secret.

`, on.Addr())
	server := &http.Server{
		Handler: l, ReadHeaderTimeout: 10 * time.Second, ErrorLog: silent,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer server.Close()
	context.AfterFunc(ctx, func() { on.Close() })
	if err := server.Serve(on); ctx.Err() == nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = server.Shutdown(stopping) // after that, Close ends what still runs
	return nil
}
