package receive

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

// What is printed of a body.
const (
	maxLines = 24
	maxWidth = 400 // characters of a line
)

// printer prints each delivery when it comes, and counts them. It is safe for concurrent use.
type printer struct {
	out     io.Writer
	palette output.Palette
	asJSON  bool

	mu                                       sync.Mutex
	deliveries, succeeded, wrong, unverified int
}

func newPrinter(out io.Writer, asJSON bool) *printer {
	return &printer{out: out, palette: output.NewPalette(out), asJSON: asJSON}
}

// note prints a sentence about a request that is no delivery.
func (p *printer) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asJSON {
		fmt.Fprintf(p.out, "%s  %s\n\n", p.clock(time.Now()), output.Escape(fmt.Sprintf(format, args...)))
	}
}

func (p *printer) clock(t time.Time) string {
	return p.palette.Paint(output.Faint, t.Local().Format("15:04:05.000"))
}

// delivery prints and counts a delivery. An error of the output means that nobody reads it.
func (p *printer) delivery(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(d)
	if p.asJSON {
		_ = output.WriteJSONLine(p.out, d)
		return
	}
	lines := []string{p.status(d)}
	if d.File != "" {
		lines = append(lines, "saved as "+d.File)
	}
	lines = append(p.signatures(d.Signatures), append(lines, p.body(d.Body)...)...)
	indent := "\n" + strings.Repeat(" ", len("15:04:05.000  "))
	fmt.Fprintf(p.out, "%s  %s  %s  attempt %s  %s%s\n\n", p.clock(d.At), p.palette.Paint(output.Bold, orDash(d.EventType)), orDash(d.EventID),
		orDash(d.Attempt), p.palette.Paint(output.Faint, orDash(d.Path)), indent+strings.Join(lines, indent))
}

func (p *printer) count(d *delivery) {
	p.deliveries++
	if d.succeeded() {
		p.succeeded++
	}
	switch {
	case len(d.Signatures) == 0:
		p.unverified++
	case !d.Verified:
		p.wrong++
	}
}

// summary prints the counts.
func (p *printer) summary(w io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(w, "\nDeliveries: %d. Accepted: %d. Refused: %d. Wrong signatures: %d. Signatures not verified: %d.\n",
		p.deliveries, p.succeeded, p.deliveries-p.succeeded, p.wrong, p.unverified)
}

func orDash(text string) string { return cmp.Or(output.Escape(output.Shorten(text, 150)), "–") }

func (p *printer) signatures(results []diagnosis.Result) []string {
	if len(results) == 0 {
		return []string{"signatures not verified: there is no secret"}
	}
	var parts, lines []string
	for i, v := range results {
		text, style := v.Header+" "+v.Verdict, output.Plain
		switch {
		case v.Previous:
			text, style = text+" (with the previous secret)", output.Green
		case v.Verdict == diagnosis.Right:
			style = output.Green
		case v.Verdict == diagnosis.Wrong:
			text, style = v.Header+" WRONG", output.Red
		}
		parts = append(parts, p.palette.Paint(style, text))
		if i > 0 && sameMistakes(results[i-1], v) {
			continue
		}
		for _, m := range v.Mistakes {
			lines = append(lines, "  "+m.Name+": "+m.What, "  → "+m.Advice)
		}
	}
	return append([]string{strings.Join(parts, " · ")}, lines...)
}

func (p *printer) status(d *delivery) string {
	text, style := fmt.Sprintf("response %d", d.Status), output.Red
	switch {
	case d.Status == 0:
		text = "no response"
	case d.succeeded():
		style = output.Green
	}
	text = fmt.Sprintf("%s after %.1f ms", p.palette.Paint(style, text), d.DurationMS)
	if d.Note != "" {
		text += " (" + output.Escape(d.Note) + ")"
	}
	return text
}

// body returns JSON indented and other text as it is. It escapes what a terminal would obey.
func (p *printer) body(body string) (lines []string) {
	if body == "" {
		return []string{p.palette.Paint(output.Faint, "no body")}
	}
	text := body
	var pretty bytes.Buffer
	if json.Indent(&pretty, []byte(body), "", "  ") == nil {
		text = pretty.String()
	}
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, line := range all[:min(len(all), maxLines)] {
		lines = append(lines, output.Escape(output.Shorten(line, maxWidth)))
	}
	if more := len(all) - maxLines; more > 0 {
		text := fmt.Sprintf("… %d more lines, %d bytes in total; use --json or --save for the complete body", more, len(body))
		lines = append(lines, p.palette.Paint(output.Faint, text))
	}
	return lines
}
