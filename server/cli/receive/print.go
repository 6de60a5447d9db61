package receive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/cli/output"
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
func (p *printer) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asJSON {
		fmt.Fprintf(p.out, "%s  %s\n\n", p.clock(time.Now()), output.Escape(text))
	}
}

func (p *printer) clock(t time.Time) string {
	return p.palette.Paint(output.Faint, t.Format("15:04:05.000"))
}

// delivery prints and counts a delivery.
func (p *printer) delivery(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(d)
	if p.asJSON {
		p.line(d)
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s  %s  attempt %s  %s\n", p.clock(d.at), p.palette.Paint(output.Bold, orDash(d.eventType)), orDash(d.eventID),
		orDash(d.attempt), p.palette.Paint(output.Faint, orDash(d.path)))
	p.results(&b, d.results)
	p.reply(&b, d)
	if d.file != "" {
		fmt.Fprintf(&b, "%ssaved as %s\n", indent, d.file)
	}
	p.body(&b, d.body)
	b.WriteByte('\n')
	_, _ = p.out.Write(b.Bytes())
}

func (p *printer) count(d *delivery) {
	p.deliveries++
	if d.reply.succeeded() {
		p.succeeded++
	}
	switch {
	case len(d.results) == 0:
		p.unverified++
	case !isRight(d.results):
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

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return output.Escape(output.Shorten(text, 150))
}

// indent stands before the details of a delivery.
const indent = "              "

func (p *printer) results(b *bytes.Buffer, results []signatureResult) {
	if len(results) == 0 {
		fmt.Fprintf(b, "%ssignatures not verified: there is no secret\n", indent)
		return
	}
	var parts []string
	for _, v := range results {
		text := v.Header + " " + v.Result
		switch {
		case v.Previous:
			text = p.palette.Paint(output.Green, text+" (with the previous secret)")
		case v.Result == right:
			text = p.palette.Paint(output.Green, text)
		case v.Result == wrong:
			text = p.palette.Paint(output.Red, v.Header+" WRONG")
		}
		parts = append(parts, text)
	}
	fmt.Fprintf(b, "%s%s\n", indent, strings.Join(parts, " · "))
	for i, v := range results {
		if i > 0 && sameMistakes(results[i-1], v) {
			continue
		}
		for _, m := range v.Mistakes {
			fmt.Fprintf(b, "%s  %s: %s\n%s  → %s\n", indent, m.Name, m.What, indent, m.Advice)
		}
	}
}

func (p *printer) reply(b *bytes.Buffer, d *delivery) {
	text, style := fmt.Sprintf("response %d", d.reply.status), output.Red
	switch {
	case d.reply.status == 0:
		text = "no response"
	case d.reply.succeeded():
		style = output.Green
	}
	fmt.Fprintf(b, "%s%s after %.1f ms", indent, p.palette.Paint(style, text), d.took.Seconds()*1000)
	if d.reply.note != "" {
		fmt.Fprintf(b, " (%s)", output.Escape(d.reply.note))
	}
	b.WriteByte('\n')
}

// body prints JSON indented and other text as it is. It escapes what a terminal would obey.
func (p *printer) body(b *bytes.Buffer, body []byte) {
	if len(body) == 0 {
		fmt.Fprintf(b, "%s%s\n", indent, p.palette.Paint(output.Faint, "no body"))
		return
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "", "  ") != nil {
		pretty.Reset()
		pretty.Write(body)
	}
	lines := strings.Split(strings.TrimRight(pretty.String(), "\n"), "\n")
	for _, line := range lines[:min(len(lines), maxLines)] {
		fmt.Fprintf(b, "%s%s\n", indent, output.Escape(output.Shorten(line, maxWidth)))
	}
	if more := len(lines) - maxLines; more > 0 {
		text := fmt.Sprintf("… %d more lines, %d bytes in total; use --json or --save for the complete body", more, len(body))
		fmt.Fprintf(b, "%s%s\n", indent, p.palette.Paint(output.Faint, text))
	}
}

// line prints a delivery as JSON.
func (p *printer) line(d *delivery) {
	encoding := "text"
	if !utf8.Valid(d.body) {
		encoding = "lossy" // invalid UTF-8 is replaced
	}
	_ = output.WriteJSONLine(p.out, struct { // an error means that nobody reads the output
		At         time.Time         `json:"at"`
		Path       string            `json:"path"`
		EventID    string            `json:"event_id"`
		EventType  string            `json:"event_type"`
		Attempt    string            `json:"attempt"`
		Verified   bool              `json:"verified"` // there is a secret, and no signature is wrong
		Signatures []signatureResult `json:"signatures"`
		Status     int               `json:"status"` // 0: not answered
		Note       string            `json:"note,omitempty"`
		DurationMS float64           `json:"duration_ms"`
		File       string            `json:"file,omitempty"`
		Body       string            `json:"body"`
		Encoding   string            `json:"body_encoding"`
	}{d.at.UTC(), d.path, d.eventID, d.eventType, d.attempt, len(d.results) > 0 && isRight(d.results), d.results,
		d.reply.status, d.reply.note, float64(d.took.Microseconds()) / 1000, d.file, string(d.body), encoding})
}
