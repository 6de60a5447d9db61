package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// How much of a body is printed.
const (
	bodyShort = "short"
	bodyFull  = "full"
	bodyNone  = "none"

	shortLines = 24
	longLine   = 400 // characters
)

// printer prints deliveries, each at once, and counts them. It is safe for concurrent use.
type printer struct {
	out    io.Writer
	colour palette
	body   string
	asJSON bool

	mu    sync.Mutex
	count tally
}

// tally is what the summary tells.
type tally struct{ deliveries, succeeded, repeated, wrong, unverified int }

func newPrinter(out io.Writer, body string, asJSON bool) *printer {
	return &printer{out: out, colour: newPalette(out), body: body, asJSON: asJSON}
}

// note prints what is no delivery.
func (p *printer) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asJSON {
		fmt.Fprintf(p.out, "%s  %s\n\n", p.colour.faint(clock(time.Now())), text)
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// delivery counts and prints a delivery.
func (p *printer) delivery(d *received) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.add(d)
	if p.asJSON {
		p.line(d)
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s  %s  attempt %s  %s\n", p.colour.faint(clock(d.At)), p.colour.strong(orDash(d.EventType)), orDash(d.EventID),
		orDash(d.Attempt), p.colour.faint(orDash(d.Path)))
	p.verdicts(&b, d.Verdicts)
	p.answer(&b, d)
	p.content(&b, d.Body)
	b.WriteByte('\n')
	_, _ = p.out.Write(b.Bytes())
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return escaped(shortened(strings.ReplaceAll(text, "\n", " "), 150))
}

// indent stands before what belongs to a delivery.
const indent = "              "

func (p *printer) verdicts(b *bytes.Buffer, verdicts []verdict) {
	if len(verdicts) == 0 {
		fmt.Fprintf(b, "%ssignatures not verified: no secret was given\n", indent)
		return
	}
	var parts []string
	for _, v := range verdicts {
		text := v.Header + " " + v.Verdict
		switch {
		case v.Previous:
			text = p.colour.good(text + " (by the previous secret)")
		case v.Verdict == verdictRight:
			text = p.colour.good(text)
		case v.Verdict == verdictWrong:
			text = p.colour.bad(v.Header + " WRONG")
		}
		parts = append(parts, text)
	}
	fmt.Fprintf(b, "%s%s\n", indent, strings.Join(parts, " · "))
	for i, v := range verdicts {
		if i > 0 && sameMistakes(verdicts[i-1], v) {
			continue
		}
		for _, m := range v.Mistakes {
			fmt.Fprintf(b, "%s  %s: %s\n%s  → %s\n", indent, m.Name, m.What, indent, m.Advice)
		}
	}
}

func (p *printer) answer(b *bytes.Buffer, d *received) {
	text := d.Answered.text()
	if d.Answered.succeeded() {
		text = p.colour.good(text)
	} else {
		text = p.colour.bad(text)
	}
	text += fmt.Sprintf(" after %.1f ms", d.Took.Seconds()*1000)
	if d.Answered.note != "" {
		text += " (" + d.Answered.note + ")"
	}
	if d.Before != "" {
		text += " · " + p.colour.strong("came before") + ", and was " + d.Before + " then"
	}
	fmt.Fprintf(b, "%s%s\n", indent, strings.ReplaceAll(text, "\n", " "))
}

// content prints a body: JSON indented, anything else as text, with escapes for what a terminal might obey.
func (p *printer) content(b *bytes.Buffer, body []byte) {
	if p.body == bodyNone {
		return
	}
	if len(body) == 0 {
		fmt.Fprintf(b, "%s%s\n", indent, p.colour.faint("no body"))
		return
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "", "  ") != nil {
		pretty.Reset()
		pretty.Write(body)
	}
	lines := strings.Split(strings.TrimRight(pretty.String(), "\n"), "\n")
	for i, line := range lines {
		if p.body == bodyShort && i == shortLines {
			fmt.Fprintf(b, "%s%s\n", indent, p.colour.faint(fmt.Sprintf("… %d lines more, %d bytes in all; --body full prints them", len(lines)-i, len(body))))
			return
		}
		if p.body == bodyShort {
			line = shortened(line, longLine)
		}
		fmt.Fprintf(b, "%s%s\n", indent, escaped(line))
	}
}

// line prints a delivery as JSON.
func (p *printer) line(d *received) {
	body, encoding := string(d.Body), "text"
	if !utf8.Valid(d.Body) {
		encoding = "lossy" // bytes that are no UTF-8 are replaced
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(struct {
		At         time.Time `json:"at"`
		Path       string    `json:"path"`
		EventID    string    `json:"event_id"`
		EventType  string    `json:"event_type"`
		Attempt    string    `json:"attempt"`
		Verified   bool      `json:"verified"` // a secret was given, and what is there is right
		Signatures []verdict `json:"signatures"`
		Repeated   bool      `json:"repeated"`
		Status     int       `json:"status"` // 0: not answered
		Note       string    `json:"note,omitempty"`
		DurationMS float64   `json:"duration_ms"`
		Body       string    `json:"body"`
		Encoding   string    `json:"body_encoding"`
	}{d.At.UTC(), d.Path, d.EventID, d.EventType, d.Attempt, len(d.Verdicts) > 0 && isRight(d.Verdicts), d.Verdicts, d.Before != "",
		d.Answered.status, d.Answered.note, float64(d.Took.Microseconds()) / 1000, body, encoding})
	_, _ = io.WriteString(p.out, escapedJSON(text.String()))
}

func (t *tally) add(d *received) {
	t.deliveries++
	if d.Answered.succeeded() {
		t.succeeded++
	}
	if d.Before != "" {
		t.repeated++
	}
	switch {
	case len(d.Verdicts) == 0:
		t.unverified++
	case !isRight(d.Verdicts):
		t.wrong++
	}
}

// summary says what it came to.
func (p *printer) summary(w io.Writer, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.count
	fmt.Fprintf(w, "\nDeliveries: %d, of %d events, in %s. Answered with success: %d, not so: %d. With a wrong signature: %d, not verified: %d.\n",
		t.deliveries, t.deliveries-t.repeated, took.Round(time.Second), t.succeeded, t.deliveries-t.succeeded, t.wrong, t.unverified)
}
