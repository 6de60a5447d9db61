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

// printer prints each delivery when it comes. It is safe for concurrent use.
type printer struct {
	out    io.Writer
	asJSON bool
	mu     sync.Mutex
}

// timeLayout is the layout of the time before each delivery.
const timeLayout = "15:04:05.000"

// note prints a sentence about a request that is no delivery.
func (p *printer) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asJSON {
		fmt.Fprintf(p.out, "%s  %s\n\n", time.Now().Format(timeLayout), output.Escape(fmt.Sprintf(format, args...)))
	}
}

// delivery prints a delivery. An error of the output means that nobody reads it.
func (p *printer) delivery(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asJSON {
		_ = output.WriteJSONLine(p.out, d)
		return
	}
	lines := explain(d.Signatures)
	if d.Signatures == nil {
		lines = []string{"signatures not verified: there is no secret"}
	}
	lines = append(lines, d.response())
	if d.File != "" {
		lines = append(lines, "saved as "+d.File)
	}
	lines = append(lines, shownBody(d.Body)...)
	const indent = "\n              " // below the type
	fmt.Fprintf(p.out, "%s  %s  %s  attempt %s  %s%s\n\n", d.At.Local().Format(timeLayout), orDash(d.EventType), orDash(d.EventID),
		orDash(d.Attempt), orDash(d.Path), indent+strings.Join(lines, indent))
}

func orDash(text string) string { return cmp.Or(output.Escape(output.Shorten(text, 150)), "–") }

// explain says in sentences what is right, and what is wrong and how to fix it.
func explain(results []diagnosis.Result) (lines []string) {
	for _, v := range results {
		text := " is right."
		switch {
		case v.Verdict == absent:
			text = " is not present."
		case v.Verdict == diagnosis.Wrong && strings.HasPrefix(v.Mistakes[0].Name, "clock_"):
			text = " is NOT ACCEPTED because of its timestamp."
		case v.Verdict == diagnosis.Wrong:
			text = " is WRONG: " + strings.TrimSuffix(output.Escape(v.Text), ".") + "."
		}
		lines = append(lines, v.Header+text)
		for _, m := range v.Mistakes {
			mark := "probably"
			if m.Proved {
				mark = "proved"
			}
			lines = append(lines, "  "+m.Name+" ("+mark+")", "    "+m.What, "    → "+m.Advice)
		}
	}
	return lines
}

// response says what was responded.
func (d *delivery) response() string {
	text := fmt.Sprintf("response %d after %.1f ms", d.Status, d.DurationMS)
	if d.Note != "" {
		text += " (" + output.Escape(d.Note) + ")"
	}
	return text
}

// shownBody returns JSON indented and other text as it is. It escapes what a terminal would obey.
func shownBody(body string) (lines []string) {
	var text bytes.Buffer
	if json.Indent(&text, []byte(body), "", "  ") != nil {
		text.WriteString(body)
	}
	all := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	for _, line := range all[:min(len(all), maxLines)] {
		lines = append(lines, output.Escape(output.Shorten(line, maxWidth)))
	}
	if more := len(all) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("… %d more lines, %d bytes in total; use --json or --save for the complete body", more, len(body)))
	}
	return lines
}
