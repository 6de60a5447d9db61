// Package bench owns the command that measures how fast Keyhook is on this machine. It knows only the HTTP API of a server.
package bench

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/child"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/share"
)

// maxConnections is half of what the server takes, because its connections to the receiver are open too.
const maxConnections = share.MaxConnections / 2

// New returns the command.
func New() *cobra.Command {
	b := &bench{
		report: report{
			Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU(),
			Events: 40_000, Fanout: 10, Body: 1024, Connections: 64, Figures: map[string]figure{},
		},
		receiver: receiver{latencies: map[string][]time.Duration{}},
	}
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
			b.Version = cmd.Root().Version
			if err := b.run(cmd.Context(), cmd.ErrOrStderr()); err != nil {
				return err
			}
			return b.write(cmd.OutOrStdout(), asJSON)
		},
	}
	flags := cmd.Flags()
	output.IntFlag(flags, &b.Events, "events", 1, 10_000_000, "events to publish in each section")
	output.IntFlag(flags, &b.Fanout, "fanout", 1, 1000, "subscriptions that get each event in the section fan-out")
	output.IntFlag(flags, &b.Body, "body", 128, 256<<10, "bytes of one event")
	output.IntFlag(flags, &b.Connections, "connections", 1, maxConnections, "connections for publishing")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// bench is a benchmark in progress.
type bench struct {
	report
	table    output.Table // of the figures
	dir      string
	receiver receiver
	hook     string // the URL of the receiver
	server   *child.Server
	key      string // an API key that may publish
}

// run runs all sections, until they end or a signal comes. Later signals change nothing: the clean-up takes no time.
func (b *bench) run(ctx context.Context, progress io.Writer) (err error) {
	ctx, _ = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if b.dir, err = child.Directory("keyhook-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	hook := httptest.NewServer(&b.receiver)
	defer hook.Close()
	b.hook = hook.URL
	b.server, err = child.Start(ctx, b.dir,
		"KEYHOOK_EGRESS_ALLOW_HTTP=true", "KEYHOOK_SERVER_CONNECTIONS_PER_ADDRESS="+strconv.Itoa(maxConnections))
	if err == nil {
		defer b.server.Kill()
		err = b.runSections(ctx, progress)
	}
	if err != nil && ctx.Err() != nil {
		return errors.New("the benchmark was interrupted; its temporary directory is removed")
	}
	return err
}

// answer has the members of all responses that the command looks at.
type answer struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Pending int    `json:"pending_deliveries"`
}

// call makes a request with the operator's token. Any other status than the expected one is an error.
func (b *bench) call(ctx context.Context, method, path string, body any, status int) (got answer, err error) {
	operator := client.Client{Base: b.server.URL, Authorization: "Bearer " + b.server.Token}
	err = operator.Call(ctx, method, "/api/v1/"+path, body, status, &got)
	return got, err
}
