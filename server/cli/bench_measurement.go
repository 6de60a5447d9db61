package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// measurement is one figure of the benchmark, and what may be said about it.
type measurement struct {
	name   string // in JSON; stays as it is
	title  string // in the table
	value  float64
	unit   string
	ratio  float64 // to another figure of this run; 0: it has none
	to     string  // name of that figure
	target target
	absent bool // this system does not tell
}

// target is what a figure should come to. It was set for two processors that publisher, server and receiver share.
type target struct {
	atLeast, atMost float64 // one of them; none: there is no target
	ofRatio         bool    // it is about the ratio, not the value
}

func (t target) String() string {
	of := ""
	if t.ofRatio {
		of = "ratio "
	}
	switch {
	case t.atLeast > 0:
		return of + ">= " + figure(t.atLeast)
	case t.atMost > 0:
		return of + "<= " + figure(t.atMost)
	}
	return ""
}

// verdict says how the measurement compares with its target; empty where there is nothing to compare.
func (m measurement) verdict() string {
	value := m.value
	if m.target.ofRatio {
		value = m.ratio
	}
	switch {
	case m.absent || m.target == target{}:
		return ""
	case value < m.target.atLeast:
		return "below"
	case m.target.atMost > 0 && value > m.target.atMost:
		return "above"
	}
	return "ok"
}

// MarshalJSON writes the measurement as an object without its name, which is its key.
func (m measurement) MarshalJSON() ([]byte, error) {
	type object struct {
		Value   *float64 `json:"value"` // null: this system does not tell
		Unit    string   `json:"unit"`
		Ratio   *float64 `json:"ratio,omitempty"`
		RatioTo string   `json:"ratio_to,omitempty"`
		Target  string   `json:"target,omitempty"`
		Verdict string   `json:"verdict,omitempty"` // ok, below, above
	}
	o := object{Unit: m.unit, RatioTo: m.to, Target: m.target.String(), Verdict: m.verdict()}
	if !m.absent {
		o.Value = &m.value
	}
	if m.ratio != 0 {
		o.Ratio = &m.ratio
	}
	return json.Marshal(o)
}

// figure writes a number with three digits that count, or whole from a hundred on.
func figure(v float64) string {
	if v >= 100 || v == 0 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// writeTable writes the measurements in aligned columns, numbers to the right.
func writeTable(w io.Writer, measured []measurement) {
	rows := [][]string{{"FIGURE", "VALUE", "UNIT", "RATIO", "TO", "TARGET", ""}}
	for _, m := range measured {
		value, ratio := figure(m.value), ""
		if m.absent {
			value = "not on this system"
		}
		if m.ratio != 0 {
			ratio = strconv.FormatFloat(m.ratio, 'f', 2, 64)
		}
		rows = append(rows, []string{m.title, value, m.unit, ratio, m.to, m.target.String(), m.verdict()})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			padded := fmt.Sprintf("%-*s  ", widths[i], cell)
			if i == 1 || i == 3 {
				padded = fmt.Sprintf("%*s  ", widths[i], cell)
			}
			line.WriteString(padded)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}
