package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
)

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
		b.Events, b.Body, b.Connections, filepath.Dir(b.dir))
	return b.table.Write(w)
}

// significant writes a number with three significant digits, and as a whole number from 100 on.
func significant(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
