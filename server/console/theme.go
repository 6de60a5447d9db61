package console

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
)

// minContrast is the contrast of readable text (WCAG 2.2, success criterion 1.4.3, level AA). Part of a control needs minControl (1.4.11).
const (
	minContrast = 4.5
	minControl  = 3.0
)

type color [3]uint8

var (
	black = color{0, 0, 0}
	white = color{255, 255, 255}
)

// scheme is the light or the dark appearance. tokens.css has the same backgrounds.
type scheme struct {
	name    string
	page    color // background of the page
	surface color // the background with the least contrast that text may have
	ink     color // the direction in which a colour gains contrast
}

var schemes = []scheme{
	{"light", color{0xff, 0xff, 0xff}, color{0xf1, 0xf3, 0xf5}, black},
	{"dark", color{0x0f, 0x11, 0x14}, color{0x1d, 0x21, 0x26}, white},
}

// Theme returns a style sheet with the colours made of an accent, "#rrggbb", each for the light and the dark scheme:
//
//	--accent        fills buttons; --on-accent is the text on it
//	--accent-hover  fills buttons under the pointer
//	--accent-text   links, and the selected item
//	--accent-soft   background of the selected item
func Theme(accent string) ([]byte, error) {
	chosen, err := parseColor(accent)
	if err != nil {
		return nil, err
	}
	var colors [2][]any // of each scheme
	for i, s := range schemes {
		soft := mix(s.page, chosen, 0.12)
		fill := s.contrasting(chosen, minControl, s.page)
		text := s.contrasting(chosen, minContrast, s.surface, soft)
		on, away, darker := white, black, fill // the hover colour moves away from the text on it
		for part := 0.01; part <= 0.08 && contrast(white, darker) < minContrast; part += 0.01 {
			darker = mix(fill, black, part) // black text on a colour of middle lightness looks like a button that does nothing
		}
		if contrast(white, darker) < minContrast || contrast(darker, s.page) < minControl {
			on, away, darker = black, white, fill // one of both has a contrast of at least 4.58
		}
		fill = darker
		colors[i] = []any{fill, on, mix(fill, away, 0.12), text, soft}
	}
	var out bytes.Buffer
	out.WriteString("/* Generated from console.accent. */\n:root {\n")
	for i, name := range []string{"accent", "on-accent", "accent-hover", "accent-text", "accent-soft"} {
		fmt.Fprintf(&out, "  --%s: light-dark(%s, %s);\n", name, colors[0][i], colors[1][i])
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}

// contrasting returns c, or the nearest colour on its way to the ink that has this contrast to all backgrounds.
func (s scheme) contrasting(c color, least float64, backgrounds ...color) color {
	const steps = 64
	for i := range steps {
		mixed := mix(c, s.ink, float64(i)/steps)
		if !slices.ContainsFunc(backgrounds, func(b color) bool { return contrast(mixed, b) < least }) {
			return mixed
		}
	}
	return s.ink
}

func parseColor(s string) (color, error) {
	digits, found := strings.CutPrefix(s, "#")
	if b, err := hex.DecodeString(digits); found && err == nil && len(b) == len(color{}) {
		return color(b), nil
	}
	return color{}, fmt.Errorf("%.20q is not a colour such as #3b5bdb", s)
}

func (c color) String() string { return "#" + hex.EncodeToString(c[:]) }

func mix(c, other color, part float64) (mixed color) {
	for i := range c {
		mixed[i] = uint8(math.Round(float64(c[i])*(1-part) + float64(other[i])*part))
	}
	return mixed
}

// contrast is the contrast ratio of two colours, from 1 to 21 (WCAG 2.2).
func contrast(a, b color) float64 {
	light, dark := max(a.luminance(), b.luminance()), min(a.luminance(), b.luminance())
	return (light + 0.05) / (dark + 0.05)
}

// luminance is the relative luminance, from 0 to 1 (WCAG 2.2).
func (c color) luminance() float64 {
	var linear [3]float64
	for i, v := range c {
		linear[i] = float64(v) / 255
		if linear[i] <= 0.04045 {
			linear[i] /= 12.92
		} else {
			linear[i] = math.Pow((linear[i]+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*linear[0] + 0.7152*linear[1] + 0.0722*linear[2]
}
