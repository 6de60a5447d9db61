package console

import (
	"regexp"
	"testing"
)

// variable matches a colour for light and for dark.
var variable = regexp.MustCompile(`--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`)

// colorsOf returns the colours of a style sheet for a scheme: 0 is light, 1 is dark.
func colorsOf(sheet []byte, scheme int) map[string]color {
	colors := map[string]color{}
	for _, m := range variable.FindAllStringSubmatch(string(sheet), -1) {
		colors[m[1]], _ = parseColor(m[2+scheme])
	}
	return colors
}

func TestThemeIsReadable(t *testing.T) {
	t.Parallel()
	for _, accent := range []string{DefaultAccent, "#000000", "#ffffff", "#FFFF00", "#00ff88", "#808080", "#767676", "#ff0000", "#0000ff", "#123456"} {
		sheet, err := Theme(accent)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range schemes {
			colors := colorsOf(sheet, i)
			if len(colors) != 5 {
				t.Fatalf("%s: the theme is\n%s", accent, sheet)
			}
			for _, pair := range []struct {
				what string
				a, b color
				want float64
			}{
				{"text on a button", colors["on-accent"], colors["accent"], minContrast},
				{"text on a button under the pointer", colors["on-accent"], colors["accent-hover"], minContrast},
				{"a button on the page", colors["accent"], s.page, minControl},
				{"a link on the page", colors["accent-text"], s.page, minContrast},
				{"a link on another surface", colors["accent-text"], s.surface, minContrast},
				{"the selected item", colors["accent-text"], colors["accent-soft"], minContrast},
			} {
				if got := contrast(pair.a, pair.b); got < pair.want {
					t.Errorf("%s, %s: %s has a contrast of %.2f, want at least %.1f", accent, s.name, pair.what, got, pair.want)
				}
			}
		}
	}
	if _, err := Theme("blue"); err == nil {
		t.Error("a word is accepted as a colour")
	}
}

func TestTheTextOnAButton(t *testing.T) {
	t.Parallel()
	for accent, want := range map[string]struct{ on, fill string }{
		"#2b8a3e": {"#ffffff", "#2a873d"}, // 4.29 with white: 2 % darker is enough
		"#3b5bdb": {"#ffffff", "#3b5bdb"}, // enough as it is
		"#2f9e44": {"#000000", "#2f9e44"}, // more than 8 % would be too far from the colour of the host
		"#ffd43b": {"#000000", ""},        // yellow
	} {
		sheet, err := Theme(accent)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range schemes {
			colors := colorsOf(sheet, i)
			if got := colors["on-accent"].String(); got != want.on {
				t.Errorf("%s, %s: the text has the colour %s, want %s", accent, s.name, got, want.on)
			}
			if got := colors["accent"].String(); want.fill != "" && got != want.fill {
				t.Errorf("%s, %s: the button has the colour %s, want %s", accent, s.name, got, want.fill)
			}
		}
	}
}

// TestContrastOfTheColours reads the colours of tokens.css, for light and dark.
func TestContrastOfTheColours(t *testing.T) {
	t.Parallel()
	sheet, err := static.ReadFile("static/tokens.css")
	if err != nil {
		t.Fatal(err)
	}
	for i := range schemes {
		colors := colorsOf(sheet, i)
		if colors["grey-1"] != schemes[i].page || colors["grey-3"] != schemes[i].surface {
			t.Errorf("%s: theme.go has other backgrounds than tokens.css", schemes[i].name)
		}
		for _, on := range []string{"grey-1", "grey-2", "grey-3"} {
			for _, name := range []string{"grey-7", "grey-8", "grey-9", "success", "warning", "danger"} {
				if got := contrast(colors[name], colors[on]); got < minContrast {
					t.Errorf("%s: %s on %s has a contrast of %.2f", schemes[i].name, name, on, got)
				}
			}
		}
		for _, name := range []string{"success", "warning", "danger"} {
			if got := contrast(colors[name], colors[name+"-soft"]); got < minContrast {
				t.Errorf("%s: %s on %s-soft has a contrast of %.2f", schemes[i].name, name, name, got)
			}
			if got := contrast(colors["on-"+name], colors[name]); got < minContrast {
				t.Errorf("%s: on-%s on %s has a contrast of %.2f", schemes[i].name, name, name, got)
			}
		}
	}
}
