// Package bench owns the command that measures how fast Keyhook is on this machine. It knows only the HTTP API of a server.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
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
	receiver receiver
	hook     *httptest.Server // of the receiver
	server   *child.Server
	operator client.Client
	key      string // an API key that may publish
}

// run runs all sections, until they end or a signal comes. Later signals change nothing: the clean-up takes no time.
func (b *bench) run(ctx context.Context, progress io.Writer) error {
	ctx, _ = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	dir, err := child.Directory("keyhook-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.hook = httptest.NewServer(&b.receiver)
	defer b.hook.Close()
	b.server, err = child.Start(ctx, dir,
		"KEYHOOK_EGRESS_ALLOW_HTTP=true", "KEYHOOK_SERVER_CONNECTIONS_PER_ADDRESS="+strconv.Itoa(maxConnections))
	if err == nil {
		defer b.server.Kill()
		b.operator = client.Client{Base: b.server.URL, Authorization: "Bearer " + b.server.Token}
		err = b.runSections(ctx, progress)
	}
	if err != nil && ctx.Err() != nil {
		return errors.New("the benchmark was interrupted; its temporary directory is removed")
	}
	return err
}

// report is the result as JSON.
type report struct {
	Version     string            `json:"version"`
	Go          string            `json:"go"`
	Platform    string            `json:"platform"`
	Processors  int               `json:"processors"`
	Events      int               `json:"events"`
	Fanout      int               `json:"fanout"`
	Body        int               `json:"body_bytes"` // of an event as it is published
	Connections int               `json:"connections"`
	At          time.Time         `json:"at"`
	Figures     map[string]figure `json:"figures"`
}

type figure struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// add adds a figure to the report. The title stands in the table.
func (b *bench) add(name, title string, value float64, unit string) {
	b.Figures[name] = figure{value, unit}
	b.table.Add(title, significant(value), unit)
}

// addMemory adds a line of /proc/PID/status: VmRSS is the resident memory of the server, VmHWM the peak of that. Only Linux has the file;
// elsewhere there is no figure.
func (b *bench) addMemory(name, title, field string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.server.PID()))
	_, rest, _ := strings.Cut(string(text), field+":")
	var kilobytes float64
	if n, _ := fmt.Sscan(rest, &kilobytes); n == 1 {
		b.add(name, title, kilobytes*1024/1e6, "MB")
	}
}

func (b *bench) write(w io.Writer, asJSON bool) error {
	b.At = time.Now().UTC()
	if asJSON {
		return output.WriteJSON(w, b.report)
	}
	fmt.Fprintf(w, "keyhook %s (%s, %s, %d processors)\n", b.Version, b.Go, b.Platform, b.Processors)
	fmt.Fprintf(w, "%d events of %d bytes over %d connections. The database is in %s. The server has its default settings.\n\n",
		b.Events, b.Body, b.Connections, filepath.Dir(filepath.Dir(b.server.Database)))
	return b.table.Write(w)
}

// significant writes a number with three significant digits, and as a whole number from 100 on.
func significant(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// The sizes of the sections.
const (
	batchSize  = 20
	steadyRate = 100 // events a second, at which no event waits for another
)

type measurement struct {
	name, title string
	load
	batch  int // events of each request
	fanout int // subscriptions that get each event
}

// runSections runs one section after the other.
func (b *bench) runSections(ctx context.Context, progress io.Writer) error {
	var created struct{ Key string }
	wanted := map[string]string{"name": "bench", "scope": "events:write"}
	if err := b.operator.Call(ctx, "POST", "/api/v1/api-keys/", wanted, http.StatusCreated, &created); err != nil {
		return err
	}
	b.key = created.Key
	b.table.Add("MEASURED", "VALUE", "UNIT")
	b.addMemory("memory_idle", "memory of the server, idle", "VmRSS")
	post := b.request("POST", "/", event("bench.direct", b.Body)) // what a program without Keyhook would send
	get := b.request("GET", "/", "")
	check := b.request("GET", "/api/v1/authz/forward/", "") // what a proxy asks for each request with a key: whether it may pass
	steady := fmt.Sprintf("publish to receipt at %d a second", steadyRate)
	sections := []struct {
		title        string
		measurements []measurement
	}{
		{"direct requests, without Keyhook", []measurement{
			{"direct", "direct POSTs, without Keyhook", load{b.hook.URL, post, http.StatusOK, 2 * b.Events, 0}, 1, 0},
		}},
		{"latency at a steady rate", b.publishing("steady", steady, 1, 1, steadyRate)}, // early, while the disk is idle
		{"events without a subscription", b.publishing("publish", "events published and on disk", 0, 1, 0)},
		{"deliveries to one endpoint", b.publishing("end_to_end", "deliveries to one endpoint", 1, 1, 0)},
		{"fan-out", b.publishing("fanout", fmt.Sprintf("deliveries, %d subscriptions for each event", b.Fanout), b.Fanout, 1, 0)},
		{"batches", b.publishing("batch", fmt.Sprintf("deliveries, events published in batches of %d", batchSize), 1, batchSize, 0)},
		{"checks of a key", []measurement{
			{"direct_get", "direct GETs, without Keyhook", load{b.hook.URL, get, http.StatusOK, b.Events, 0}, 1, 0},
			{"key_checks", "checks of a key (forward authentication)", load{b.server.URL, check, http.StatusOK, b.Events, 0}, 1, 0},
		}},
	}
	for i, section := range sections {
		fmt.Fprintf(progress, "[%d/%d] %s\n", i+1, len(sections), section.title)
		for _, m := range section.measurements {
			if err := b.measure(ctx, m); err != nil {
				return fmt.Errorf("%s: %w\n\nthe last lines of the server's log:\n%s", section.title, err, b.server.Tail())
			}
		}
	}
	b.addMemory("memory_peak", "memory of the server, peak", "VmHWM")
	return nil
}

// publishing publishes batches of events. It makes about b.Events deliveries, for any fan-out.
func (b *bench) publishing(name, title string, fanout, batch, rate int) []measurement {
	requests := max(1, b.Events/max(1, fanout)/batch)
	if rate > 0 {
		requests = min(max(b.Events/40, 50), 1000)
	}
	publish := load{b.server.URL, b.publishRequest("bench."+name, batch), http.StatusAccepted, requests, rate}
	return []measurement{{name, title, publish, batch, fanout}}
}

// measure runs a load and waits until each delivery is recorded. It measures deliveries a second, or events or requests a second without a
// subscription. With a rate of requests, it measures how long an event takes from the request that publishes it until the receiver has it.
func (b *bench) measure(ctx context.Context, m measurement) error {
	wanted := map[string]any{"url": b.hook.URL + "/" + m.name, "event_types": []string{"bench." + m.name}}
	for range m.fanout {
		if err := b.operator.Call(ctx, "POST", "/api/v1/webhooks/subscriptions/", wanted, http.StatusCreated, nil); err != nil {
			return err
		}
	}
	began := time.Now()
	err := m.run(ctx, b.Connections)
	if err == nil && m.fanout > 0 {
		err = b.awaitDelivered(ctx)
	}
	if err != nil {
		return err
	}
	took := time.Since(began)
	p50, p99, err := b.receiver.latency(m.name, m.n*m.batch*m.fanout)
	if m.rate > 0 {
		b.add(m.name+"_p50", m.title+", p50", p50, "ms")
		b.add(m.name+"_p99", m.title+", p99", p99, "ms")
	} else {
		b.add(m.name, m.title, float64(m.n*m.batch*max(1, m.fanout))/took.Seconds(), "1/s")
	}
	return err
}

// awaitDelivered waits until no delivery is pending.
func (b *bench) awaitDelivered(ctx context.Context) error {
	const stuckAfter = 30 * time.Second
	var queue struct {
		Pending int `json:"pending_deliveries"`
	}
	for last, since := -1, time.Now(); ; <-time.After(5 * time.Millisecond) { // the end of ctx ends the next call
		err := b.operator.Call(ctx, "GET", "/api/v1/queue/", nil, http.StatusOK, &queue)
		switch {
		case err != nil || queue.Pending == 0:
			return err
		case queue.Pending != last:
			last, since = queue.Pending, time.Now()
		case time.Since(since) > stuckAfter:
			return fmt.Errorf("%d deliveries have been pending for %s; check the loopback interface", last, stuckAfter)
		}
	}
}
