package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
)

// benchOptions are what the benchmark is asked for.
type benchOptions struct {
	events      int
	fanout      int
	body        int // bytes of an event as it is published
	connections int
	backlog     int // pending deliveries of another tenant; 0: by the number of events
}

// Bounds of the options. An event may be 256 KiB, and the server takes 1,024 connections.
const (
	maxEvents      = 10_000_000
	maxFanout      = 1000
	minBody        = 128
	maxBody        = 256 << 10
	maxConnections = 512
	minBacklog     = 500 // lasts for the section that it is for
)

func newBench() *cobra.Command {
	o := benchOptions{events: 40_000, fanout: 10, body: 1024, connections: 64}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast Keyhook is on this machine",
		Long: `Measure how fast Keyhook is on this machine: start a server and a receiver in a temporary directory, publish
to the one and receive at the other, and compare what arrives with what the same transport can send without Keyhook.
Only the HTTP API is used. The database is where TMPDIR says: name a directory on the disk that Keyhook is to use, since a
temporary directory in memory would tell nothing. The targets are for two processors with nothing else to do; a figure
that misses one is no failure. It takes a minute or two, less with fewer --events. Nothing is left behind.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := runInterruptible(cmd.Context(), o, newProgress(cmd.ErrOrStderr()))
			switch {
			case err != nil:
				return err
			case asJSON:
				return b.writeJSON(cmd.OutOrStdout())
			}
			b.write(cmd.OutOrStdout())
			return nil
		},
	}
	flags := cmd.Flags()
	bounded(flags, &o.events, "events", 1, maxEvents, "events to publish in a section; the other sections go with it")
	bounded(flags, &o.fanout, "fanout", 1, maxFanout, "subscriptions that each event of the fan-out goes to")
	bounded(flags, &o.body, "body", minBody, maxBody, "bytes of an event")
	bounded(flags, &o.connections, "connections", 1, maxConnections, "connections to publish over")
	bounded(flags, &o.backlog, "backlog", 0, maxEvents, "pending deliveries of the other tenant; 0 is 2.5 times --events")
	flags.BoolVar(&asJSON, "json", false, "as a JSON object")
	return cmd
}

// runInterruptible runs the benchmark until it ends or somebody wants it to. Cleaning up takes no time, and further signals
// do not stop that: a terminal, or what times a command out, may send several at once.
func runInterruptible(ctx context.Context, o benchOptions, p *progress) (*bench, error) {
	signalled, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	b, err := runBench(signalled, o, p)
	if err != nil && signalled.Err() != nil {
		return nil, errors.New("the benchmark was interrupted; nothing is left behind")
	}
	return b, err
}

// bench is a benchmark under way.
type bench struct {
	benchOptions
	dir         string
	defaults    config.Config // of the server that is measured
	receiver    *child
	counterpart counterpartReady
	server      *childServer
	measured    []measurement
	raw         float64 // requests a second without Keyhook, lately, that others are compared with
}

// runBench runs the sections one after another. Whatever it started has ended when it returns.
func runBench(ctx context.Context, o benchOptions, p *progress) (b *bench, err error) {
	b = &bench{benchOptions: o, defaults: config.Default().Dev()}
	if b.backlog == 0 {
		b.backlog = max(minBacklog, b.events*5/2)
	}
	if b.dir, err = os.MkdirTemp("", "keyhook-bench-"); err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w; set TMPDIR to one that is writable", err)
	}
	defer os.RemoveAll(b.dir)
	b.receiver, err = startChild(ctx, filepath.Join(b.dir, "counterpart.log"), nil, readyLine(&b.counterpart),
		"bench-counterpart", fmt.Sprintf("--endpoints=%d", max(o.fanout, isolationEndpoints)))
	if err != nil {
		return nil, fmt.Errorf("start a receiver: %w", err)
	}
	defer b.receiver.kill()
	if b.server, err = b.startServer(ctx, "full"); err != nil {
		return nil, err
	}
	defer b.server.kill()
	sections := []struct {
		title string
		run   func(context.Context) error
	}{
		{"what a process without Keyhook sends", b.measureRaw},
		{"durable publishing", b.measurePublish},
		{"one endpoint, end to end", b.measureEndToEnd},
		{"the same with synchronous=normal", b.measureNormal},
		{"the same with more at once", b.measureWide},
		{"fan-out", b.measureFanout},
		{"batches", b.measureBatches},
		{"publish to receipt at a gentle rate", b.measureGentle},
		{"healthy endpoints beside others", b.measureIsolation},
		{"requests with a key", b.measureKeys},
	}
	for i, section := range sections {
		p.begin(i+1, len(sections), section.title)
		if err := section.run(ctx); err != nil {
			p.end()
			return nil, fmt.Errorf("%s: %w\n\nwhat the server logged last:\n%s", section.title, err, b.server.tail())
		}
	}
	p.end()
	b.add(b.peakMemory("memory_peak", "memory, its peak at the end", 0))
	return b, nil
}

// startServer starts a server as a user would, but for receivers on this machine, as with --dev. Its log, of a line for
// each request, goes to a file.
func (b *bench) startServer(ctx context.Context, name string, settings ...string) (*childServer, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return startServer(ctx, dir, append(settings, "KEYHOOK_EGRESS_ALLOW_HTTP=true")...)
}

func (b *bench) add(m ...measurement) { b.measured = append(b.measured, m...) }

// scaled returns how many requests a section that goes by the clock makes.
func (b *bench) scaled() int { return min(max(b.events/40, 50), 1000) }

// setting says in one sentence how it was measured.
func (b *bench) setting() string {
	return fmt.Sprintf("%d events of %d bytes over %d connections, database and log in %s, all on this machine.\n"+
		"The server has its defaults, but may send to this machine (as with --dev). Its log, of a line for each request, goes to a file.",
		b.events, b.body, b.connections, filepath.Dir(b.dir))
}

func (b *bench) write(w io.Writer) {
	fmt.Fprintf(w, "keyhook %s (%s, %s/%s, %d processors)\n%s\n\n",
		readBuild().Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), b.setting())
	writeTable(w, b.measured)
}

func (b *bench) writeJSON(w io.Writer) error {
	figures := map[string]measurement{}
	for _, m := range b.measured {
		figures[m.name] = m
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Version     string                 `json:"version"`
		Go          string                 `json:"go"`
		Platform    string                 `json:"platform"`
		Processors  int                    `json:"processors"`
		Events      int                    `json:"events"`
		Fanout      int                    `json:"fanout"`
		Body        int                    `json:"body_bytes"`
		Connections int                    `json:"connections"`
		Backlog     int                    `json:"backlog"`
		Log         string                 `json:"server_log"`
		At          time.Time              `json:"at"`
		Figures     map[string]measurement `json:"figures"`
	}{readBuild().Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, runtime.NumCPU(), b.events, b.fanout, b.body,
		b.connections, b.backlog, "info, to a file", time.Now().UTC(), figures})
}
