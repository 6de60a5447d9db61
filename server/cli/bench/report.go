package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
)

// figure is one result.
type figure struct {
	name    string // in JSON
	title   string // in the table
	value   float64
	unit    string
	ratio   float64 // to the figure of direct requests; 0 is none
	ratioTo string  // the name of that figure
}

// add adds a rate in requests, events or deliveries a second. to names the figure to compare with; "" is none.
func (b *bench) add(name, title string, rate float64, to string) {
	f := figure{name: name, title: title, value: rate, unit: "1/s", ratioTo: to}
	if i := slices.IndexFunc(b.figures, func(other figure) bool { return other.name == to }); i >= 0 {
		f.ratio = rate / b.figures[i].value
	}
	b.figures = append(b.figures, f)
}

// addMemory adds a line of /proc/PID/status: VmRSS is the resident memory of the server, VmHWM the peak of that. Only Linux has them.
func (b *bench) addMemory(name, title, field string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.server.PID())) // without it there is no figure
	_, rest, _ := strings.Cut(string(text), field+":")
	line, _, _ := strings.Cut(rest, " kB")
	if kilobytes, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
		b.figures = append(b.figures, figure{name: name, title: title, value: kilobytes * 1024 / 1e6, unit: "MB"})
	}
}

// report is what the command prints.
type report struct {
	options
	version   string
	directory string
	figures   []figure
}

func (r report) write(w io.Writer) error {
	fmt.Fprintf(w, "keyhook %s (%s, %s/%s, %d processors)\n", r.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	fmt.Fprintf(w, "%d events of %d bytes over %d connections. The database is in %s. The server has its default settings.\n\n",
		r.events, r.body, r.connections, r.directory)
	t := output.Table{Heads: []string{"MEASURED", "VALUE", "UNIT", "OF DIRECT REQUESTS"}, Right: []int{1, 3}, Palette: output.NewPalette(w)}
	for _, f := range r.figures {
		ratio := ""
		if f.ratio > 0 {
			ratio = significant(f.ratio)
		}
		t.Add(f.title, significant(f.value), f.unit, ratio)
	}
	return t.Write(w)
}

// significant writes a number with three significant digits, and as a whole number from 100 on.
func significant(v float64) string {
	if v >= 100 || v <= 0 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(v))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

func (r report) writeJSON(w io.Writer) error {
	type entry struct {
		Value   float64 `json:"value"`
		Unit    string  `json:"unit"`
		Ratio   float64 `json:"ratio,omitempty"`
		RatioTo string  `json:"ratio_to,omitempty"`
	}
	figures := map[string]entry{}
	for _, f := range r.figures {
		figures[f.name] = entry{f.value, f.unit, f.ratio, f.ratioTo}
	}
	return output.WriteJSON(w, struct {
		Version     string           `json:"version"`
		Go          string           `json:"go"`
		Platform    string           `json:"platform"`
		Processors  int              `json:"processors"`
		Events      int              `json:"events"`
		Fanout      int              `json:"fanout"`
		Body        int              `json:"body_bytes"`
		Connections int              `json:"connections"`
		At          time.Time        `json:"at"`
		Figures     map[string]entry `json:"figures"`
	}{r.version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, runtime.NumCPU(), r.events, r.fanout, r.body, r.connections,
		time.Now().UTC(), figures})
}
