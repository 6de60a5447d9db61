package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
)

// figure is one result.
type figure struct {
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Ratio   float64 `json:"ratio,omitempty"`    // to the figure of direct requests
	RatioTo string  `json:"ratio_to,omitempty"` // the name of that figure

	name  string // the key in JSON
	title string // in the table
}

// add adds a figure. to names the figure to compare with; empty for none.
func (b *bench) add(name, title string, value float64, unit, to string) {
	f := figure{name: name, title: title, Value: value, Unit: unit, RatioTo: to}
	if i := slices.IndexFunc(b.figures, func(other figure) bool { return other.name == to }); i >= 0 {
		f.Ratio = value / b.figures[i].Value
	}
	b.figures = append(b.figures, f)
}

// process returns a file of /proc about the server. Only Linux has one; elsewhere the text is empty, and there is no figure.
func (b *bench) process(file string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", b.server.PID(), file))
	return string(text)
}

// addMemory adds a line of /proc/PID/status: VmRSS is the resident memory of the server, VmHWM the peak of that.
func (b *bench) addMemory(name, title, field string) {
	_, rest, _ := strings.Cut(b.process("status"), field+":")
	line, _, _ := strings.Cut(rest, " kB")
	if kilobytes, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
		b.add(name, title, kilobytes*1024/1e6, "MB", "")
	}
}

// processorTime returns the processor time that the server has used.
func (b *bench) processorTime() (used time.Duration, ok bool) {
	const tick = 10 * time.Millisecond // the unit of /proc
	_, rest, _ := strings.Cut(b.process("stat"), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, false
	}
	user, userErr := strconv.Atoi(fields[11])
	system, systemErr := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, userErr == nil && systemErr == nil
}

// addProcessorTime adds what the server has used for each of n events since it had used this much.
func (b *bench) addProcessorTime(name, title string, before time.Duration, n int) {
	if used, ok := b.processorTime(); ok {
		b.add(name+"_cpu", title, (used-before).Seconds()*1e3/float64(n), "ms", "")
	}
}

func (b *bench) write(w io.Writer, version string) error {
	fmt.Fprintf(w, "keyhook %s (%s, %s/%s, %d processors)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	fmt.Fprintf(w, "%d events of %d bytes over %d connections. The database is in %s. The server has its default settings.\n\n",
		b.events, b.body, b.connections, filepath.Dir(b.dir))
	t := output.Table{Heads: []string{"MEASURED", "VALUE", "UNIT", "OF DIRECT REQUESTS"}, Right: []int{1, 3}, Palette: output.NewPalette(w)}
	for _, f := range b.figures {
		ratio := ""
		if f.Ratio > 0 {
			ratio = significant(f.Ratio)
		}
		t.Add(f.title, significant(f.Value), f.Unit, ratio)
	}
	return t.Write(w)
}

// significant writes a number with three significant digits, and as a whole number from 100 on.
func significant(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (b *bench) writeJSON(w io.Writer, version string) error {
	figures := map[string]figure{}
	for _, f := range b.figures {
		figures[f.name] = f
	}
	return output.WriteJSON(w, struct {
		Version     string            `json:"version"`
		Go          string            `json:"go"`
		Platform    string            `json:"platform"`
		Processors  int               `json:"processors"`
		Events      int               `json:"events"`
		Fanout      int               `json:"fanout"`
		Body        int               `json:"body_bytes"`
		Connections int               `json:"connections"`
		At          time.Time         `json:"at"`
		Figures     map[string]figure `json:"figures"`
	}{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, runtime.NumCPU(), b.events, b.fanout, b.body, b.connections,
		time.Now().UTC(), figures})
}
