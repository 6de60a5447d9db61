// Package bench owns the command that measures how fast Keyhook is on this machine. It knows only the HTTP API of a server.
package bench

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/child"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/share"
)

// options are the flags of the command.
type options struct {
	Events      int `json:"events"`
	Fanout      int `json:"fanout"`
	Body        int `json:"body_bytes"` // of an event as it is published
	Connections int `json:"connections"`
}

// maxConnections is half of what the server takes, because its connections to the receiver are open too.
const maxConnections = share.MaxConnections / 2

// New returns the command.
func New() *cobra.Command {
	o := options{40_000, 10, 1024, 64}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast Keyhook is on this machine",
		Long: `Measure how fast Keyhook is on this machine: published events, deliveries, batches, latency and checks of an API key.

The command starts a server and a receiver in a temporary directory and uses the HTTP API. It also sends requests to the
receiver without Keyhook, to show the speed of the machine itself. Each commit waits for the disk. So set TMPDIR to a
directory on the disk that will hold the database. The command takes about a minute, or less with fewer --events. At the
end, it removes the directory.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := o.run(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return b.write(cmd.OutOrStdout(), cmd.Root().Version, asJSON)
		},
	}
	flags := cmd.Flags()
	output.IntFlag(flags, &o.Events, "events", 1, 10_000_000, "events to publish in each section")
	output.IntFlag(flags, &o.Fanout, "fanout", 1, 1000, "subscriptions that get each event in the section fan-out")
	output.IntFlag(flags, &o.Body, "body", 128, 256<<10, "bytes of one event")
	output.IntFlag(flags, &o.Connections, "connections", 1, maxConnections, "connections for publishing")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// bench is a benchmark in progress.
type bench struct {
	options
	dir      string
	receiver *receiver
	hook     string // the host and the port of the receiver
	server   *child.Server
	api      string // the host and the port of the server
	operator client.Client
	key      string // an API key that may publish
	figures  []figure
}

// run runs all sections, until they end or a signal comes. Later signals change nothing: the clean-up takes no time.
func (o options) run(ctx context.Context, progress io.Writer) (b *bench, err error) {
	ctx, _ = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	b = &bench{options: o, receiver: &receiver{latencies: map[string][]time.Duration{}}}
	if b.dir, err = child.Directory("keyhook-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	hook := httptest.NewServer(b.receiver)
	defer hook.Close()
	b.hook = hook.Listener.Addr().String()
	b.server, err = child.Start(ctx, b.dir,
		"KEYHOOK_EGRESS_ALLOW_HTTP=true", "KEYHOOK_SERVER_CONNECTIONS_PER_ADDRESS="+strconv.Itoa(maxConnections))
	if err == nil {
		defer b.server.Kill()
		if err = b.begin(ctx); err == nil {
			err = b.runSections(ctx, progress)
		}
	}
	if err != nil && ctx.Err() != nil {
		return nil, errors.New("the benchmark was interrupted; its temporary directory is removed")
	}
	return b, err
}

// begin creates a key.
func (b *bench) begin(ctx context.Context) error {
	b.api = strings.TrimPrefix(b.server.URL, "http://")
	b.operator = client.Client{Base: b.server.URL, Authorization: "Bearer " + b.server.Token}
	var created struct {
		Key string `json:"key"`
	}
	wanted := map[string]string{"name": "bench", "scope": "events:write"}
	err := b.operator.Call(ctx, "POST", "/api/v1/api-keys/", wanted, http.StatusCreated, &created)
	b.key = created.Key
	return err
}
