package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
)

// figure is one result.
type figure struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`

	name  string // the key in JSON
	title string // in the table
}

func (b *bench) add(name, title string, value float64, unit string) {
	b.figures = append(b.figures, figure{value, unit, name, title})
}

// addMemory adds a line of /proc/PID/status: VmRSS is the resident memory of the server, VmHWM the peak of that. Only Linux has the file;
// elsewhere there is no figure.
func (b *bench) addMemory(name, title, field string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.server.PID()))
	_, rest, _ := strings.Cut(string(text), field+":")
	line, _, _ := strings.Cut(rest, " kB")
	if kilobytes, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
		b.add(name, title, kilobytes*1024/1e6, "MB")
	}
}

// report is the result as JSON.
type report struct {
	Version    string `json:"version"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Processors int    `json:"processors"`
	options
	At      time.Time         `json:"at"`
	Figures map[string]figure `json:"figures"`
}

func (b *bench) write(w io.Writer, version string, asJSON bool) error {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	r := report{version, runtime.Version(), platform, runtime.NumCPU(), b.options, time.Now().UTC(), map[string]figure{}}
	var t output.Table
	t.Add("MEASURED", "VALUE", "UNIT")
	for _, f := range b.figures {
		r.Figures[f.name] = f
		t.Add(f.title, significant(f.Value), f.Unit)
	}
	if asJSON {
		return output.WriteJSON(w, r)
	}
	fmt.Fprintf(w, "keyhook %s (%s, %s, %d processors)\n", r.Version, r.Go, r.Platform, r.Processors)
	fmt.Fprintf(w, "%d events of %d bytes over %d connections. The database is in %s. The server has its default settings.\n\n",
		b.Events, b.Body, b.Connections, filepath.Dir(b.dir))
	return t.Write(w)
}

// significant writes a number with three significant digits, and as a whole number from 100 on.
func significant(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
