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
	p.deliveries++
	if d.succeeded() {
		p.succeeded++
	}
	lines := explain(p.palette, d.Signatures)
	if d.Signatures == nil {
		p.unverified++
		lines = []string{"signatures not verified: there is no secret"}
	} else if !d.Verified {
		p.wrong++
	}
	if p.asJSON {
		_ = output.WriteJSONLine(p.out, d)
		return
	}
	lines = append(lines, p.status(d))
	if d.File != "" {
		lines = append(lines, "saved as "+d.File)
	}
	lines = append(lines, p.body(d.Body)...)
	indent := "\n" + strings.Repeat(" ", len("15:04:05.000  "))
	fmt.Fprintf(p.out, "%s  %s  %s  attempt %s  %s%s\n\n", p.clock(d.At), p.palette.Paint(output.Bold, orDash(d.EventType)), orDash(d.EventID),
		orDash(d.Attempt), p.palette.Paint(output.Faint, orDash(d.Path)), indent+strings.Join(lines, indent))
}

// summary prints the counts.
func (p *printer) summary(w io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(w, "\nDeliveries: %d. Accepted: %d. Refused: %d. Wrong signatures: %d. Signatures not verified: %d.\n",
		p.deliveries, p.succeeded, p.deliveries-p.succeeded, p.wrong, p.unverified)
}

func orDash(text string) string { return cmp.Or(output.Escape(output.Shorten(text, 150)), "–") }

// explain says in sentences what is right, and what is wrong and how to fix it.
func explain(p output.Palette, results []diagnosis.Result) (lines []string) {
	for i, v := range results {
		text, style, below := "", output.Red, explainMistakes(v.Mistakes)
		switch {
		case v.Verdict == diagnosis.Right && v.Previous:
			text, style = " is right, but only with the previous secret.", output.Green
			below = []string{"    This receiver has the old secret.", "    → Change to the new secret before the overlap ends."}
		case v.Verdict == diagnosis.Right:
			text, style = " is right.", output.Green
		case v.Verdict == absent:
			text, style = " is not present.", output.Plain
		case i > 0 && sameMistakes(results[i-1], v):
			text, below = " is WRONG: the same mistake.", nil
		case strings.HasPrefix(v.Mistakes[0].Name, "clock_"):
			text = " is NOT ACCEPTED because of its timestamp."
		default:
			text = " is WRONG: " + strings.TrimSuffix(output.Escape(v.Text), ".") + "."
		}
		lines = append(append(lines, p.Paint(style, v.Header+text)), below...)
	}
	return lines
}

// explainMistakes says what to fix.
func explainMistakes(all []diagnosis.Mistake) (lines []string) {
	for _, m := range all {
		mark := "probably"
		if m.Proved {
			mark = "proved"
		}
		lines = append(lines, "  "+m.Name+" ("+mark+")", "    "+m.What, "    → "+m.Advice)
	}
	return lines
}

func (p *printer) status(d *delivery) string {
	text, style := fmt.Sprintf("response %d", d.Status), output.Red
	if d.Status == 0 {
		text = "no response"
	} else if d.succeeded() {
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
	var text bytes.Buffer
	if json.Indent(&text, []byte(body), "", "  ") != nil {
		text.WriteString(body)
	}
	all := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	for _, line := range all[:min(len(all), maxLines)] {
		lines = append(lines, output.Escape(output.Shorten(line, maxWidth)))
	}
	if more := len(all) - maxLines; more > 0 {
		text := fmt.Sprintf("… %d more lines, %d bytes in total; use --json or --save for the complete body", more, len(body))
		lines = append(lines, p.palette.Paint(output.Faint, text))
	}
	return lines
}
